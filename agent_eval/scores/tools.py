"""Tool correctness: were the right tools called, with the right arguments, in order, and were the results used?

The score of one interaction from two plain lists, and the table of it. Ground truth comes from
`conversations.expected`; whether results reach the answer is judged elsewhere (`tool_result_utilisation`).
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

import polars as pl
from pydantic import TypeAdapter

from agent_eval.errors import AgentEvalError
from agent_eval.tables import table
from agent_eval.transcripts.hashing import canonical
from agent_eval.transcripts.models import Expected

ASPECTS = ("selection", "parameters", "sequence", "utilisation")
UTILISATION_METRIC = "tool_result_utilisation"
_TOLERANCE = Fraction(1, 10**9)
_CONVERSATION = ("agent_id", "conversation_id")
_ROW = ("methodology_version", *_CONVERSATION)
_EXPECTED = TypeAdapter(tuple[Expected, ...])

Band = Literal["perfect", "good", "moderate", "poor"]


class ToolWeightsError(AgentEvalError, ValueError):
    """Weights or a threshold that give no mean."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Allowed: a threshold from 0 to 1, and finite weights ≥ 0, not all 0, "
            f"for {', '.join(ASPECTS)} (left out = 0)."
        )


class _MalformedCallError(ValueError):
    """A call that cannot be read; ends the scoring of its interaction only."""


@dataclass(frozen=True)
class ToolCorrectness:
    """The tool score of one interaction; each aspect and `overall` lie in 0–1, null where undefined."""

    selection: float | None = None
    parameters: float | None = None
    sequence: float | None = None
    utilisation: float | None = None
    overall: float | None = None
    is_correct: bool | None = None
    status: Literal["scored", "not_applicable", "unscored"] = "scored"
    reason: str | None = None  # why there is no score, or what was wrong

    @property
    def band(self) -> Band | None:
        """1 perfect, ≥ 0.75 good, ≥ 0.50 moderate, below poor; None without a score."""
        if self.overall is None:
            return None
        bounds: tuple[tuple[float, Band], ...] = ((1.0, "perfect"), (0.75, "good"), (0.5, "moderate"))
        return next((band for low, band in bounds if self.overall >= low - float(_TOLERANCE)), "poor")


class _Call(NamedTuple):
    name: str
    arguments: Mapping[str, bytes]  # canonical JSON per parameter


