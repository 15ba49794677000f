"""Define the asset that audits judge models by asking them the same questions again."""

from collections.abc import Iterator

import dagster as dg

from agent_eval.defs.assets.common import KINDS, OWNERS, table_metadata, watch_of
from agent_eval.formats.plain_text import count_of
from agent_eval.judge.audits.drift import ALL_METRICS, Audit
from agent_eval.project import Project
from agent_eval.report.markdown import markdown_table

AUDITED = dg.AssetCheckSpec(
    "audited",
    asset="judge_audits",
    description="A judge model was asked again, and no answer was lost.",
)


@dg.asset(
    group_name="judging",
    description="Answers of judge models to a sample of questions that they answered before, with the earlier answers. "
    "The schedule weekly_audit or agent-eval judge audit adds rows; the gate judge_drift reads them.",
    kinds=KINDS,
    owners=OWNERS,
    metadata=table_metadata("judge_audits"),
    pool="llm",
    check_specs=[AUDITED],
)
def judge_audits(
    context: dg.AssetExecutionContext, project: dg.ResourceParam[Project]
) -> Iterator[dg.MaterializeResult[None]]:
    """Ask a fixed sample of answered questions again, without using the cache.

    The new rows are added to the rows of earlier audits.
    """
    from agent_eval.project.audits import audit_judges  # imported on use: it loads the prompts

    done = audit_judges(project, run_id=context.run.run_id, watch=watch_of(context, project))
    yield dg.MaterializeResult(metadata=_page(done), check_results=[_checked(done)])


def _page(done: Audit) -> dict[str, dg.MetadataValue]:
    if done.skipped is not None:
        return {"skipped": dg.MetadataValue.text(done.skipped)}
    page: dict[str, dg.MetadataValue] = {"drift": dg.MetadataValue.md(markdown_table(done.drift))}
    for row in done.drift.filter(metric=ALL_METRICS).iter_rows(named=True):
        for figure in ("share_equal", "mean_difference", "kappa"):
            if row[figure] is not None:  # numbers, because the UI plots them over time
                page[f"{figure} {row['judge']}"] = dg.MetadataValue.float(row[figure])
    return page


def _checked(done: Audit) -> dg.AssetCheckResult:
    why = done.skipped or (
        f"{done.n_lost} of {count_of(done.n_asked, 'answer')} lost: {done.why_lost}" if done.n_lost else None
    )
    return dg.AssetCheckResult(
        asset_key="judge_audits",
        check_name="audited",
        passed=why is None,
        severity=dg.AssetCheckSeverity.WARN,
        description=why,
        metadata={"n_asked": done.n_asked, "n_lost": done.n_lost},
    )
