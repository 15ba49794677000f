"""Draw a stratified sample of parts for a rating sheet that oversamples borderline parts and disagreements.

A stratum consists of the parts with the same metric, agent, answer of the judge and borderline status. Parts are drawn
at random within each stratum. The weight of a label is the number of parts in its stratum divided by
the number of drawn ones, so that weighted figures are unbiased estimates for all parts.
"""

import base64
import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent_eval.formats.hashing import canonical, digest
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS

Place = tuple[str, str, int | None, str]
"""Agent, conversation, turn (None for the whole conversation) and metric."""
SEALED = "s1."
"""Prefix of a sealed cell."""
_SAMPLING = struct.Struct("<d6s")  # weight, and the 12 hex digits of the stratum
_CHECK = 4  # bytes
_FEWEST = 2  # labels of each answer of the judge
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Candidate:
    """Represent a part that can be drawn. The judge's `answer` only determines the stratum and is not shown."""

    place: Place
    answer: str
    is_borderline: bool  # True if judges differ or the answer is in the middle of the scale

    @property
    def metric(self) -> str:
        """Return the metric that the part is labelled on."""
        return self.place[3]


@dataclass(frozen=True)
class Drawn:
    """Represent a drawn part with its sampling weight. `stratum` is an id that does not reveal the judge's answer."""

    place: Place
    weight: float
    stratum: str


def drawn_parts(candidates: Iterable[Candidate], n: int, *, seed: str = "") -> list[Drawn]:
    """Return a sample of `n` parts in random order, or all candidates if there are fewer.

    The sample depends only on the candidates, `n` and the seed. The metrics get equal shares, and within a metric the
    agents, since labels correct the rate of their own agent. Of an agent, every stratum gets two parts. Half of the
    remaining parts are drawn from borderline strata, the others from all strata in proportion to their size. Strata are
    merged, and then agents, where there are too few parts to draw (see `n_for_all`).
    """
    sampled_parts = []
    of_metric = _grouped(candidates, lambda one: one.metric)
    for name, quota in _quotas(of_metric, n, seed):
        of_agent = _grouped(of_metric[name], lambda one: one.place[0])
        if quota < len(of_agent) * FEWEST_CLUSTERS:
            of_agent = {"": of_metric[name]}
        for agent, own_quota in _quotas(of_agent, quota, seed):
            sampled_parts += _of_agent((name, agent), of_agent[agent], own_quota, seed)
    return sorted(sampled_parts, key=lambda part: digest("order", seed, *part.place))


def n_for_all(candidates: Iterable[Candidate]) -> int:
    """Return how many parts must be drawn for two of each answer of the judge, and five, of each metric and agent."""
    of_pair = _grouped(candidates, lambda one: (one.metric, one.place[0]))
    needed = [
        max(FEWEST_CLUSTERS, sum(min(_FEWEST, n) for n in Counter(one.answer for one in parts).values()))
        for parts in of_pair.values()
    ]
    n_agents = max(Counter(metric for metric, _ in of_pair).values(), default=0)
    return max(needed, default=0) * n_agents * len({metric for metric, _ in of_pair})


