"""Publish the HTML report of a project: read its store and pass the rows to package `report.html`.

The command and the asset both use this module, so they publish the same pages.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from agent_eval import __version__
from agent_eval.formats.files import Bounds
from agent_eval.formats.streams import Record, json_lines
from agent_eval.project.project import Project
from agent_eval.report.asset_pages.clusters import clusters_page, trends_page
from agent_eval.report.asset_pages.conversations import (
    TURN_COLUMNS,
    conversations_page,
    first_turns,
    shown_first,
)
from agent_eval.report.asset_pages.lineage import lineage_page, ratings_page
from agent_eval.report.asset_pages.pages import asset_page as drawn_page
from agent_eval.report.asset_pages.pages import first_rows, page_columns
from agent_eval.report.asset_pages.quality import MOST_ERRORS
from agent_eval.report.clusters import with_own_words
from agent_eval.report.html import Reader, Served, Site, Written, page_at, write_report
from agent_eval.report.html.conversation import source_file
from agent_eval.report.html.tables import Counter
from agent_eval.report.links import REPORT
from agent_eval.report.names import file_name
from agent_eval.scores.statistics.quality import top_errors
from agent_eval.storage.lineage import written, written_by_partition
from agent_eval.tables import TABLES, Table, table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.schema import MADE_FROM, above


def publish(project: Project, folder: Path | None = None, *, version: str | None = None) -> Written:
    """Write the report of all versions into `folder` (default: data/report).

    index.html shows `version`, by default the current one. Only one report of a store is written at a time.

    Raises:
        NotFoundError: If the version does not exist.
        StorageError: If the folder contains files that are not part of an earlier report.
        StoreError: If the store cannot be read.
    """
    methodology = project.registry.current if version is None else project.registry.get(version)
    with project.store.exclusive_section("report"):
        return write_report(site_of(project, methodology.version), folder or report_folder(project))


def served_page(project: Project, path: str) -> bytes | None:
    """Return the page of the report at a path, rendered from the current store; None if the page does not exist.

    Raises:
        StoreError: If the store cannot be read.
    """
    site = site_of(project, project.registry.current.version)
    return page_at(
        replace(site, served=Served(_runs(project), partial(_record, project), partial(asset_page, project))),
        path,
    )


def asset_page(project: Project, name: str, file: str) -> tuple[str, str] | None:
    """Return the key of an asset's partition, and its page as Markdown: plots, tables, first rows, what it was made from.

    Args:
        project: The project.
        name: The table of the asset.
        file: The file name of the partition (`names.file_name` of its key); the result is None if there is none.

    Raises:
        StoreError: If the store cannot be read.
    """
    if name not in MADE_FROM:
        return None
    contract = table(name)
    by = sorted(contract.partition) or ["methodology_version"]  # board history is not partitioned
    values = {"agent_id": project.known_agents(), "methodology_version": project.registry.versions}
    key = next((key for key in product(*(values[column] for column in by)) if file_name(*key) == file), None)
    if key is None:
        return None
    partition = pl.DataFrame([dict(zip(by, key, strict=True))])
    rows = project.store.read(contract, partition, columns=page_columns(name))
    first = _first_rows(project, contract, rows)
    if name == "error_clusters":
        rows, first = (with_own_words(reader(project), frame) for frame in (rows, first))
    page = drawn_page(name, rows, first, project.settings.interval)
    return "|".join(key), "\n\n".join([page, *_further_sections(project, name, partition, rows)])


def _first_rows(project: Project, contract: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first of these rows with all columns of the table."""
    first = first_rows(contract, rows)
    key = [*contract.key]
    key_columns = [column for column in key if not first[column].null_count()]
    full = project.store.read(contract, first.select(key_columns).unique())
    return first.select(key).join(full, on=key, nulls_equal=True, maintain_order="left").select(full.columns)


