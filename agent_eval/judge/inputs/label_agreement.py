"""Compute the agreement of judges' labels with those of people, or with outcomes, on the same parts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from agent_eval.judge.inputs.human_ratings import JUDGE, Target
from agent_eval.judge.inputs.labels import OUTCOME, Label
from agent_eval.scores.statistics.agreement import (
    Answer,
    Pairs,
    cohen_kappa,
    correlations,
    quadratic_kappa,
    raw_agreement,
)

PEOPLE = "people"
_NUMBERS = ("share_equal", "kappa", "kappa_low", "kappa_high", "pearson", "spearman", "kendall")
SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("metric", "judge", "against"), pl.String),
        **dict.fromkeys(("n_labels", "n_unread", "n", "n_equal"), pl.Int64),
        **dict.fromkeys(_NUMBERS, pl.Float64),
    }
)


def label_agreement(labels: Iterable[Label], targets: Mapping[str, Target]) -> pl.DataFrame:
    """Return the agreement of each judge with people or with an outcome, per metric.

    The columns are: `n_labels`, the number of labels by the judge; `n_unread`, the number of these that could not be
    read; `n`, the number of pairs of labels on the same part; `n_equal` and `share_equal` (0–1), the number and share
    of equal pairs; `kappa` with its 95 % interval (quadratic weights for ratings from 1 to 5, else unweighted); and
    correlation coefficients. If a rater or judge has several labels on a part, the last one counts.

    The figures are null without pairs. The columns of equality and kappa are also null for numbers outside the scale of
    the metric, and the correlations for labels and for metrics with two values.

    Args:
        labels: Labels from any number of files. Labels on the same part are paired by their ids.
        targets: Targets by name, from `targets_of`.
    """
    by_judge: dict[tuple[str, str], dict[tuple[str | None, ...], Label]] = defaultdict(dict)
    reference: dict[tuple[str, tuple[str | None, ...]], dict[str, Label]] = defaultdict(dict)
    for label in labels:
        role = label.cells.get("role")
        if role == JUDGE:
            by_judge[label.target, label.who][label.part] = label
        elif label.answer is not None:
            reference[label.who if role == OUTCOME else PEOPLE, label.part][label.who] = label
    others = sorted({against for against, _ in reference}, key=lambda against: (against != PEOPLE, against))
    rows: list[dict[str, object]] = []
    for (metric, judge), of_parts in sorted(by_judge.items(), key=lambda item: item[0]):
        part_labels = of_parts.values()
        counts = {"metric": metric, "judge": judge, "n_labels": len(part_labels)}
        counts["n_unread"] = sum(label.answer is None for label in part_labels)
        pairs: dict[str | None, list[tuple[Label, Label]]] = {
            against: [
                (one, other)
                for one in part_labels
                if one.answer
                for other in reference.get((against, one.part), {}).values()
            ]
            for against in others
        }
        pairs_by_reference = {against: both for against, both in pairs.items() if both} or {None: []}
        rows += [
            counts | {"against": against} | _figures(both, targets.get(metric))
            for against, both in pairs_by_reference.items()
        ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _figures(both: Sequence[tuple[Label, Label]], target: Target | None) -> dict[str, object]:
    if not both:
        return {"n": 0}
    judge, human = ([_answer(pair[side]) for pair in both] for side in (0, 1))
    pairs = Pairs(judge, human, [one.cluster or one.cells.get("conversation_id") for one, _ in both])
    is_numeric = not any(isinstance(answer, str) for answer in (*judge, *human))
    figures: dict[str, object] = {"n": len(both)}
    if not is_numeric or (target and all(_is_on_scale(answer, target) for answer in (*judge, *human))):
        is_rating = is_numeric and target is not None and target.answer == "rating_1to5"
        kappa = quadratic_kappa(pairs) if is_rating else cohen_kappa(pairs)
        figures |= dict(zip(("kappa", "kappa_low", "kappa_high"), kappa, strict=True))
        figures["n_equal"] = sum(a == b for a, b in zip(judge, human, strict=True))
        figures["share_equal"] = raw_agreement(pairs).value
    if is_numeric and not (target and target.is_binary):
        figures |= correlations(pairs)._asdict()
    return figures


def _is_on_scale(answer: Answer, target: Target) -> bool:
    if isinstance(answer, str) or target.answer == "label":
        return target.answer == "label"
    low, high = target.scale
    return low <= answer <= high and (
        answer.is_integer() or not (target.is_binary or target.answer == "rating_1to5")
    )


def _answer(label: Label) -> Answer:
    try:
        number = float(label.answer or "")
    except ValueError:
        number = math.nan
    return number if math.isfinite(number) else label.answer or ""