def _grouped(
    candidates: Iterable[Candidate], key: Callable[[Candidate], _Key]
) -> dict[_Key, list[Candidate]]:
    groups: dict[_Key, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[key(candidate)].append(candidate)
    return groups


def _quotas(groups: Mapping[str, Sequence[Candidate]], n: int, seed: str) -> list[tuple[str, int]]:
    names = sorted(groups, key=lambda name: digest("sheet", seed, name))
    return [*zip(names, _shared_out(n, [len(groups[name]) for name in names]), strict=True)]


def sheets(parts: Sequence[Drawn], n: int, n_raters: int) -> list[list[Drawn]]:
    """Return one sheet of `n` parts per rater. A third of the `n` parts are on all sheets, the others on one.

    Args:
        parts: The drawn parts. If there are fewer than `n_parts` returns, the sheets are shorter.
        n: Number of parts per sheet.
        n_raters: Number of raters. A single rater gets all parts.
    """
    shared = parts[: n // 3 if n_raters > 1 else 0]
    rest = parts[len(shared) :]
    return [[*shared, *rest[i::n_raters]] for i in range(n_raters)]


def n_parts(n: int, n_raters: int) -> int:
    """Return how many parts must be drawn for `n_raters` sheets of `n` parts."""
    return n if n_raters == 1 else n // 3 + n_raters * (n - n // 3)


def sealed_sampling(part: Drawn) -> str:
    """Return the weight and stratum of a part as one cell of a sheet.

    Parts with the same answer of the judge share a stratum and a weight. The sealed cells of two parts have nothing in
    common, so that a rater does not see which parts belong together. The cell is not a secret: `opened_sampling` needs
    no key.
    """
    data = _SAMPLING.pack(part.weight, bytes.fromhex(part.stratum))
    return SEALED + base64.urlsafe_b64encode(_masked(data, part.place) + _check(data, part.place)).decode()


def opened_sampling(cell: str, place: Place) -> tuple[float, str]:
    """Return the weight and stratum of a sealed cell.

    Raises:
        ValueError: If the cell is damaged, or was made for another part.
    """
    try:
        sealed = base64.b64decode(cell.removeprefix(SEALED), altchars=b"-_", validate=True)
        weight, stratum = _SAMPLING.unpack(data := _masked(sealed[:-_CHECK], place))
    except (ValueError, struct.error):
        data = b""
    if not data or sealed[-_CHECK:] != _check(data, place):
        raise ValueError(
            "the cell 'stratum' does not belong to this part; copy the line from the sheet and change the answer only"
        )
    return weight, stratum.hex()


def _masked(data: bytes, place: Place) -> bytes:
    mask = _hash("mask", place, len(data))
    return bytes(a ^ b for a, b in zip(data, mask, strict=True))


def _check(data: bytes, place: Place) -> bytes:
    return _hash(data.hex(), place, _CHECK)


def _hash(purpose: str, place: Place, size: int) -> bytes:
    """Return `size` bytes for a part, whose names may have lost outer spaces as cells of a CSV file do."""
    names = [part.strip() if isinstance(part, str) else part for part in place]
    return hashlib.blake2b(canonical([purpose, *names]), digest_size=size).digest()


def _of_agent(name: tuple[str, str], parts: Sequence[Candidate], quota: int, seed: str) -> list[Drawn]:
    if not quota:
        return []
    strata = _strata(parts, quota)
    sizes = [len(stratum) for stratum in strata]
    is_first = [all(part.is_borderline for part in stratum) for stratum in strata]
    counts = [min(_FEWEST, size) if len(strata) > 1 else 0 for size in sizes]
    n_first = (quota - sum(counts)) // 2 if any(is_first) else 0
    room = [size - c if first else 0 for size, c, first in zip(sizes, counts, is_first, strict=True)]
    counts = [c + more for c, more in zip(counts, _shared_out(n_first, room), strict=True)]
    room = [size - c for size, c in zip(sizes, counts, strict=True)]
    by_size = _by_size(min(quota, sum(sizes)) - sum(counts), sizes, room)
    counts = [c + more for c, more in zip(counts, by_size, strict=True)]
    return [
        Drawn(part.place, len(stratum) / count, digest("stratum", seed, *name, len(parts), i)[:12])
        for i, (stratum, count) in enumerate(zip(strata, counts, strict=True))
        for part in sorted(stratum, key=lambda part: digest("draw", seed, *part.place))[:count]
    ]


def _strata(parts: Sequence[Candidate], quota: int) -> list[list[Candidate]]:
    """Divide the parts into strata, as finely as `quota` allows two parts of each.

    Parts are grouped by answer and borderline status, else by answer, else by borderline status, else in a single
    stratum.
    """
    finest: tuple[Callable[[Candidate], tuple[object, ...]], ...] = (
        lambda part: (part.answer, part.is_borderline),
        lambda part: (part.answer,),
        lambda part: (part.is_borderline,),
        lambda _: (),
    )
    for group_of in finest:
        groups = _grouped(parts, group_of)
        if sum(min(_FEWEST, len(group)) for group in groups.values()) <= quota:
            break
    return [groups[name] for name in sorted(groups, key=str)]


def _shared_out(n: int, room: Sequence[int]) -> list[int]:
    """Divide n evenly into shares that do not exceed `room`. The remainder is added to the first shares."""
    shares = [0] * len(room)
    while n > 0 and (able := [i for i, most in enumerate(room) if shares[i] < most]):
        for i in able[:n]:
            shares[i] += 1
        n -= min(n, len(able))
    return shares


def _by_size(n: int, sizes: Sequence[int], room: Sequence[int]) -> list[int]:
    """Divide n in proportion to `sizes` into shares that do not exceed `room`."""
    shares = [0] * len(sizes)
    for _ in range(n):
        able = [i for i, most in enumerate(room) if shares[i] < most]
        i = max(able, key=lambda i: (sizes[i] / (shares[i] + 1), -i))
        shares[i] += 1
    return shares
