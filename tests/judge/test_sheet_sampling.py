"""Which parts a rating sheet holds: strata by hand, weights that add up, borderline parts more often."""

import random
from collections import Counter

import pytest

from agent_eval.judge.inputs.sheet_sampling import Candidate, Drawn, drawn_parts, n_for_all, n_parts, sheets
from agent_eval.judge.inputs.sheet_sampling import opened_sampling as opened
from agent_eval.judge.inputs.sheet_sampling import sealed_sampling as sealed


def candidates(metric: str = "m", agent: str = "a", **of_answer: int) -> list[Candidate]:
    """Parts by answer; those of answers that begin with b are borderline."""
    return [
        Candidate((agent, f"{answer}{i}", 0, metric), answer, is_borderline=answer.startswith("b"))
        for answer, n in of_answer.items()
        for i in range(n)
    ]


def counts(found: list[Candidate], n: int) -> dict[str, int]:
    answer = {one.place: one.answer for one in found}
    drawn = [answer[part.place] for part in drawn_parts(found, n)]
    return {name: drawn.count(name) for name in sorted(set(drawn))}


def test_every_stratum_is_drawn_from_and_borderline_ones_more_often() -> None:
    # two each; of the other 9 four go to the borderline stratum, and five by size to the largest one
    assert counts(candidates(good=900, rare=10, borderline=90), 15) == {"borderline": 6, "good": 7, "rare": 2}


def test_each_answer_of_the_judge_has_two_labels_for_each_agent_and_agents_get_equal_shares() -> None:
    found = candidates(good=900, rare=3) + candidates(agent="b", good=2, poor=40, one=1)
    needed = n_for_all(found)
    assert needed == 10
    for n in (needed, 30):
        parts = drawn_parts(found, n)
        answers = {one.place: one.answer for one in found}
        drawn = Counter((part.place[0], answers[part.place]) for part in parts)
        assert drawn["b", "one"] == 1
        assert all(drawn[key] >= 2 for key in (("a", "good"), ("a", "rare"), ("b", "good"), ("b", "poor")))
        assert Counter(part.place[0] for part in parts) == {"a": n // 2, "b": n // 2}
        for agent, size in (("a", 903), ("b", 43)):
            assert sum(p.weight for p in parts if p.place[0] == agent) == pytest.approx(size)
    assert len({part.stratum for part in drawn_parts(found, 9)}) < 5  # too few for agents of their own
    assert sum(part.weight for part in drawn_parts(found, 9)) == pytest.approx(946)


def test_weights_add_up_to_all_parts() -> None:
    found = candidates(good=900, rare=10, borderline=90) + candidates("other", good=40)
    parts = drawn_parts(found, 30)
    assert len(parts) == len({part.place for part in parts}) == 30
    for metric, size in (("m", 1000), ("other", 40)):
        assert sum(p.weight for p in parts if p.place[3] == metric) == pytest.approx(size)
    assert len({part.stratum for part in parts}) == 4


@pytest.mark.parametrize(("n", "strata"), [(1, 1), (3, 1), (4, 2), (6, 3)])
def test_few_parts_have_coarser_strata(n: int, strata: int) -> None:
    parts = drawn_parts(candidates(good=90, poor=90, borderline=20), n)
    assert (len(parts), len({part.stratum for part in parts})) == (n, strata)
    assert sum(part.weight for part in parts) == pytest.approx(200)


def test_a_small_population_is_drawn_whole_and_leaves_its_share_to_others() -> None:
    found = candidates(good=3) + candidates("other", good=50)
    parts = drawn_parts(found, 20)
    assert sum(part.place[3] == "m" for part in parts) == 3
    assert {part.weight for part in parts if part.place[3] == "m"} == {1.0}
    assert len(parts) == 20
    assert len(drawn_parts(found, 500)) == 53
    assert drawn_parts([], 5) == []


def test_weighted_shares_are_unbiased_over_seeds() -> None:
    found = candidates(good=300, rare=20, borderline=80)
    is_wrong = {one.place: one.answer == "borderline" and i % 2 == 0 for i, one in enumerate(found)}
    truth = sum(is_wrong.values()) / len(found)
    estimates = []
    for seed in range(200):
        parts = drawn_parts(found, 20, seed=str(seed))
        estimates.append(sum(p.weight * is_wrong[p.place] for p in parts) / sum(p.weight for p in parts))
    assert sum(estimates) / len(estimates) == pytest.approx(truth, abs=0.01)


def test_raters_share_a_third_and_the_order_of_candidates_does_not_matter() -> None:
    found = candidates(good=200, borderline=50)
    parts = drawn_parts(found, n_parts(30, 2))
    anna, ben = ({part.place for part in of} for of in sheets(parts, 30, 2))
    assert (len(anna), len(ben), len(anna & ben)) == (30, 30, 10)
    random.Random(1).shuffle(found)
    assert drawn_parts(found, n_parts(30, 2)) == parts
    assert sheets(parts, 50, 1) == [parts]


@pytest.mark.parametrize("place", [("a", "c", 0, "m"), ("a", 'ü, "q" ', None, "m"), ("", "", 2**40, "")])
def test_a_sealed_cell_gives_weight_and_stratum_of_its_own_part_only(
    place: tuple[str, str, int | None, str],
) -> None:
    part = Drawn(place, 12.3456789, "0123456789ab")
    cell = sealed(part)
    assert opened(cell, place) == (12.3456789, "0123456789ab")
    assert opened(cell, (place[0], place[1].strip(), *place[2:])) == (12.3456789, "0123456789ab")
    for other in (("b", *place[1:]), (*place[:3], "n"), (*place[:2], 7, place[3])):
        with pytest.raises(ValueError, match="does not belong to this part"):
            opened(cell, other)


@pytest.mark.parametrize("cell", ["s1.", "s1.?", "s1.AAAA", "s1." + "A" * 24, "s1." + "A" * 23, "s1.ü"])
def test_a_damaged_cell_is_rejected(cell: str) -> None:
    with pytest.raises(ValueError, match="does not belong to this part"):
        opened(cell, ("a", "c", 0, "m"))
