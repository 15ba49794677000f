"""Score tool correctness: correct tools, arguments and order, and use of the results.

The module scores single interactions from two plain lists and builds the table of scores. Ground truth comes
from `conversations.expected`. A judge decides whether results reach the answer (`tool_result_utilisation`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import polars as pl

from agent_eval.errors import ArgumentError, InputError
from agent_eval.scores.tools.calls import Call, ExpectedCall, MalformedCallError, read_calls, read_expected
from agent_eval.scores.tools.expected_calls import of_agent
from agent_eval.scores.tools.matching import Worth, best_total, in_order
from agent_eval.tables import table
from agent_eval.tables.frames import Conversations, ToolCalls, Transcripts, TurnJudgments
from agent_eval.transcripts.frames import has_ground_truth
from agent_eval.transcripts.models import EXPECTED, Expected

ASPECTS = ("selection", "parameters", "sequence", "utilisation")
UTILISATION_METRIC = "tool_result_utilisation"
UNKNOWN_USE = "it is not known whether the results were used"
_TOLERANCE = Fraction(1, 10**9)
_CONVERSATION = ("agent_id", "conversation_id")
_ROW = ("methodology_version", *_CONVERSATION)

Band = Literal["perfect", "good", "moderate", "poor"]


class ToolWeightsError(InputError, ValueError):
    """Raised for invalid weights or an invalid threshold."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Allowed: a threshold from 0 to 1, and finite weights ≥ 0, not all 0, "
            f"for {', '.join(ASPECTS)} (left out = 0)."
        )


@dataclass(frozen=True)
class ToolCorrectness:
    """Hold the tool score of one interaction; aspects and `overall` are 0–1, or None if undefined."""

    selection: float | None = None
    parameters: float | None = None
    sequence: float | None = None
    utilisation: float | None = None
    overall: float | None = None  # weighted mean over the known aspects
    is_correct: bool | None = None
    status: Literal["scored", "not_applicable", "unscored"] = "scored"
    reason: str | None = None  # why the score is missing, which part is unknown, or which calls were wrong
    known_aspects: tuple[str, ...] = ()  # weighted aspects that `overall` includes
    unknown_aspects: tuple[str, ...] = ()  # weighted aspects that are unknown

    @property
    def band(self) -> Band | None:
        """Return the band of `overall`: perfect (1), good (≥ 0.75), moderate (≥ 0.50) or poor; None if unscored."""
        if self.overall is None:
            return None
        bounds: tuple[tuple[float, Band], ...] = ((1.0, "perfect"), (0.75, "good"), (0.5, "moderate"))
        return next((band for low, band in bounds if self.overall >= low - float(_TOLERANCE)), "poor")


