"""Evaluate the assertions gate: whether the conversations meet the assertions in their `expected` field."""

import polars as pl

from agent_eval.gates.finding import GateFinding, listed, short, worst
from agent_eval.gates.registry import Gate, Kind
from agent_eval.settings.gate_spec import Rules


def assertion_finding(
    rules: Rules, assertion_results: pl.DataFrame, of_conversations: pl.DataFrame | None = None
) -> GateFinding | None:
    """Return one finding for all assertions of a pair, or None if the gate is switched off, or not configured and without assertions.

    With the setting `slotted`, the gate counts the assertions of conversations in a slot and all declared
    trajectories, and those of the project's own scenarios (`of_conversations`, from `scenarios_of`). It does not count the reference calls of an imported benchmark: they are one of several valid
    solutions, and the declared outcome states whether the task was solved. With `all`, it counts every assertion.
    """
    is_counted = pl.col("slot").is_not_null() | (pl.col("kind") == "trajectory")
    if of_conversations is not None:
        own = of_conversations.filter(pl.col("scenario").is_in(list(rules.scenarios)))
        is_counted |= pl.col("conversation_id").is_in(own["conversation_id"].implode())
    results = assertion_results if rules.assertions == "all" else assertion_results.filter(is_counted)
    if rules.assertions == "none":
        return None
    if results.is_empty():
        if "assertions" not in rules.configured:
            return None
        lacking = 'no assertion to check; for an agent without assertions set assertions = "none"'
        return GateFinding("assertions", "unknown", lacking)
    n_passed = results.filter(pl.col("result") == "passed").height
    evidence = f"{n_passed} of {results.height} assertions hold"
    order = pl.col("result").replace_strict({"failed": 0, "unknown": 1, "passed": 2})
    others = results.filter(pl.col("result") != "passed").sort(order, "conversation_id", "assertion_index")
    descriptions = (
        f"{row['conversation_id']}{_turn(row['turn_index'])} {row['result']}: "
        f"{short(row['assertion'] or row['kind'])}: {short(row['reason'] or '')}"
        for row in others.iter_rows(named=True)
    )
    text = f"{evidence}; {listed(descriptions)}" if not others.is_empty() else evidence
    return GateFinding("assertions", worst(results["result"].to_list()), text)


def _turn(turn_index: int | None) -> str:
    return "" if turn_index is None else f"#{turn_index}"


GATE = Gate(
    order=70,
    kinds=(
        Kind(
            "assertions",
            "The conversations meet the requirements of their field `expected`.",
            exists="`expected` contains assertions, or the gate is configured",
            passes="all assertions hold (table `assertion_results` has one row with a diff for each assertion); unknown without any",
            check=("assertion_results", "assertions"),
        ),
    ),
    findings=lambda case: [
        assertion_finding(case.rules, case.rows("assertion_results"), case.of_conversations)
    ],
)
