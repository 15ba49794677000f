"""Define the assets that build one leaderboard per methodology version, and the report on all versions."""

from datetime import timedelta

import dagster as dg
import polars as pl

from agent_eval import __version__
from agent_eval.defs.assets.common import (
    OWNERS,
    TableEvents,
    check_and_store,
    part_of,
    report_link,
    table_asset,
    table_multi_asset,
)
from agent_eval.project import Project
from agent_eval.project.boards import recorded
from agent_eval.project.calibration import with_calibration, with_judge_error
from agent_eval.report.board import board_page, superseded_notes, versions_in
from agent_eval.report.conclusions import board_answer
from agent_eval.report.links import REPORT
from agent_eval.scores.composite import leaderboard as boards
from agent_eval.scores.reliability import pass_rates as trials
from agent_eval.scores.statistics import quality
from agent_eval.tables.frames import (
    Agents,
    CompositeScores,
    ErrorClusters,
    QualitySummary,
    Reliability,
    Transcripts,
)

# With `nightly` on, boards are built every night; without it, a board older than a week is flagged.
WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=8), warn_window=timedelta(days=2))
_ADMISSION = ("methodology_version", "agent_id", "session_id", "slot", "tests", "is_admitted")
"""The columns of table transcripts that the log leaderboard reads."""

# Tables are stored in this order. `board_inputs` is last: until it is stored, the next run finds the same causes.
_BOARD = {
    "leaderboard": "The leaderboard: ranks within each template by exact composite scores, then unpublished agents with "
    "the reasons.",
    "board_changes": "Changes of the board: composite, rank and status before and after, and the causes. A run adds "
    "rows for changes and never removes rows.",
    "board_history": "Every earlier state of each row of the board, so that the board of an earlier day can be shown. A "
    "run adds rows for changes and never removes rows.",
    "board_inputs": "Hashes of the inputs of each row of the board. The inputs that differ at the next board are the "
    "causes of its changes.",
}


@dg.multi_asset(
    **table_multi_asset(_BOARD, {"judge_calibration"}, freshness={"leaderboard": WEEKLY}),
    group_name="boards",
)
def boards_of_agents(
    context: dg.AssetExecutionContext,
    composite_scores: CompositeScores,
    reliability: Reliability,
    agents: Agents,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Compute the leaderboard of each version, its changes since the previous board, and their causes."""
    successors = {m.version: m.superseded_by for m in project.registry.all()}
    scores = with_judge_error(project, composite_scores)
    board = boards.leaderboard(scores, agents, reliability, successors, project.settings.interval)  # type: ignore[arg-type]
    board = with_calibration(project, board)
    _show_boards(context, project, board)
    _show_successors(context, project, "leaderboard")
    by_table = {"leaderboard": board, **recorded(project, board, composite_scores, context.partition_keys)}
    yield from check_and_store(context, by_table, composite_scores=composite_scores)


@dg.asset(
    **table_asset("pairwise_comparisons", {"judge_calibration"}),
    group_name="boards",
    freshness_policy=WEEKLY,
)
def pairwise_comparisons(
    context: dg.AssetExecutionContext, composite_scores: CompositeScores, project: dg.ResourceParam[Project]
) -> TableEvents:
    """Compare every pair of published agents of a template, with confidence interval and significance."""
    scores = with_judge_error(project, composite_scores)
    compared = boards.pairwise_comparisons(scores, project.settings.interval)  # type: ignore[arg-type]
    _link_to_report(context, project, "pairwise_comparisons", compared, "index.html#pairs")
    yield from check_and_store(context, {"pairwise_comparisons": compared})


@dg.asset(
    **table_asset("reliability_leaderboard", {"judge_calibration"}),
    group_name="boards",
    freshness_policy=WEEKLY,
)
def reliability_leaderboard(
    context: dg.AssetExecutionContext, reliability: Reliability, project: dg.ResourceParam[Project]
) -> TableEvents:
    """Rank agents within each task set by pass^k, the probability that k trials of a task all succeed."""
    ranked = with_calibration(project, trials.reliability_leaderboard(reliability))
    _link_to_report(context, project, "reliability_leaderboard", ranked, "index.html#reliability")
    _show_successors(context, project, "reliability_leaderboard")
    yield from check_and_store(context, {"reliability_leaderboard": ranked}, reliability=reliability)


@dg.asset(
    **table_asset(
        "log_leaderboard", {"judge_calibration"}, transcripts=part_of(_ADMISSION, is_admitted=[True])
    ),
    group_name="boards",
    freshness_policy=WEEKLY,
)
def log_leaderboard(
    context: dg.AssetExecutionContext,
    quality_summary: QualitySummary,
    error_clusters: ErrorClusters,
    transcripts: Transcripts,
    agents: Agents,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """List agents whose conversations fill no slot, with the main figures of their logs; they are not ranked."""
    logs = quality.log_leaderboard(quality_summary, error_clusters, transcripts, agents)
    logs = with_calibration(project, logs)
    _link_to_report(context, project, "log_leaderboard", logs, "logs.html")
    yield from check_and_store(context, {"log_leaderboard": logs}, transcripts=transcripts)


@dg.asset(
    group_name="boards",
    deps=[
        "leaderboard",
        "board_changes",
        pairwise_comparisons,
        reliability_leaderboard,
        log_leaderboard,
        "error_trends",
        "gate_results",
    ],
    kinds={"html"},
    owners=OWNERS,
    code_version=__version__,
)
def html_report(project: dg.ResourceParam[Project]) -> dg.MaterializeResult[None]:
    """Write the whole report to data/report, as `agent-eval report` does.

    The asset is materialised nightly or manually; changes of its inputs do not start it.
    """
    from agent_eval.project.report import publish  # slow to load, so it is imported only when needed

    site = publish(project)
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(site.index),
            "open": report_link(project),
            "n_pages": site.n_pages,
            "n_bytes": site.n_bytes,
        }
    )


def _show_boards(context: dg.AssetExecutionContext, project: Project, board: pl.DataFrame) -> None:
    for version in versions_in(board):
        of_version = boards.in_reading_order(board.filter(methodology_version=version))
        text = {
            "answer": board_answer("leaderboard", of_version),
            "board": dg.MetadataValue.md(
                board_page(of_version, version, project.settings.report_url or REPORT)
            ),
            "report": report_link(project, f"boards/{version}/index.html"),
        }
        context.add_asset_metadata(text, asset_key="leaderboard", partition_key=version)


def _show_successors(context: dg.AssetExecutionContext, project: Project, asset: str) -> None:
    """Show on the page of each superseded version which version replaced it, with a link to the current one."""
    notes = superseded_notes(project.registry.all(), asset)
    for version in notes.keys() & set(context.partition_keys):
        text = {"Superseded": dg.MetadataValue.md(notes[version])}
        context.add_asset_metadata(text, asset_key=asset, partition_key=version)


def _link_to_report(
    context: dg.AssetExecutionContext, project: Project, asset: str, rows: pl.DataFrame, place: str
) -> None:
    """Show on the page of each version with rows the answer of a board, and the address of its place in the report."""
    for version in versions_in(rows):
        of_version = rows.filter(methodology_version=version)
        is_board = asset != "pairwise_comparisons"
        link = {
            **({"answer": board_answer(asset, of_version)} if is_board else {}),
            "report": report_link(project, f"boards/{version}/{place}"),
        }
        context.add_asset_metadata(link, asset_key=asset, partition_key=version)
