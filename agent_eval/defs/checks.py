"""Evaluate asset checks in the op that computes the asset: invalid data is not stored.

The checks detect defects of this package. A single invalid judgment is quarantined before the checks run.
Each check is evaluated once per run, for all partitions of the run; its metadata lists examples of invalid rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
import polars as pl

from agent_eval.defs.dagster_internals import REPORTED_BY_IO_MANAGER
from agent_eval.formats.plain_text import count_of, sanitize_line
from agent_eval.formats.spill import Rows, Spilled, frames_of
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import Table, TableMismatchError, table
from agent_eval.tables.rules import PARENTS, SCALES, off_scale, orphans, quarantined, strays

EXAMPLES = 5  # rows
LONGEST = 400  # maximum number of characters of a description

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
        description = "No rating was outside its scale and quarantined as invalid."
        specs.append(dg.AssetCheckSpec(SET_ASIDE, asset=name, description=description))
    return specs


def checked(
    name: str, all_rows: Rows, partitions: pl.DataFrame, others: Mapping[str, Rows], *, output: str
) -> Iterator[dg.AssetCheckResult | dg.Output[Rows]]:
    """Yield the results of all checks of one table, then its rows without the quarantined ones.

    Args:
        name: The table.
        all_rows: Its new rows. Those in temporary files are examined part by part.
        partitions: The partitions of this run, one row per key.
        others: The inputs of the asset and the other tables computed with it, by table name.
        output: The name of the op's output.

    Raises:
        dg.Failure: If a blocking check failed; the results are yielded first and the stored rows stay unchanged.
    """
    contract = table(name)
    try:
        rows, by_check = _examined(contract, all_rows, partitions, others)
    except TableMismatchError as error:
        yield dg.AssetCheckResult(
            asset_key=name, check_name="keeps_contract", passed=False, description=str(error)
        )
        raise dg.Failure(str(error)) from error
    for check in _checks_of(contract):
        yield by_check[check].result(contract, check, dg.AssetCheckSeverity.ERROR)
    if _can_set_aside(contract):
        yield by_check[SET_ASIDE].result(contract, SET_ASIDE, dg.AssetCheckSeverity.WARN)
    if broken := [check for check in _checks_of(contract) if by_check[check].n_rows]:
        raise dg.Failure(f"{name}: {', '.join(broken)} failed. The stored rows are not changed.")
    yield dg.Output(rows, output, metadata={REPORTED_BY_IO_MANAGER: True})


@dataclass(frozen=True)
class _Violations:
    """Hold the number of rows that violate a check, and the keys of the first ones."""

    n_rows: int
    examples: pl.DataFrame

    @classmethod
    def of(cls, contract: Table, rows: pl.DataFrame) -> "_Violations":
        """Return the violations of rows that all violate the check."""
        return cls(rows.height, rows.select(contract.key).head(EXAMPLES))

    def __add__(self, other: "_Violations") -> "_Violations":
        examples = pl.concat([self.examples, other.examples]).head(EXAMPLES)
        return _Violations(self.n_rows + other.n_rows, examples)

    def _said(self, contract: Table) -> str:
        """Return how many rows fail, and which is the first."""
        first = ", ".join(
            f"{column} {value}"
            for column, value in self.examples.row(0, named=True).items()
            if value is not None
        )
        return sanitize_line(f"{count_of(self.n_rows, 'row')} of {contract.name}; the first: {first}")[
            :LONGEST
        ]

    def result(self, contract: Table, check: str, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
        """Return the result of the check, with the first rows as examples if there are any."""
        examples = dg.MetadataValue.md(markdown_table(self.examples, limit=80))
        return dg.AssetCheckResult(
            asset_key=contract.name,
            check_name=check,
            passed=not self.n_rows,
            severity=severity,
            description=self._said(contract) if self.n_rows else None,
            metadata={"n_rows": self.n_rows, "examples": examples} if self.n_rows else {},
        )


def _examined(
    contract: Table, all_rows: Rows, partitions: pl.DataFrame, others: Mapping[str, Rows]
) -> tuple[Rows, dict[str, _Violations]]:
    """Return the rows to store, with invalid ratings marked, and the violations of each check."""
    parents = {name: frame for name, frame in others.items() if isinstance(frame, pl.DataFrame)}
    by_check: dict[str, _Violations] = {}
    for number, part in enumerate(frames_of(all_rows)):
        rows, aside = quarantined(contract, contract.conform(part))
        if isinstance(all_rows, Spilled) and not aside.is_empty():
            all_rows.rewrite(number, rows)
        violating = {
            "keeps_contract": rows.clear(),
            "one_methodology": strays(rows, partitions),
            "on_scale": off_scale(contract, rows),
            "no_orphans": orphans(contract, rows, parents),
            SET_ASIDE: aside,
        }
        of_part = {check: _Violations.of(contract, bad) for check, bad in violating.items()}
        by_check = {check: by_check[check] + more for check, more in of_part.items()} if by_check else of_part
    return all_rows if isinstance(all_rows, Spilled) else rows, by_check


def _checks_of(contract: Table) -> list[str]:
    checks = ["keeps_contract", "one_methodology"]
    checks += ["on_scale"] * any(column.endswith(tuple(SCALES)) for column in contract.schema)
    return checks + ["no_orphans"] * (contract.name in PARENTS)


def _can_set_aside(contract: Table) -> bool:
    return {"rating_1to5", "status"} <= set(contract.schema)
