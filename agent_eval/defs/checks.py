"""Evaluate asset checks in the op that computes the asset: invalid data is not stored.

The checks detect defects of this package. A single invalid judgment is quarantined before the checks run.
Each check is evaluated once per run, for all partitions of the run; its metadata lists examples of invalid rows.
"""

from collections.abc import Iterator, Mapping

import dagster as dg
import polars as pl

from agent_eval.report.markdown import markdown_table
from agent_eval.tables import Table, TableMismatchError, table
from agent_eval.tables.rules import PARENTS, SCALES, off_scale, orphans, quarantined, strays

EXAMPLES = 5  # rows

_MEANING = {
    "keeps_contract": "Columns, types and keys are as declared for the table.",
    "one_methodology": "Every row belongs to a partition of this run: no other agent, no other version.",
    "on_scale": "Every rating and score lies on the scale that its column names.",
    "no_orphans": "Every row belongs to a row of {parent}.",
}
SET_ASIDE = "nothing_set_aside"


def check_specs(name: str) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks of the asset that stores table `name`.

    All are blocking, except the check that warns about quarantined rows.
    """
    parent = PARENTS.get(name, ("",))[0]
    specs = [
        dg.AssetCheckSpec(check, asset=name, blocking=True, description=_MEANING[check].format(parent=parent))
        for check in _checks_of(table(name))
    ]
    if _can_set_aside(table(name)):
        said = "No rating was outside its scale and quarantined as invalid."
        specs.append(dg.AssetCheckSpec(SET_ASIDE, asset=name, description=said))
    return specs


def checked(
    name: str,
    frame: pl.DataFrame,
    partitions: pl.DataFrame,
    others: Mapping[str, pl.DataFrame],
    *,
    output: str,
) -> Iterator[dg.AssetCheckResult | dg.Output[pl.DataFrame]]:
    """Yield the results of all checks of one table, then its rows without the quarantined ones.

    Args:
        name: The table.
        frame: Its new rows.
        partitions: The partitions of this run, one row per key.
        others: The inputs of the asset and the other tables computed with it, by table name.
        output: The name of the op's output.

    Raises:
        dg.Failure: If a blocking check failed; the results are yielded first and the stored rows stay unchanged.
    """
    contract = table(name)
    try:
        rows, aside = quarantined(contract, contract.conform(frame))
    except TableMismatchError as error:
        yield dg.AssetCheckResult(
            asset_key=name, check_name="keeps_contract", passed=False, description=str(error)
        )
        raise dg.Failure(str(error)) from error
    found = {
        "keeps_contract": rows.clear(),
        "one_methodology": strays(rows, partitions),
        "on_scale": off_scale(contract, rows),
        "no_orphans": orphans(contract, rows, others),
    }
    for check in _checks_of(contract):
        yield _result(contract, check, found[check], dg.AssetCheckSeverity.ERROR)
    if _can_set_aside(contract):
        yield _result(contract, SET_ASIDE, aside, dg.AssetCheckSeverity.WARN)
    if broken := [check for check in _checks_of(contract) if not found[check].is_empty()]:
        raise dg.Failure(f"{name}: {', '.join(broken)} failed. The stored rows are not changed.")
    yield dg.Output(rows, output)


def _checks_of(contract: Table) -> list[str]:
    checks = ["keeps_contract", "one_methodology"]
    checks += ["on_scale"] * any(column.endswith(tuple(SCALES)) for column in contract.schema)
    return checks + ["no_orphans"] * (contract.name in PARENTS)


def _can_set_aside(contract: Table) -> bool:
    return {"rating_1to5", "status"} <= set(contract.schema)


def _result(
    contract: Table, check: str, bad: pl.DataFrame, severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    keys = bad.select(contract.key).head(EXAMPLES)
    return dg.AssetCheckResult(
        asset_key=contract.name,
        check_name=check,
        passed=bad.is_empty(),
        severity=severity,
        metadata={"n_rows": bad.height, "examples": dg.MetadataValue.md(markdown_table(keys, limit=80))}
        if not bad.is_empty()
        else {},
    )
