"""The way from a score to its sources, on the page of the asset that holds the score."""

import dagster as dg
import polars as pl

from agent_eval.defs.dagster_internals import add_metadata_by_partition
from agent_eval.defs.partitions import key_frame
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.project import Project
from agent_eval.report.asset_pages.lineage import MADE_FROM, lineage_page
from agent_eval.storage.lineage import written_by_partition
from agent_eval.tables import table

_RATED = ["agent_id", "methodology_version", "judge", "prompt_hash", "is_effective"]


def show_lineage(context: dg.AssetExecutionContext, project: Project, name: str) -> None:
    """Adds a section `lineage` to each partition of this run: tables, rows, runs, judges, prompts and hashes."""
    partitions = key_frame(context.assets_def.partitions_def, context.partition_keys)
    written = written_by_partition(project.store, {step: table(step) for step in MADE_FROM})
    rated = project.store.read(table("rubric_ratings"), partitions, columns=_RATED).filter("is_effective")
    judged = rated.group_by(*partitions.columns, "judge").agg(
        n_ratings=pl.len(),
        n_prompts=pl.col("prompt_hash").n_unique(),
        prompt_hash=pl.col("prompt_hash").min(),
    )
    judged = judged.with_columns(
        n_prompts=pl.col("n_prompts") - pl.col("prompt_hash").is_null().cast(pl.Int64)
    )
    judges = project.judge_specs(partitions["methodology_version"].unique().to_list())
    pages = {}
    for key in partitions.iter_rows(named=True):
        version = key["methodology_version"]
        of_key = pl.all_horizontal(pl.col(c).eq(v) | pl.col(c).is_null() for c, v in key.items())
        page = lineage_page(
            name,
            written.filter(of_key),
            judged.filter(of_key).drop(partitions.columns).sort("judge"),
            _facts(project, version, judges.get(version)) | {"run": context.run.run_id},
        )
        pages["|".join(key.values())] = {"lineage": dg.MetadataValue.md(page)}
    add_metadata_by_partition(context, name, pages)


def _facts(project: Project, version: str, judge: JudgeSpec | None) -> dict[str, str]:
    methodology = project.registry.get(version)
    return {
        "methodology": version,
        "rubrics and tests, hash": methodology.rubric_hash,
        "weights and penalties, hash": methodology.scoring_hash,
        "metrics, hash": project.metrics.hash,
        "judge models": ", ".join(judge.models) if judge else "none",
    }
