"""Show an agent's worst answers on one metric with the turn's messages and the judge's rationale."""

from collections.abc import Mapping, Sequence

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.metrics.metric_set import directed
from agent_eval.scores.explain import CAUSES, Node, place_of_quote
from agent_eval.tables.agent_version import AgentVersion

LONGEST = 400  # characters in a message
_ANSWER = ("rating_1to5", "value", "label")


def worst_answers(judgments: pl.DataFrame, labels: Sequence[str], n: int) -> pl.DataFrame:
    """Return the `n` worst effective, scored answers, worst first.

    Args:
        judgments: Rows of turn_judgments or conversation_judgments for one metric, agent and version.
        labels: The labels to show, most severe first; empty for ratings and values, whose lowest answers are the worst.
        n: The maximum number of answers.
    """
    scored_answers = judgments.filter("is_effective", pl.col("status") == "scored")
    place = [name for name in ("conversation_id", "turn_index") if name in scored_answers.columns]
    if labels:
        order = pl.col("label").replace_strict(
            {label: i for i, label in enumerate(labels)}, default=None, return_dtype=pl.Int64
        )
        return scored_answers.filter(order.is_not_null()).sort(order, *place).head(n)
    value = pl.coalesce(pl.col("rating_1to5").cast(pl.Float64), "value")
    return scored_answers.filter(value.is_not_null()).sort(value, *place).head(n)


def explained(
    pair: AgentVersion,
    metric: str,
    worst: pl.DataFrame,
    n_answers: int,
    turns: pl.DataFrame,
    *,
    is_whole: bool,
) -> Node:
    """Return a tree with one node per answer in `worst`.

    Args:
        pair: The agent and version.
        metric: The name of the metric.
        worst: The answers, from `worst_answers`.
        n_answers: The total number of scored answers.
        turns: Rows of table turns, including those of the answers.
        is_whole: Show messages in full rather than only their first 400 characters.
    """
    turn_of_place = {(row["conversation_id"], row["turn_index"]): row for row in turns.to_dicts()}
    children = []
    for row in worst.to_dicts():
        turn = turn_of_place.get((row["conversation_id"], row.get("turn_index")))
        value = next(row[name] for name in _ANSWER if row[name] is not None)
        answer_text = f"{value:g}" if isinstance(value, float) else str(value)
        at = (
            row["conversation_id"]
            if row.get("turn_index") is None
            else f"{row['conversation_id']}#{row['turn_index']}"
        )
        children.append(
            Node(f"{answer_text} in {at} by {row['judge']}", tuple(_lines(row, turn, is_whole=is_whole)))
        )
    title = f"{pair.agent_id} under {pair.methodology_version}: {directed(metric)}, {worst.height} worst of {count_of(n_answers, 'answer')}"
    return Node(
        title, () if children else ("no answer is scored as a failure or with a value",), tuple(children)
    )


def _lines(row: Mapping[str, object], turn: Mapping[str, object] | None, *, is_whole: bool) -> list[str]:
    def cut(text: object) -> str:
        line = str(text)
        return line if is_whole or len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"

    lines = []
    if turn is not None:
        lines = [
            f"user: {cut(turn['user_message'] or '(none)')}",
            f"agent: {cut(turn['agent_message'] or '(no text)')}",
        ]
    if row["rationale"]:
        lines.append(f"judge: {cut(row['rationale'])}")
    lines += [f"{name.lower()}: {cut(row[key])}" for key, name in CAUSES.items() if row.get(key)]
    if row["evidence"]:
        lines.append(f"evidence: “{cut(row['evidence'])}”{place_of_quote(row)}")
    return lines