def _further_sections(
    project: Project, name: str, partition: pl.DataFrame, rows: pl.DataFrame
) -> Iterator[str]:
    """Yield the sections of a page that read other tables: conversations, errors, ratings and lineage."""
    read = project.store.read
    if name == "transcripts":
        first_conversations = shown_first(rows)
        turns = read(table("turns"), first_turns(first_conversations), columns=TURN_COLUMNS)
        yield f"## Conversations\n\n{conversations_page(first_conversations, turns)}"
    if name == "quality_summary":
        errors = top_errors(read(table("error_clusters"), partition), MOST_ERRORS)
        errors = with_own_words(reader(project), errors)
        yield f"## Errors\n\n{clusters_page(errors) if errors.height else 'no failure was found'}"
    if name == "error_trends":
        yield f"## Clusters\n\n{trends_page(read(table('error_clusters'), partition), rows)}"
    if name in ("leaderboard", "composite_scores"):
        ratings = read(table("rubric_ratings"), partition).filter("is_effective")
        if name == "composite_scores":
            report = project.settings.report_url or REPORT
            yield f"## Lowest ratings\n\n{ratings_page(ratings, report)}"
        yield f"## Lineage\n\n{_lineage(project, name, partition, ratings)}"


def _lineage(project: Project, name: str, partition: pl.DataFrame, ratings: pl.DataFrame) -> str:
    written_here = written_by_partition(project.store, {step: table(step) for step in above(name)})
    key = partition.row(0, named=True)
    of_key = pl.all_horizontal(pl.col(c).eq(v) | pl.col(c).is_null() for c, v in key.items())
    judges = ratings.group_by("judge").agg(
        n_ratings=pl.len(),
        n_prompts=pl.col("prompt_hash").drop_nulls().n_unique(),
        prompt_hash=pl.col("prompt_hash").min(),
    )
    methodology = project.registry.get(key["methodology_version"])
    pairs = [AgentVersion(*row) for row in ratings.select(AgentVersion._fields).unique().iter_rows()]
    models = {" + ".join(spec.models) for spec in project.judges.specs(pairs).values()}
    facts = {
        "methodology": methodology.version,
        "rubrics and tests, hash": methodology.rubric_hash,
        "weights and penalties, hash": methodology.scoring_hash,
        "metrics, hash": project.metrics.hash,
        "judge models": ", ".join(sorted(models)) or "none",
    }
    return lineage_page(name, written_here.filter(of_key), judges.sort("judge"), facts)


def _runs(project: Project) -> dict[str, dict[str, str]]:
    """Return the id of the run that last computed the judgments, by agent and version."""
    writes = written_by_partition(project.store, {"turn_judgments": table("turn_judgments")})
    runs: dict[str, dict[str, str]] = {}
    for agent, version, run in writes.select("agent_id", "methodology_version", "last_run_id").iter_rows():
        runs.setdefault(agent, {})[version] = run
    return runs


def _record(project: Project, conversation: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the indented JSON text of a conversation's source record, or None and why it cannot be shown."""
    number = conversation["source_line"]
    if number is None:
        return (
            None,
            "The line number of this conversation is not stored. Materialise asset `conversations` of its agent.",
        )
    path = project.home.data / source_file(conversation)
    if reason := Bounds.of(project.home.sessions).refused_file(path):
        return None, f"{reason}."
    records = json_lines(path, path.name)
    record = next((r for r in records if isinstance(r, Record) and r.number == number), None)
    value = record.value if record else None
    if not isinstance(value, dict) or value.get("conversation_id") != conversation["conversation_id"]:
        return None, "The file has changed since it was ingested: this line now contains a different record."
    return json.dumps(value, ensure_ascii=False, indent=2), None


def report_folder(project: Project) -> Path:
    """Return the default folder of the report."""
    return project.home.data / "report"


def site_of(project: Project, shown_version: str) -> Site:
    """Return the inputs of the report of this project."""
    versions = project.registry.versions
    return Site(
        read=reader(project),
        count=counter(project),
        methodologies=project.methodologies(versions),
        shown=shown_version,
        gates=project.store.read(table("gate_results")),
        written=written(project.store, TABLES),
        package_version=__version__,
        max_pages=project.settings.max_report_conversations,
        edited={version: f"{p.reason}." for version, p in project.registry.edited().items()},
    )


def counter(project: Project) -> Counter:
    """Return a function that counts rows of the project's stored tables."""

    def count(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str], extent: str | None = None
    ) -> pl.DataFrame:
        return project.store.counts(table(name), keys, columns=columns, extent=extent)

    return count


def reader(project: Project) -> Reader:
    """Return a function that reads the project's stored tables."""

    def read(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        return project.store.read(table(name), keys, columns=columns)

    return read
