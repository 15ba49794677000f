"""Draw a stratified sample of parts for a rating sheet that oversamples borderline parts and disagreements.

A stratum consists of the parts with the same metric, the same answer of the judge, and the same borderline status.
Parts are drawn at random within each stratum. The weight of a label is the number of parts in its stratum divided by
the number of drawn ones, so that weighted figures are unbiased estimates for all parts.
"""

import base64
import hashlib
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent_eval.formats.hashing import canonical, digest

Place = tuple[str, str, int | None, str]
"""Agent, conversation, turn (None for the whole conversation) and metric."""
SEALED = "s1."
"""Prefix of a sealed cell."""
_SAMPLING = struct.Struct("<d6s")  # weight, and the 12 hex digits of the stratum
_CHECK = 4  # bytes


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

    The sample depends only on the candidates, `n` and the seed. The metrics get equal shares. Within a metric, every
    stratum gets one part. Half of the remaining parts are drawn from borderline strata, the others from all strata in
    proportion to their size. If a metric has more strata than parts to draw, strata are merged.
    """
    of_metric: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        of_metric[candidate.metric].append(candidate)
    names = sorted(of_metric, key=lambda name: digest("sheet", seed, name))
    quotas = _shared_out(n, [len(of_metric[name]) for name in names])
    found = [
        part
        for name, quota in zip(names, quotas, strict=True)
        for part in _of_metric(name, of_metric[name], quota, seed)
    ]
    return sorted(found, key=lambda part: digest("order", seed, *part.place))


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
    held = _SAMPLING.pack(round(part.weight, 6), bytes.fromhex(part.stratum))
    return SEALED + base64.urlsafe_b64encode(_masked(held, part.place) + _check(held, part.place)).decode()


def opened_sampling(cell: str, place: Place) -> tuple[float, str]:
    """Return the weight and stratum of a sealed cell.

    Raises:
        ValueError: If the cell is damaged, or was made for another part.
    """
    try:
        sealed = base64.b64decode(cell.removeprefix(SEALED), altchars=b"-_", validate=True)
        weight, stratum = _SAMPLING.unpack(held := _masked(sealed[:-_CHECK], place))
    except (ValueError, struct.error):
        held = b""
    if not held or sealed[-_CHECK:] != _check(held, place):
        raise ValueError(
            "the cell 'stratum' does not belong to this part; copy the line from the sheet and change the answer only"
        )
    return weight, stratum.hex()


def _masked(held: bytes, place: Place) -> bytes:
    mask = _hash("mask", place, len(held))
    return bytes(a ^ b for a, b in zip(held, mask, strict=True))


def _check(held: bytes, place: Place) -> bytes:
    return _hash(held.hex(), place, _CHECK)


def _hash(purpose: str, place: Place, size: int) -> bytes:
    """Return `size` bytes for a part, whose names may have lost outer spaces as cells of a CSV file do."""
    names = [part.strip() if isinstance(part, str) else part for part in place]
    return hashlib.blake2b(canonical([purpose, *names]), digest_size=size).digest()


def _of_metric(name: str, parts: Sequence[Candidate], quota: int, seed: str) -> list[Drawn]:
    if not quota:
        return []
    strata = _strata(parts, quota)
    sizes = [len(stratum) for stratum in strata]
    is_first = [all(part.is_borderline for part in stratum) for stratum in strata]
    counts = [1] * len(strata)
    n_first = (quota - len(strata)) // 2 if any(is_first) else 0
    room = [size - 1 if first else 0 for size, first in zip(sizes, is_first, strict=True)]
    counts = [c + more for c, more in zip(counts, _shared_out(n_first, room), strict=True)]
    room = [size - c for size, c in zip(sizes, counts, strict=True)]
    by_size = _by_size(min(quota, sum(sizes)) - sum(counts), sizes, room)
    counts = [c + more for c, more in zip(counts, by_size, strict=True)]
    return [
        Drawn(part.place, len(stratum) / count, digest("stratum", seed, name, len(parts), i)[:12])
        for i, (stratum, count) in enumerate(zip(strata, counts, strict=True))
        for part in sorted(stratum, key=lambda part: digest("draw", seed, *part.place))[:count]
    ]


def _strata(parts: Sequence[Candidate], quota: int) -> list[list[Candidate]]:
    """Divide the parts into at most `quota` strata, as finely as possible.

    Parts are grouped by answer and borderline status, else by borderline status, else in a single stratum.
    """
    finest: tuple[Callable[[Candidate], tuple[object, ...]], ...] = (
        lambda part: (part.answer, part.is_borderline),
        lambda part: (part.is_borderline,),
        lambda _: (),
    )
    for group_of in finest:
        groups: dict[tuple[object, ...], list[Candidate]] = defaultdict(list)
        for part in parts:
            groups[group_of(part)].append(part)
        if len(groups) <= quota:
            break
    return [groups[name] for name in sorted(groups, key=str)]


def _shared_out(n: int, room: Sequence[int]) -> list[int]:
    """Divide n evenly into shares that do not exceed `room`. The remainder is added to the first shares."""
    given = [0] * len(room)
    while n > 0 and (able := [i for i, most in enumerate(room) if given[i] < most]):
        for i in able[:n]:
            given[i] += 1
        n -= min(n, len(able))
    return given


def _by_size(n: int, sizes: Sequence[int], room: Sequence[int]) -> list[int]:
    """Divide n in proportion to `sizes` into shares that do not exceed `room`."""
    given = [0] * len(sizes)
    for _ in range(n):
        able = [i for i, most in enumerate(room) if given[i] < most]
        i = max(able, key=lambda i: (sizes[i] / (given[i] + 1), -i))
        given[i] += 1
    return given
