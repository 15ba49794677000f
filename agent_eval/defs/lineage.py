"""Add the lineage of scores and the turns of transcripts to the pages of their assets."""

import dagster as dg
import polars as pl

from agent_eval.defs.dagster_internals import add_metadata_by_partition
from agent_eval.defs.partitions import key_frame
from agent_eval.project import Project
from agent_eval.report.asset_pages.conversations import (
    TURN_COLUMNS,
    conversations_page,
    first_turns,
    shown_first,
)
from agent_eval.report.asset_pages.lineage import lineage_page, ratings_page
from agent_eval.report.links import REPORT
from agent_eval.storage.lineage import written_by_partition
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.schema import above

_RATED = ["agent_id", "methodology_version", "judge", "prompt_hash", "is_effective"]
_SHOWN = [*_RATED, "session_id", "conversation_id", "target", "criterion", "rating_1to5", "rationale"]


def show_lineage(context: dg.AssetExecutionContext, project: Project, name: str) -> None:
    """Add section `lineage` (tables, rows, runs, judges, prompts, hashes, ratings) per partition."""
    partitions = key_frame(context.assets_def.partitions_def, context.partition_keys)
    written = written_by_partition(project.store, {step: table(step) for step in above(name)})
    rated = project.store.read(
        table("rubric_ratings"), partitions, columns=_SHOWN if name == "composite_scores" else _RATED
    ).filter("is_effective")
    judged = rated.group_by(*partitions.columns, "judge").agg(
        n_ratings=pl.len(),
        n_prompts=pl.col("prompt_hash").n_unique(),
        prompt_hash=pl.col("prompt_hash").min(),
    )
    judged = judged.with_columns(
        n_prompts=pl.col("n_prompts") - pl.col("prompt_hash").is_null().cast(pl.Int64)
    )
    judged_by = _judges(project, rated.select("agent_id", "methodology_version").unique())
    pages = {}
    for key in partitions.iter_rows(named=True):
        version = key["methodology_version"]
        of_key = pl.all_horizontal(pl.col(c).eq(v) | pl.col(c).is_null() for c, v in key.items())
        page = lineage_page(
            name,
            written.filter(of_key),
            judged.filter(of_key).drop(partitions.columns).sort("judge"),
            _facts(project, version, judged_by.filter(of_key)) | {"run": context.run.run_id},
        )
        texts = {"lineage": page}
        if name == "composite_scores":
            texts["ratings"] = ratings_page(rated.filter(of_key), project.settings.report_url or REPORT)
        pages["|".join(key.values())] = {title: dg.MetadataValue.md(text) for title, text in texts.items()}
    add_metadata_by_partition(context, name, pages)


def show_turns(context: dg.AssetExecutionContext, project: Project, transcripts: pl.DataFrame) -> None:
    """Add section `conversations` per partition: its first conversations, each with its first turns."""
    shown = shown_first(transcripts)
    turns = project.store.read(table("turns"), first_turns(shown), columns=TURN_COLUMNS)
    pages = {
        AgentVersion.of(agent_id=agent, methodology_version=version).key: {
            "conversations": dg.MetadataValue.md(conversations_page(rows, turns))
        }
        for (agent, version), rows in shown.group_by("agent_id", "methodology_version", maintain_order=True)
    }
    add_metadata_by_partition(context, "transcripts", pages)


def _judges(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the judge models that are stored for the given pairs: agent_id, methodology_version, models."""
    specs = project.judge_specs([AgentVersion(*row) for row in pairs.iter_rows()])
    rows = [(*pair, " + ".join(spec.models)) for pair, spec in specs.items()]
    return pl.DataFrame(rows, schema=dict.fromkeys((*pairs.columns, "models"), pl.String), orient="row")


def _facts(project: Project, version: str, judged_by: pl.DataFrame) -> dict[str, str]:
    methodology = project.registry.get(version)
    return {
        "methodology": version,
        "rubrics and tests, hash": methodology.rubric_hash,
        "weights and penalties, hash": methodology.scoring_hash,
        "metrics, hash": project.metrics.hash,
        "judge models": ", ".join(judged_by["models"].unique().sort()) or "none",
    }
