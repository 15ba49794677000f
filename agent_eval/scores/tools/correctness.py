"""Score tool correctness: correct tools, arguments and order, and use of the results.

The module scores single interactions from two plain lists and builds the table of scores. Ground truth comes
from `conversations.expected`. A judge decides whether results reach the answer (`tool_result_utilisation`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Literal, get_args

import polars as pl

from agent_eval.errors import ArgumentError, InvalidValueError
from agent_eval.scores.tools.calls import Call, ExpectedCall, MalformedCallError, read_calls, read_expected
from agent_eval.scores.tools.expected_calls import of_agent
from agent_eval.scores.tools.fair_forge import FAIR_FORGE, UsedStep, fair_forge_aspects, steps_of
from agent_eval.scores.tools.matching import Worth, best_choices, best_total, longest_chain
from agent_eval.tables import table
from agent_eval.tables.frames import Conversations, ToolCalls, Transcripts, TurnJudgments
from agent_eval.transcripts.frames import has_ground_truth
from agent_eval.transcripts.models import EXPECTED, Expected

ASPECTS = ("selection", "parameters", "sequence", "utilisation")
UTILISATION_METRIC = "tool_result_utilisation"
UNKNOWN_USE = "it is not known whether the results were used"
NOT_USED = "the profile fair-forge gives no score if no tool was used"
_TOLERANCE = Fraction(1, 10**9)
_MOST_CHOICES = (
    64  # of the calls that stand for repeated ones; beyond it, the order of these tools is not credited
)
_CONVERSATION = ("agent_id", "conversation_id")
_ROW = ("methodology_version", *_CONVERSATION)

Band = Literal["perfect", "good", "moderate", "poor"]
Profile = Literal["standard", "fair-forge"]


def _invalid_weights(problem: str) -> InvalidValueError:
    return InvalidValueError(
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
    sequence_matters: bool | None = None,
    results_used: bool | None = True,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    profile: Profile = "standard",
) -> ToolCorrectness:
    """Score the tool calls of one interaction against the expected calls.

    - selection: the Jaccard index of the tool names as multisets, case-sensitive.
    - parameters: the share of correct parameters among the expected ones, under the best matching of expected to
      used calls of the same tool. A call without compared parameters counts as one, and a call that was not made is
      wrong in all of them. Extra arguments are ignored unless the expected call has `"match": "exact"`; each extra
      argument then cancels a correct one.
    - sequence: the share of expected calls that were made in their relative order, or that were made at all if
      order does not matter. A used call is paired with the expected calls that it satisfies or fits best. If a tool was
      called more often than expected and it is open which calls were the expected ones, the least favourable choice
      counts.
    - utilisation: 1 or 0 according to `results_used`; 0 if no expected tool was called.
    - overall: the weighted mean over the known aspects, computed exactly, so that a perfect trace scores 1 under
      any weights.
    - is_correct: whether overall reaches the threshold. If a weighted aspect is unknown, the value is False if the
      threshold cannot be reached even with perfect unknown aspects, and None otherwise.

    If tools were expected but none used, or used but none expected, every aspect is 0. If tools were neither
    expected nor used, the status is not applicable. A call never raises an aspect if its tool was not
    expected, or if it is beyond the expected number and gets no more parameters right; nor does the loss of a call of a
    tool that was not called more often than expected. If it was, dropping one of its calls can raise `selection`, even
    if it was the right one, because every further call costs `selection`.

    Args:
        used: Calls in order, of the form `{"name": …, "arguments": {…}}`; arguments can be JSON text.
        expected: Expected calls in the same form, with `"match"` and `"compare"` as in `scores.tools.calls`
            (ignore, regex, tolerance or subset).
        sequence_matters: Whether the order of the expected calls counts. By default, it counts only in the profile
            `fair-forge`.
        results_used: Whether the results reached the answer. If this is None, utilisation is unknown, and
            overall is the mean over the other aspects (None if only utilisation has a weight).
        weights: Weights by aspect, which are normalised; a missing aspect has weight 0. Default: equal weights.
        threshold: The minimum of `overall` for a correct interaction, within 1e-9.
        profile: `standard`, or `fair-forge` for the figures of that tool; see docs/howto/from-fair-forge.md.

    Returns:
        The score. An unreadable call gives status 'unscored' with the reason and does not raise an exception.

    Raises:
        ArgumentError: If `used` or `expected` is not a list, `weights` is not a dict, or the profile is unknown.
        InvalidValueError: If a weight or the threshold is NaN, negative or not a number, or all weights are 0.
    """
    if profile not in get_args(Profile):
        raise ArgumentError("profile", profile, f"one of {', '.join(get_args(Profile))}")
    for name, calls_given in (("used", used), ("expected", expected)):
        if not isinstance(calls_given, list | tuple):
            raise ArgumentError(name, calls_given, "a list of calls")
    if weights is not None and not isinstance(weights, Mapping):
        raise ArgumentError("weights", weights, f"a dict with weights of {', '.join(ASPECTS)}")
    shares, limit = _shares(weights), _limit(threshold)
    try:
        calls, expected_calls = read_calls(used), read_expected(expected)
    except MalformedCallError as error:
        return ToolCorrectness(status="unscored", reason=str(error))
    if not calls and not expected_calls:
        return ToolCorrectness(status="not_applicable", reason="no tools expected and none used")
    if profile == FAIR_FORGE:
        return _fair_forge(
            steps_of(calls, used),
            steps_of(expected_calls, expected),
            sequence_matters=sequence_matters is not False,
            results_used=bool(results_used),
            weights=weights,
            threshold=threshold,
        )
    if not calls or not expected_calls:
        reason = "expected tools, none used" if expected_calls else "no tools expected, some used"
        weighted = tuple(aspect for aspect in ASPECTS if shares[aspect] > 0)
        return ToolCorrectness(0.0, 0.0, 0.0, 0.0, 0.0, limit <= 0, "scored", reason, weighted)
    groups = _by_tool(calls, expected_calls)
    right = sum(best_total(worth) for _, _, worth in groups)
    n_in_order = _n_in_order(groups, expected_calls) if sequence_matters else _n_made(groups)
    is_unknown = results_used is None and bool(groups)
    aspects = {
        "selection": _selection(calls, expected_calls),
        "parameters": Fraction(right, sum(call.weight for call in expected_calls)),
        "sequence": Fraction(n_in_order, len(expected_calls)),
        "utilisation": None if is_unknown else Fraction(int(bool(results_used) and bool(groups))),
    }
    notes = [call.note for call in (*calls, *expected_calls) if call.note]
    return _result(aspects, shares, limit, notes)


def tool_correctness_table(
    transcripts: Transcripts,
    conversations: Conversations,
    tool_calls: ToolCalls,
    turn_judgments: TurnJudgments,
    *,
    weights: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    profile: Profile = "standard",
) -> pl.DataFrame:
    """Return the tool scores of admitted conversations that have expected tools.

    Only calls that the agent makes or should make count (see `expected_calls`). An entry of `expected` without a
    turn is compared with all calls of the conversation; several entries for one turn are compared together. If
    an entry declares that results need not be used, utilisation is 1. Otherwise utilisation is the effective
    judgment of the turn, or of all turns with calls for a whole conversation, else the declaration `results_used`; it
    is null if it is neither judged nor declared. Under the profile `fair-forge`, only declarations count.

    Returns:
        Table `tool_correctness`: one row per version, agent, conversation and turn, sorted. Equal cases of
        several versions are scored once.

    Raises:
        InvalidValueError: As for `tool_correctness`.
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
            .otherwise(pl.coalesce(*([] if profile == FAIR_FORGE else ["results_used"]), "declared_used"))
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
            profile=profile,
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
    weight_of_aspect = dict.fromkeys(ASPECTS, 1.0) if weights is None else weights
    if unknown := sorted(set(weight_of_aspect) - set(ASPECTS)):
        raise _invalid_weights(f"Weights name {', '.join(map(repr, unknown))}")
    exact = {aspect: _number(f"weight of {aspect}", weight_of_aspect.get(aspect, 0)) for aspect in ASPECTS}
    total = sum(exact.values())
    if total == 0:
        raise _invalid_weights("All weights are 0")
    return {aspect: weight / total for aspect, weight in exact.items()}