def tool_correctness(
    used: Sequence[Mapping[str, object]],
    expected: Sequence[Mapping[str, object]],
    *,
    sequence_matters: bool = False,
    results_used: bool | None = True,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> ToolCorrectness:
    """Score the tool calls of one interaction against the expected ones.

    selection: Jaccard of the tool names as multisets, case-sensitive. parameters: share of the expected
    parameters that are right, under the best matching of expected to used calls of the same tool; extra
    arguments cost nothing. sequence: share of the matched expected calls that stand in their relative
    order; 1 when order is free. utilisation: 1 or 0 as `results_used` says.
    overall: the weighted mean, exact, so that a perfect trace is 1 under every weighting.

    Expected tools but none used, or none expected but some used: every aspect is 0. None expected and
    none used: not applicable.

    Args:
        used: Calls in order, `{"name": …, "arguments": {…}}`; arguments may be a JSON text.
        expected: Likewise. 1 and 1.0 are equal, true and 1 are not.
        sequence_matters: Whether the order of the expected calls counts.
        results_used: Whether the results reached the answer; None when unknown: utilisation is null, and
            so are overall and is_correct unless its weight is 0 (or the score is 0 by the rule above).
        weights: By aspect, normalised; left out = 0. Default: equal.
        threshold: Correct when overall reaches it, within 1e-9.

    Returns:
        The score. A call that cannot be read gives status 'unscored' with the reason, never an exception.

    Raises:
        ToolWeightsError: If a weight or the threshold is NaN, negative or no number, or all weights are 0.
    """
    shares, limit = _shares(weights), _limit(threshold)
    try:
        calls, wanted = _read(used, "used"), _read(expected, "expected")
    except _MalformedCallError as error:
        return ToolCorrectness(status="unscored", reason=str(error))
    if not calls and not wanted:
        return ToolCorrectness(status="not_applicable", reason="no tools expected and none used")
    if not calls or not wanted:
        reason = "expected tools, none used" if wanted else "no tools expected, some used"
        return ToolCorrectness(0.0, 0.0, 0.0, 0.0, 0.0, limit <= 0, "scored", reason)
    right, pairs = _match(calls, wanted)
    aspects = {
        "selection": _selection(calls, wanted),
        "parameters": _share(right, sum(len(call.arguments) for call in wanted)),
        "sequence": _sequence(calls, wanted, pairs) if sequence_matters else Fraction(1),
        "utilisation": None if results_used is None else Fraction(int(results_used)),
    }
    return _result(aspects, shares, limit)


def tool_correctness_table(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    tool_calls: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    *,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> pl.DataFrame:
    """Tool scores of the admitted conversations that have expected tools.

    Only calls by the agent count. A truth without a turn is held against all calls of its conversation,
    and several for one turn against that turn together. Where results need not be used, utilisation is 1
    by declaration; else it is the effective judgment, for a whole conversation that of all turns with
    calls; null when not judged.

    Returns:
        Table `tool_correctness`: one row per version, agent, conversation and turn, sorted. Equal
        cases of several versions are scored once.

    Raises:
        ToolWeightsError: As for `tool_correctness`.
    """
    admitted = transcripts.filter("is_admitted").select(_ROW)
    truths = _truths(conversations.join(admitted, on=_CONVERSATION, how="semi"))
    calls = tool_calls.filter(pl.col("requestor") == "assistant")
    case = [*_CONVERSATION, "turn_index", "results_used"]
    rows = (
        admitted.join(_keys(truths), on=_CONVERSATION)
        .join(_utilisation(calls, turn_judgments), on=[*_ROW, "turn_index"], how="left", nulls_equal=True)
        .with_columns(
            pl.when(pl.col("results_should_be_used").eq_missing(False))
            .then(pl.lit(True))
            .otherwise(pl.col("results_used"))
            .alias("results_used")
        )
    )
    cases = rows.select(case).unique()
    used = _used(calls.join(cases, on=_CONVERSATION, how="semi"))
    scores = []
    for agent_id, conversation_id, turn_index, results_used in cases.iter_rows():
        truth = truths[agent_id, conversation_id, turn_index]
        of_turn = [
            call for turn, call in used[agent_id, conversation_id] if turn_index is None or turn == turn_index
        ]
        score = tool_correctness(
            of_turn,
            truth.tools or (),
            sequence_matters=truth.tool_sequence_matters,
            results_used=results_used,
            weights=weights,
            threshold=threshold,
        )
        scores.append(vars(score))
    target = table("tool_correctness")
    scored = pl.DataFrame(scores, schema={name: target.schema[name] for name in _score_columns()})
    joined = rows.join(pl.concat([cases, scored], how="horizontal"), on=case, nulls_equal=True)
    return target.conform(joined.select(list(target.schema))).sort(*_ROW, "turn_index", nulls_last=False)


def _score_columns() -> tuple[str, ...]:
    return (*ASPECTS, "overall", "is_correct", "status", "reason")


def _shares(weights: Mapping[str, float] | None) -> dict[str, Fraction]:
    """Exact weights that sum to 1."""
    given = dict.fromkeys(ASPECTS, 1.0) if weights is None else weights
    if unknown := sorted(set(given) - set(ASPECTS)):
        raise ToolWeightsError(f"Weights name {', '.join(map(repr, unknown))}")
    exact = {aspect: _number(f"weight of {aspect}", given.get(aspect, 0)) for aspect in ASPECTS}
    total = sum(exact.values())
    if total == 0:
        raise ToolWeightsError("All weights are 0")
    return {aspect: weight / total for aspect, weight in exact.items()}


def _limit(threshold: float) -> Fraction:
    limit = _number("threshold", threshold)
    if limit > 1:
        raise ToolWeightsError(f"The threshold is {threshold!r}")
    return limit - _TOLERANCE


def _number(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise ToolWeightsError(f"The {name} is {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ToolWeightsError(f"The {name} is {value!r}")
    return Fraction(value)


def _read(calls: object, side: str) -> list[_Call]:
    if not isinstance(calls, list | tuple):
        raise _MalformedCallError(f"{side} calls are a {type(calls).__name__}, expected a list")
    return [_read_call(call, f"{side} call {i}") for i, call in enumerate(calls)]


def _read_call(call: object, where: str) -> _Call:
    """A call with its arguments as canonical JSON; an unreadable one raises and says what is wrong."""
    if not isinstance(call, Mapping):
        raise _MalformedCallError(f"{where} is a {type(call).__name__}, expected an object with a name")
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise _MalformedCallError(f"{where} has no name")
    where = f"{where} ({name})"
    arguments = call.get("arguments")
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments) if arguments.strip() else {}
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping):
            raise _MalformedCallError(f"{where}: arguments are no JSON object")
        return _Call(name, {str(key): canonical(_plain(value)) for key, value in arguments.items()})
    except (json.JSONDecodeError, TypeError) as error:
        raise _MalformedCallError(f"{where}: arguments are not JSON: {error}") from error
    except RecursionError as error:
        raise _MalformedCallError(f"{where}: arguments are nested too deeply") from error


def _plain(value: object) -> object:
    """Whole floats as integers, so that 1 and 1.0 have one text; booleans stay booleans."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _selection(calls: list[_Call], wanted: list[_Call]) -> Fraction:
    have, want = (Counter(call.name for call in side) for side in (calls, wanted))
    return Fraction((have & want).total(), (have | want).total())


def _share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(1)


def _match(calls: list[_Call], wanted: list[_Call]) -> tuple[int, set[tuple[int, int]]]:
    """Best matching of expected to used calls, tool by tool.

    Returns:
        The number of right parameters, and every pair (expected, used) that some best matching holds.
    """
    right, pairs = 0, set[tuple[int, int]]()
    for name in {call.name for call in wanted}:
        rows = [i for i, call in enumerate(wanted) if call.name == name]
        columns = [j for j, call in enumerate(calls) if call.name == name]
        worth = [[_n_right(calls[j], wanted[i]) for j in columns] for i in rows]
        most, best = _best_matchings(worth, len(columns))
        right += most
        pairs |= {(rows[i], columns[j]) for i, j in best}
    return right, pairs


def _n_right(call: _Call, wanted: _Call) -> int:
    return sum(call.arguments.get(key) == value for key, value in wanted.arguments.items())


def _best_matchings(worth: list[list[int]], n_columns: int) -> tuple[int, set[tuple[int, int]]]:
    """The largest total worth of a matching, and every pair that a matching of that worth holds.

    A pair belongs to a best matching when it is tight (its reduced cost is 0) and its column's partner
    can be led back to its row along tight pairs: exchanging along that cycle costs nothing.
    """
    n_rows = len(worth)
    size = max(n_rows, n_columns)
    cost = [[-worth[i][j] if i < n_rows and j < n_columns else 0 for j in range(size)] for i in range(size)]
    row_of, row_price, column_price = _assign(cost)
    most = -sum(cost[row_of[j]][j] for j in range(size))
    tight = [[j for j in range(size) if cost[i][j] == row_price[i] + column_price[j]] for i in range(size)]
    leads_to = defaultdict[int, list[int]](list)
    for i, columns in enumerate(tight):
        for j in columns:
            leads_to[row_of[j]].append(i)
    pairs = set[tuple[int, int]]()
    for i in range(n_rows):
        back = _reach(i, leads_to)
        pairs |= {(i, j) for j in tight[i] if j < n_columns and row_of[j] in back}
    return most, pairs


def _reach(start: int, edges: Mapping[int, list[int]]) -> set[int]:
    """Every node from which `start` is led to, itself included; `edges` lead backwards."""
    seen, todo = {start}, [start]
    while todo:
        for node in edges.get(todo.pop(), ()):
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen


def _assign(cost: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """Cheapest perfect matching of a square matrix (Kuhn–Munkres with prices, cubic).

    Returns:
        The row of each column, and the prices of rows and columns: no pair costs less than its two
        prices, matched pairs cost exactly that.
    """
    size = len(cost)
    row_price, column_price = [0] * size, [0] * (size + 1)
    row_of = [-1] * (size + 1)  # the last column is where each new row starts
    for new_row in range(size):
        row_of[size] = new_row
        came_from, slack = [size] * size, [math.inf] * size
        done = set[int]()
        at = size
        while row_of[at] >= 0:
            done.add(at)
            row = row_of[at]
            for j in range(size):
                reduced = cost[row][j] - row_price[row] - column_price[j]
                if j not in done and reduced < slack[j]:
                    slack[j], came_from[j] = reduced, at
            after = min((j for j in range(size) if j not in done), key=slack.__getitem__)
            step = int(slack[after])
            for j in done:
                row_price[row_of[j]] += step
                column_price[j] -= step
            slack = [rest if j in done else rest - step for j, rest in enumerate(slack)]
            at = after
        while at != size:
            row_of[at] = row_of[came_from[at]]
            at = came_from[at]
    return row_of[:size], row_price, column_price[:size]


def _sequence(calls: list[_Call], wanted: list[_Call], pairs: set[tuple[int, int]]) -> Fraction:
    """Longest chain of pairs that keeps both orders, per expected call that has a partner."""
    have, want = (Counter(call.name for call in side) for side in (calls, wanted))
    n_matched = (have & want).total()
    longest = [0] * (len(calls) + 1)
    for i in range(len(wanted)):
        before = longest
        longest = [0]
        for j in range(len(calls)):
            extended = before[j] + ((i, j) in pairs)
            longest.append(max(longest[j], before[j + 1], extended))
    return Fraction(longest[-1], n_matched) if n_matched else Fraction(0)


def _result(
    aspects: Mapping[str, Fraction | None], shares: Mapping[str, Fraction], limit: Fraction
) -> ToolCorrectness:
    floats = {aspect: None if value is None else float(value) for aspect, value in aspects.items()}
    shown = ToolCorrectness(
        selection=floats["selection"],
        parameters=floats["parameters"],
        sequence=floats["sequence"],
        utilisation=floats["utilisation"],
    )
    counted = [(shares[a], aspects[a]) for a in ASPECTS if shares[a] > 0]
    known = [share * value for share, value in counted if value is not None]
    if len(known) < len(counted):
        return replace(shown, status="unscored", reason="it is not known whether the results were used")
    overall = sum(known, Fraction(0))
    return replace(shown, overall=float(overall), is_correct=overall >= limit)


_Key = tuple[str, str, int | None]


def _truths(conversations: pl.DataFrame) -> dict[_Key, Expected]:
    """Expected tools by agent, conversation and turn."""
    texts = conversations.filter(pl.col("expected").str.contains('"tools"', literal=True))
    truths: dict[_Key, Expected] = {}
    for agent_id, conversation_id, text in texts.select(*_CONVERSATION, "expected").iter_rows():
        for entry in _EXPECTED.validate_json(text):
            if entry.tools is not None:
                key = (agent_id, conversation_id, entry.turn_index)
                truths[key] = _together(truths[key], entry) if key in truths else entry
    return truths


def _together(first: Expected, second: Expected) -> Expected:
    """Two truths about one turn as one: the stricter of what they ask, an unknown before a 'no'."""
    uses = (first.results_should_be_used, second.results_should_be_used)
    return Expected(
        turn_index=first.turn_index,
        tools=(first.tools or ()) + (second.tools or ()),
        tool_sequence_matters=first.tool_sequence_matters or second.tool_sequence_matters,
        results_should_be_used=True if True in uses else None if None in uses else False,
    )


def _keys(truths: Mapping[_Key, Expected]) -> pl.DataFrame:
    rows = [(*key, truth.results_should_be_used) for key, truth in truths.items()]
    schema = {
        "agent_id": pl.String,
        "conversation_id": pl.String,
        "turn_index": pl.Int64,
        "results_should_be_used": pl.Boolean,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _utilisation(calls: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """`results_used` per version and turn, and with a null turn for each conversation as a whole."""
    counts = (pl.col("metric") == UTILISATION_METRIC) & (pl.col("status") == "scored")
    judged = (
        turn_judgments.filter(counts & pl.col("is_effective") & pl.col("value").is_not_null())
        .group_by(*_ROW, "turn_index")
        .agg((pl.col("value") == 1).all().alias("results_used"))
    )
    turns = calls.select(*_CONVERSATION, "turn_index").unique()
    whole = (
        judged.select(_ROW)
        .unique()
        .join(turns, on=_CONVERSATION)
        .join(judged, on=[*_ROW, "turn_index"], how="left")
        .group_by(_ROW)
        .agg(pl.col("results_used").all(ignore_nulls=False))
        .with_columns(pl.lit(None, dtype=pl.Int64).alias("turn_index"))
    )
    return pl.concat([judged, whole.select(judged.columns)])


def _used(calls: pl.DataFrame) -> Mapping[tuple[str, str], list[tuple[int, dict[str, object]]]]:
    """Calls of each conversation in order, with their turns."""
    used = defaultdict[tuple[str, str], list[tuple[int, dict[str, object]]]](list)
    columns = (*_CONVERSATION, "turn_index", "call_index")
    ordered: Iterable[tuple[str, str, int, str, str]] = (
        calls.sort(columns).select(*columns[:3], "name", "arguments").iter_rows()
    )
    for agent_id, conversation_id, turn_index, name, arguments in ordered:
        used[agent_id, conversation_id].append((turn_index, {"name": name, "arguments": arguments}))
    return used