def tool_correctness(
    used: Sequence[Mapping[str, object]],
    expected: Sequence[Mapping[str, object]],
    *,
    sequence_matters: bool = False,
    results_used: bool | None = True,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> ToolCorrectness:
    """Score the tool calls of one interaction against the expected calls.

    - selection: the Jaccard index of the tool names as multisets, case-sensitive.
    - parameters: the share of correct parameters among the expected ones, under the best matching of expected to
      used calls of the same tool. Extra arguments are ignored unless the expected call has `"match": "exact"`;
      each extra argument then cancels a correct one.
    - sequence: the share of matched expected calls that are in their relative order, under the best matching
      that keeps the most order; 1 if order does not matter.
    - utilisation: 1 or 0 according to `results_used`.
    - overall: the weighted mean over the known aspects, computed exactly, so that a perfect trace scores 1 under
      any weights.
    - is_correct: whether overall reaches the threshold. If a weighted aspect is unknown, the value is False if the
      threshold cannot be reached even with perfect unknown aspects, and None otherwise.

    If tools were expected but none used, or used but none expected, every aspect is 0. If tools were neither
    expected nor used, the status is not applicable.

    Args:
        used: Calls in order, of the form `{"name": …, "arguments": {…}}`; arguments can be JSON text.
        expected: Expected calls in the same form, with `"match"` and `"compare"` as in `scores.tools.calls`
            (ignore, regex, tolerance or subset).
        sequence_matters: Whether the order of the expected calls counts.
        results_used: Whether the results reached the answer. If this is None, utilisation is unknown, and
            overall is the mean over the other aspects (None if only utilisation has a weight).
        weights: Weights by aspect, which are normalised; a missing aspect has weight 0. Default: equal weights.
        threshold: The minimum of `overall` for a correct interaction, within 1e-9.

    Returns:
        The score. An unreadable call gives status 'unscored' with the reason and does not raise an exception.

    Raises:
        ArgumentError: If `used` or `expected` is not a list, or `weights` is not a dict.
        ToolWeightsError: If a weight or the threshold is NaN, negative or not a number, or all weights are 0.
    """
    for name, calls_given in (("used", used), ("expected", expected)):
        if not isinstance(calls_given, list | tuple):
            raise ArgumentError(name, calls_given, "a list of calls")
    if weights is not None and not isinstance(weights, Mapping):
        raise ArgumentError("weights", weights, f"a dict with weights of {', '.join(ASPECTS)}")
    shares, limit = _shares(weights), _limit(threshold)
    try:
        calls, wanted = read_calls(used), read_expected(expected)
    except MalformedCallError as error:
        return ToolCorrectness(status="unscored", reason=str(error))
    if not calls and not wanted:
        return ToolCorrectness(status="not_applicable", reason="no tools expected and none used")
    if not calls or not wanted:
        reason = "expected tools, none used" if wanted else "no tools expected, some used"
        weighted = tuple(aspect for aspect in ASPECTS if shares[aspect] > 0)
        return ToolCorrectness(0.0, 0.0, 0.0, 0.0, 0.0, limit <= 0, "scored", reason, weighted)
    groups = _by_tool(calls, wanted)
    right = sum(best_total(worth) for _, _, worth in groups)
    aspects = {
        "selection": _selection(calls, wanted),
        "parameters": _share(right, sum(len(call.asked) for call in wanted)),
        "sequence": _sequence(groups) if sequence_matters else Fraction(1),
        "utilisation": None if results_used is None else Fraction(int(results_used)),
    }
    notes = [call.note for call in (*calls, *wanted) if call.note]
    return _result(aspects, shares, limit, notes)


def tool_correctness_table(
    transcripts: Transcripts,
    conversations: Conversations,
    tool_calls: ToolCalls,
    turn_judgments: TurnJudgments,
    *,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> pl.DataFrame:
    """Return the tool scores of admitted conversations that have expected tools.

    Only calls that the agent makes or should make count (see `expected_calls`). An entry of `expected` without a
    turn is compared with all calls of the conversation; several entries for one turn are compared together. If
    an entry declares that results need not be used, utilisation is 1. Otherwise utilisation is the effective
    judgment of the turn, or of all turns with calls for a whole conversation; it is null if not judged.

    Returns:
        Table `tool_correctness`: one row per version, agent, conversation and turn, sorted. Equal cases of
        several versions are scored once.

    Raises:
        ToolWeightsError: As for `tool_correctness`.
    """
    _shares(weights), _limit(threshold)  # raises even if there are no rows to score
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
    return target.selected(joined).sort(*_ROW, "turn_index", nulls_last=False)


def _score_columns() -> tuple[str, ...]:
    return (*ASPECTS, "overall", "is_correct", "known_aspects", "unknown_aspects", "status", "reason")


def _shares(weights: Mapping[str, float] | None) -> dict[str, Fraction]:
    """Return the exact weights, normalised to sum to 1."""
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


def _selection(calls: Sequence[Call], wanted: Sequence[ExpectedCall]) -> Fraction:
    have, want = (Counter(call.name for call in side) for side in (calls, wanted))
    return Fraction((have & want).total(), (have | want).total())


def _share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(1)


_Groups = list[tuple[list[int], list[int], Worth]]


def _by_tool(calls: Sequence[Call], wanted: Sequence[ExpectedCall]) -> _Groups:
    """Return call positions on both sides and numbers of correct arguments, for each tool expected and used."""
    groups: _Groups = []
    for name in sorted({call.name for call in wanted}):
        rows = [i for i, call in enumerate(wanted) if call.name == name]
        columns = [j for j, call in enumerate(calls) if call.name == name]
        if columns:
            groups.append((rows, columns, [[wanted[i].n_right(calls[j]) for j in columns] for i in rows]))
    return groups


def _sequence(groups: _Groups) -> Fraction:
    """Return the share of matched expected calls that are in the longest chain in order on both sides."""
    n_matched = sum(min(len(rows), len(columns)) for rows, columns, _ in groups)
    return Fraction(len(in_order(groups)), n_matched) if n_matched else Fraction(0)


def _result(
    aspects: Mapping[str, Fraction | None],
    shares: Mapping[str, Fraction],
    limit: Fraction,
    notes: Sequence[str],
) -> ToolCorrectness:
    floats = {aspect: None if value is None else float(value) for aspect, value in aspects.items()}
    weighted = [(aspect, shares[aspect], aspects[aspect]) for aspect in ASPECTS if shares[aspect] > 0]
    known = [(aspect, share, value) for aspect, share, value in weighted if value is not None]
    unknown = tuple(aspect for aspect, _, value in weighted if value is None)
    shown = ToolCorrectness(
        selection=floats["selection"],
        parameters=floats["parameters"],
        sequence=floats["sequence"],
        utilisation=floats["utilisation"],
        known_aspects=tuple(aspect for aspect, _, _ in known),
        unknown_aspects=unknown,
        reason="; ".join([*([UNKNOWN_USE] if unknown else []), *notes]) or None,
    )
    if not known:
        return replace(shown, status="unscored")
    total = sum((share * value for _, share, value in known), Fraction(0))
    weight = sum((share for _, share, _ in known), Fraction(0))
    at_best = total + 1 - weight  # with every unknown aspect perfect
    is_correct = None if unknown and at_best >= limit else at_best >= limit
    return replace(shown, overall=float(total / weight), is_correct=is_correct)


_Key = tuple[str, str, int | None]


def _truths(conversations: pl.DataFrame) -> dict[_Key, Expected]:
    """Return the tools that the agent is expected to call, by agent, conversation and turn."""
    texts = conversations.filter(has_ground_truth())
    truths: dict[_Key, Expected] = {}
    columns = (*_CONVERSATION, "n_user_messages", "expected")
    for agent_id, conversation_id, n_users, text in texts.select(columns).iter_rows():
        for entry in EXPECTED.validate_json(text):
            if (own := of_agent(entry, has_user=n_users != 0)) is not None:
                key = (agent_id, conversation_id, own.turn_index)
                truths[key] = _merge_expectations(truths[key], own) if key in truths else own
    return truths


def _merge_expectations(first: Expected, second: Expected) -> Expected:
    """Merge two entries for one turn by their stricter requirements, with None stricter than False."""
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
    """Return `results_used` per version and turn, and per whole conversation with a null turn."""
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
    """Return the calls of each conversation in order, with their turns."""
    used = defaultdict[tuple[str, str], list[tuple[int, dict[str, object]]]](list)
    columns = (*_CONVERSATION, "turn_index", "call_index")
    ordered: Iterable[tuple[str, str, int, str, str]] = (
        calls.sort(columns).select(*columns[:3], "name", "arguments").iter_rows()
    )
    for agent_id, conversation_id, turn_index, name, arguments in ordered:
        used[agent_id, conversation_id].append((turn_index, {"name": name, "arguments": arguments}))
    return used
