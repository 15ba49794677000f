"""Check trajectories: whether the expected calls were made as required and no forbidden call was made.

A trajectory is an assertion about a sequence of calls, so its result is true or false. `tools.correctness`
scores the same calls with shares from 0 to 1.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent_eval.errors import ArgumentError, InvalidValueError
from agent_eval.scores.tools.calls import Call, ExpectedCall, MalformedCallError, read_calls, read_expected
from agent_eval.scores.tools.matching import best_matching, in_order

Mode = Literal["strict", "contains", "unordered", "within"]
_LONGEST = 60  # maximum characters of an argument in the diff


@dataclass(frozen=True)
class TrajectoryMatch:
    """Hold the result of a trajectory and its differences from the expected calls, as tool names."""

    matched: bool
    missing: tuple[str, ...]  # expected but not called
    extra: tuple[str, ...]  # called but not expected
    out_of_order: tuple[str, ...]  # called at another position than expected; only if order matters
    forbidden: tuple[str, ...]  # forbidden but called
    found: tuple[bool, ...]  # whether each expected call was made
    diff: str  # one line per call, for display


def match(
    calls: Sequence[Mapping[str, object]],
    expected: Sequence[Mapping[str, object]],
    *,
    mode: Mode = "strict",
    forbidden: Sequence[str | Mapping[str, object]] = (),
) -> TrajectoryMatch:
    """Compare the calls that were made with the expected calls.

    The modes are:

    - strict: exactly the expected calls, in order;
    - contains: the expected calls in order, with any other calls between them;
    - unordered: exactly the expected calls as a multiset, in any order;
    - within: only expected calls, which can be omitted or repeated.

    A forbidden call fails in every mode. As many expected calls as possible are matched, with as much of their
    order as possible. `missing`, `extra` and `out_of_order` list the differences in every mode; `matched` is the
    result under the given mode.

    Args:
        calls: Calls in order, of the form `{"name": …, "arguments": {…}}`; arguments can be JSON text.
        expected: Expected calls in the same form. `"match"` is exact (the default if there are arguments),
            partial (extra arguments are allowed) or ignore (the default without arguments). For `"compare"`, see
            `scores.tools.calls`.
        mode: The match mode.
        forbidden: Tool names or expected calls; an expected call forbids only calls that match it.

    Raises:
        ArgumentError: If `calls`, `expected` or `forbidden` is not a list.
        InvalidValueError: If the mode is unknown.
        MalformedCallError: If a call cannot be read; the message has its number and the reason.
    """
    for name, argument in (("calls", calls), ("expected", expected), ("forbidden", forbidden)):
        if not isinstance(argument, list | tuple):
            raise ArgumentError(name, argument, "a list of calls")
    if mode not in get_args(Mode):
        raise InvalidValueError(f"Match mode {mode!r} is unknown. Allowed: {', '.join(get_args(Mode))}.")
    used, required = read_calls(calls), read_expected(expected)
    barred = read_expected([{"name": f} if isinstance(f, str) else f for f in forbidden], "forbidden")
    fits = [[int(want.fits(call)) for call in used] for want in required]
    partner, chain = partners(fits)
    if mode == "within":
        is_inside = [any(row[j] for row in fits) for j in range(len(used))]
        is_made = [any(row) for row in fits]
    else:
        is_inside = [j in partner.values() for j in range(len(used))]
        is_made = [i in partner for i in range(len(required))]
    is_late = [
        mode in ("strict", "contains") and i in partner and i not in chain for i in range(len(required))
    ]
    is_barred = [any(bar.fits(call) for bar in barred) for call in used]
    holds = {
        "strict": all(is_made) and all(is_inside) and not any(is_late),
        "contains": all(is_made) and not any(is_late),
        "unordered": all(is_made) and all(is_inside),
        "within": all(is_inside),
    }
    return TrajectoryMatch(
        matched=holds[mode] and not any(is_barred),
        missing=_names(required, [not is_found for is_found in is_made]),
        extra=_names(used, [not inside for inside in is_inside]),
        out_of_order=_names(required, is_late),
        forbidden=_names(used, is_barred),
        found=tuple(is_made),
        diff="\n".join(_diff(used, required, partner, is_made, is_inside, is_late, is_barred)),
    )


def partners(fits: Sequence[Sequence[int]]) -> tuple[dict[int, int], set[int]]:
    """Return the call of each matched expected call, and the expected calls that are in order."""
    n_calls = len(fits[0]) if fits else 0
    chain = in_order([(range(len(fits)), range(n_calls), fits)], least=1)
    matched_rows, matched_columns = {i for i, _ in chain}, {j for _, j in chain}
    rows = [i for i in range(len(fits)) if i not in matched_rows]
    columns = [j for j in range(n_calls) if j not in matched_columns]
    rest = best_matching([[fits[i][j] for j in columns] for i in rows])
    others = {rows[i]: columns[j] for i, j in rest if fits[rows[i]][columns[j]]}
    return dict(chain) | others, matched_rows


def _names(calls: Sequence[Call], are_told: Sequence[bool]) -> tuple[str, ...]:
    return tuple(call.name for call, is_told in zip(calls, are_told, strict=True) if is_told)


def _diff(
    used: Sequence[Call],
    required: Sequence[ExpectedCall],
    partner: Mapping[int, int],
    is_made: Sequence[bool],
    is_inside: Sequence[bool],
    is_late: Sequence[bool],
    is_barred: Sequence[bool],
) -> list[str]:
    """Return one line per call in the order of the calls, and one per missing expected call."""
    expected_of = {j: i for i, j in partner.items()}
    lines = []
    for j, call in enumerate(used):
        if is_barred[j]:
            lines.append(f"! {_shown(call)}: forbidden")
        elif not is_inside[j]:
            lines.append(f"+ {_shown(call)}: not expected")
        elif j in expected_of and is_late[expected_of[j]]:
            lines.append(
                f"~ {_shown(call)}: out of order, expected as number {expected_of[j] + 1}, called as number {j + 1}"
            )
        else:
            lines.append(f"  {_shown(call)}")
    for i, want in enumerate(required):
        if not is_made[i]:
            lines.append(f"- {_shown(want)}: not called{_nearest(want, used, partner)}")
    return lines


def _nearest(want: ExpectedCall, used: Sequence[Call], partner: Mapping[int, int]) -> str:
    """Describe how the most similar unmatched call of the same tool differs; empty if there is no such call."""
    free = [c for j, c in enumerate(used) if c.name == want.name and j not in partner.values()]
    if not free:
        return ""
    call = max(free, key=want.n_right)
    wrong = [
        f"{name} is {_text(call.arguments[name]) if name in call.arguments else 'missing'}, expected {_text(want.arguments[name])}"
        for name in want.asked
        if not want.is_right(name, call)
    ]
    extra = [f"{name} was not expected" for name in want.extra(call)] if want.match != "partial" else []
    return f" so; {'; '.join([*wrong, *extra])}"


def _shown(call: Call) -> str:
    return f"{call.name}({', '.join(f'{name}={_text(value)}' for name, value in call.arguments.items())})"


def _text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


__all__ = ["MalformedCallError", "Mode", "TrajectoryMatch", "match", "partners"]
