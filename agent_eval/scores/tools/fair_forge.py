"""Score a tool trace as Fair Forge's `Agentic` metric does, for people who compare figures with that tool.

Source: fair_forge/metrics/agentic.py of github.com/Alquimia-ai/fair-forge, as of 2411cbd. See
docs/howto/from-fair-forge.md.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from agent_eval.scores.tools.calls import Call

FAIR_FORGE = "fair-forge"


@dataclass(frozen=True)
class UsedStep:
    """Hold a call and its step: the key `step`, else its position from 1."""

    call: Call
    step: object


def steps_of(calls: Sequence[Call], fields: Sequence[Mapping[str, object]]) -> list[UsedStep]:
    """Return the calls with their steps; `fields` are the same calls as they were passed."""
    return [
        UsedStep(call, one.get("step", i)) for i, (call, one) in enumerate(zip(calls, fields, strict=True), 1)
    ]


def fair_forge_aspects(
    used: Sequence[UsedStep], expected: Sequence[UsedStep], *, sequence_matters: bool, results_used: bool
) -> dict[str, Fraction]:
    """Return the four aspects by the definitions of Fair Forge.

    - selection: the Jaccard index of the sets of names.
    - parameters: the mean over the expected calls, each compared with the first used call of the tool: the share of
      equal values among the parameters of both, where a missing value equals null. A tool that was not used counts
      once with 0.
    - sequence: the share of expected calls whose step equals the step of the used call with the same ordinal among the
      calls of the tool. A tool that was not used counts once with 0; 1 if order does not matter.
    - utilisation: as declared.
    """
    used_of, expected_of = _by_name(used), _by_name(expected)
    parameters: list[Fraction] = []
    in_order: list[Fraction] = []
    for name, expected_steps in expected_of.items():
        used_steps = used_of.get(name)
        if used_steps is None:
            parameters.append(Fraction(0))
            in_order.append(Fraction(0))
            continue
        parameters += [_agreement(one.call.arguments, used_steps[0].call.arguments) for one in expected_steps]
        padded = [*(one.step for one in used_steps), *[None] * len(expected_steps)]
        in_order += [Fraction(one.step == step) for one, step in zip(expected_steps, padded, strict=False)]
    n_names = len({*used_of, *expected_of})
    return {
        "selection": Fraction(len(used_of.keys() & expected_of.keys()), n_names) if n_names else Fraction(1),
        "parameters": _mean(parameters),
        "sequence": _mean(in_order) if sequence_matters else Fraction(1),
        "utilisation": Fraction(results_used),
    }


def _by_name(steps: Sequence[UsedStep]) -> Mapping[str, list[UsedStep]]:
    by_name = defaultdict[str, list[UsedStep]](list)
    for one in steps:
        by_name[one.call.name].append(one)
    return dict(by_name)


def _agreement(expected: Mapping[str, object], used: Mapping[str, object]) -> Fraction:
    names = {*expected, *used}
    n_equal = sum(expected.get(name) == used.get(name) for name in names)
    return Fraction(1) if expected == used else Fraction(n_equal, len(names))


def _mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values) if values else Fraction(0)
