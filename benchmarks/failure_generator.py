"""Labelled failures for the benchmark of clusters: root causes with Zipf sizes, wrong labels and one-offs."""

import random
from dataclasses import dataclass

from benchmarks.causes import CAUSES, CITIES, LEADS, NAMES, SUBJECTS, TAILS, VERBS

TUNED_ON = tuple(range(10))
REPORTED_ON = (*range(100, 105), *range(200, 215))
"""The second group was first looked at when everything was settled; five seeds alone vary too much for a mean."""
WRONG_LABELS, ONE_OFFS = 0.05, 0.04
LABELS = sorted({(c.label, c.tool is not None) for c in CAUSES})
TOOLS = sorted({c.tool for c in CAUSES if c.tool})


@dataclass(frozen=True)
class Failure:
    """One generated failure; `cause` is the truth, a one-off has a cause of its own."""

    label: str
    tool: str | None
    text: str
    cause: str


def generate(n: int, seed: int, *, exponent: float = 1.0) -> list[Failure]:
    """`n` failures in random order; sizes of the causes fall as 1 / rank^exponent.

    Causes of one label have neighbouring ranks: the largest share a label, so that labels alone tell little.
    """
    rng = random.Random(seed)
    labels = [label for label, _ in LABELS]
    rng.shuffle(labels)
    causes = sorted(range(len(CAUSES)), key=lambda index: (labels.index(CAUSES[index].label), rng.random()))
    weights = [1 / (rank + 1) ** exponent for rank in range(len(causes))]
    n_one_offs = round(n * ONE_OFFS)
    drawn = rng.choices(causes, weights, k=n - n_one_offs)
    failures = [_of_cause(index, rng) for index in drawn]
    failures += [_one_off(i, rng) for i in range(n_one_offs)]
    rng.shuffle(failures)
    return failures


def _of_cause(index: int, rng: random.Random) -> Failure:
    cause = CAUSES[index]
    told = " ".join(rng.choice(slot) for slot in cause.slots)
    text = rng.choice(LEADS) + told + rng.choice(TAILS)
    label, tool = cause.label, cause.tool
    if rng.random() < WRONG_LABELS:  # the judge chose a neighbouring label of the same metric
        same_metric = [name for name, has_tool in LABELS if has_tool == (tool is not None) and name != label]
        label = rng.choice(same_metric)
    return Failure(label, tool, _filled(text, rng), f"cause {index}")


def _one_off(i: int, rng: random.Random) -> Failure:
    label, has_tool = rng.choice(LABELS)
    text = f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(SUBJECTS)}{rng.choice(TAILS)}"
    return Failure(label, rng.choice(TOOLS) if has_tool else None, _filled(text, rng), f"one-off {i}")


def _filled(text: str, rng: random.Random) -> str:
    return text.format(
        n=rng.randint(2, 40),
        id=f"{rng.choice('ABCDEFGH')}{rng.choice('KLMNPQ')}{rng.randint(1000, 99999)}",
        name=rng.choice(NAMES),
        city=rng.choice(CITIES),
        date=f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
        amount=f"${rng.randint(5, 900)}.{rng.randint(10, 99)}",
    )