def _limit(threshold: float) -> Fraction:
    limit = _number("threshold", threshold)
    if limit > 1:
        raise _invalid_weights(f"The threshold is {threshold!r}")
    return limit - _TOLERANCE


def _number(name: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise _invalid_weights(f"The {name} is {value!r}")
    if not math.isfinite(value) or value < 0:
        raise _invalid_weights(f"The {name} is {value!r}")
    return Fraction(value)


def _selection(calls: Sequence[Call], expected: Sequence[ExpectedCall]) -> Fraction:
    have, want = (Counter(call.name for call in side) for side in (calls, expected))
    return Fraction((have & want).total(), (have | want).total())


_Groups = list[tuple[list[int], list[int], Worth]]


def _by_tool(calls: Sequence[Call], expected: Sequence[ExpectedCall]) -> _Groups:
    """Return call positions on both sides and numbers of correct arguments, for each tool expected and used."""
    groups: _Groups = []
    for name in sorted({call.name for call in expected}):
        rows = [i for i, call in enumerate(expected) if call.name == name]
        columns = [j for j, call in enumerate(calls) if call.name == name]
        if columns:
            groups.append((rows, columns, [[expected[i].n_right(calls[j]) for j in columns] for i in rows]))
    return groups


def _n_made(groups: _Groups) -> int:
    return sum(min(len(rows), len(columns)) for rows, columns, _ in groups)


def _n_in_order(groups: _Groups, expected: Sequence[ExpectedCall]) -> int:
    """Return the number of expected calls in the longest chain that is in order on both sides.

    Which pairs can be in the chain depends on no other call, and of a tool that was called too often, the choice of
    calls with the shortest chain counts. Otherwise a wrong call more, or an expected one less, could raise the number.
    """
    pairs = [_may_stand_for(*group, expected) for group in groups]
    n_choices = math.prod(
        math.comb(len(columns), len(rows)) for rows, columns, _ in groups if len(columns) > len(rows)
    )
    choices = [
        [set(columns)]
        if len(columns) <= len(rows)
        else [{columns[j] for j in columns_of_choice} for columns_of_choice in best_choices(worth)]
        if n_choices <= _MOST_CHOICES
        else [set[int]()]
        for rows, columns, worth in groups
    ]
    return min(
        longest_chain(
            pair
            for of_tool, columns_of_choice in zip(pairs, choice, strict=True)
            for pair in of_tool
            if pair[1] in columns_of_choice
        )
        for choice in product(*choices)
    )


def _may_stand_for(
    rows: Sequence[int], columns: Sequence[int], worth: Worth, expected: Sequence[ExpectedCall]
) -> list[tuple[int, int]]:
    """Return the pairs of an expected and a used call in which the used call is right, or fits no other one better."""
    best = [max(values) for values in zip(*worth, strict=True)]
    return [
        (i, j)
        for i, row in zip(rows, worth, strict=True)
        for j, value, most in zip(columns, row, best, strict=True)
        if value in (most, expected[i].weight)
    ]


def _fair_forge(
    used: Sequence[UsedStep],
    expected: Sequence[UsedStep],
    *,
    sequence_matters: bool,
    results_used: bool,
    weights: Mapping[str, float] | None,
    threshold: float,
) -> ToolCorrectness:
    """Return the score of the profile; the weights are not normalised, as in the source."""
    shares, limit = _shares(weights), _limit(threshold)
    scale = sum(map(Fraction, (weights or dict.fromkeys(ASPECTS, 0.25)).values()))
    if scale > 1 + _TOLERANCE:
        raise _invalid_weights(
            f"The weights sum to {float(scale):g}; the profile {FAIR_FORGE} does not normalise them, so that the sum must be at most 1"
        )
    if not used:
        return ToolCorrectness(status="unscored", reason=NOT_USED)
    aspects = fair_forge_aspects(used, expected, sequence_matters=sequence_matters, results_used=results_used)
    score = _result(aspects, shares, limit, [])
    overall = sum((shares[aspect] * value for aspect, value in aspects.items()), Fraction(0)) * min(scale, 1)
    return replace(score, overall=float(overall), is_correct=overall >= limit)


def _result(
    aspects: Mapping[str, Fraction | None],
    shares: Mapping[str, Fraction],
    limit: Fraction,
    notes: Sequence[str],
) -> ToolCorrectness:
    floats = {aspect: None if value is None else float(value) for aspect, value in aspects.items()}
    weighted = [(aspect, shares[aspect], aspects[aspect]) for aspect in ASPECTS if shares[aspect] > 0]
    known_parts = [(aspect, share, value) for aspect, share, value in weighted if value is not None]
    unknown = tuple(aspect for aspect, _, value in weighted if value is None)
    result = ToolCorrectness(
        selection=floats["selection"],
        parameters=floats["parameters"],
        sequence=floats["sequence"],
        utilisation=floats["utilisation"],
        known_aspects=tuple(aspect for aspect, _, _ in known_parts),
        unknown_aspects=unknown,
        reason="; ".join([*([UNKNOWN_USE] if unknown else []), *notes]) or None,
    )
    if not known_parts:
        return replace(result, status="unscored")
    total = sum((share * value for _, share, value in known_parts), Fraction(0))
    weight = sum((share for _, share, _ in known_parts), Fraction(0))
    at_best = total + 1 - weight  # with every unknown aspect perfect
    is_correct = None if unknown and at_best >= limit else at_best >= limit
    return replace(result, overall=float(total / weight), is_correct=is_correct)


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
    declared = (first.results_used, second.results_used)
    return Expected(
        turn_index=first.turn_index,
        tools=(first.tools or ()) + (second.tools or ()),
        tool_sequence_matters=first.tool_sequence_matters or second.tool_sequence_matters,
        results_should_be_used=True if True in uses else None if None in uses else False,
        results_used=False if False in declared else None if None in declared else True,
    )


def _keys(truths: Mapping[_Key, Expected]) -> pl.DataFrame:
    rows = [(*key, truth.results_should_be_used, truth.results_used) for key, truth in truths.items()]
    schema = {
        "agent_id": pl.String,
        "conversation_id": pl.String,
        "turn_index": pl.Int64,
        "results_should_be_used": pl.Boolean,
        "declared_used": pl.Boolean,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _utilisation(calls: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return `results_used` per version and turn, and per whole conversation with a null turn."""
    counts = (pl.col("metric") == UTILISATION_METRIC) & (pl.col("status") == "scored")
    use_of_results = (
        turn_judgments.filter(counts & pl.col("is_effective") & pl.col("value").is_not_null())
        .group_by(*_ROW, "turn_index")
        .agg((pl.col("value") == 1).all().alias("results_used"))
    )
    turns = calls.select(*_CONVERSATION, "turn_index").unique()
    whole = (
        use_of_results.select(_ROW)
        .unique()
        .join(turns, on=_CONVERSATION)
        .join(use_of_results, on=[*_ROW, "turn_index"], how="left")
        .group_by(_ROW)
        .agg(pl.col("results_used").all(ignore_nulls=False))
        .with_columns(pl.lit(None, dtype=pl.Int64).alias("turn_index"))
    )
    return pl.concat([use_of_results, whole.select(use_of_results.columns)])


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
