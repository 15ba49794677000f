from hypothesis import given
from hypothesis import strategies as st

from agent_eval.defs.partitions import PAIRS, chunks, current_last, key_frame, rectangles, stretches
from agent_eval.tables.agent_version import AgentVersion

AGENTS = ["a", "b", "c", "d"]
VERSIONS = ["1.0.0", "1.1.0", "1.2.0", "1.10.0"]
ALL = [AgentVersion.of(agent_id=a, methodology_version=v) for a in AGENTS for v in VERSIONS]


def test_a_key_becomes_the_columns_of_stored_tables() -> None:
    frame = key_frame(PAIRS, ["lumen|1.0.0", "x.y-z|1.3.0"])
    assert frame.rows() == [("lumen", "1.0.0"), ("x.y-z", "1.3.0")]
    assert frame.columns == ["agent_id", "methodology_version"]


def test_stretches_are_unbroken_in_the_given_order() -> None:
    assert stretches({"a", "b", "d"}, AGENTS) == [["a", "b"], ["d"]]


def test_everything_stale_is_one_rectangle() -> None:
    assert list(rectangles(ALL, AGENTS, VERSIONS)) == [(ALL[0], ALL[-1])]


@given(
    st.sets(st.sampled_from(ALL)),
    st.dictionaries(st.sampled_from(AGENTS), st.integers(0, 50)),
    st.integers(1, 100) | st.none(),
)
def test_rectangles_cover_exactly_the_stale_pairs_once_and_none_is_larger_than_the_limit_unless_it_is_one_pair(
    stale: set[AgentVersion], sizes: dict[str, int], limit: int | None
) -> None:
    covered = []
    for first, last in rectangles(stale, AGENTS, VERSIONS, sizes, limit):
        (a, v), (b, w) = (
            (AGENTS.index(p.agent_id), VERSIONS.index(p.methodology_version)) for p in (first, last)
        )
        pairs = [ALL[i * len(VERSIONS) + j] for i in range(a, b + 1) for j in range(v, w + 1)]
        assert limit is None or len(pairs) == 1 or sum(sizes.get(p.agent_id, 0) for p in pairs) <= limit
        covered += pairs
    assert sorted(covered) == sorted(stale)


def test_chunks_are_as_few_as_the_order_allows_and_a_large_key_is_alone() -> None:
    assert list(chunks(AGENTS, {"a": 3, "b": 1, "c": 9, "d": 4}, 4)) == [["a", "b"], ["c"], ["d"]]
    assert list(chunks(AGENTS, {"a": 3}, None)) == [AGENTS]
    assert list(chunks([], {}, 1)) == []


def test_a_large_agent_is_not_split_by_version_if_it_is_judged() -> None:
    sizes = dict.fromkeys(AGENTS, 3) | {AGENTS[1]: 100}
    found = list(rectangles(ALL, AGENTS, VERSIONS, sizes, 12, splits_agents=False))
    of_large = [(a, b) for a, b in found if a.agent_id <= AGENTS[1] <= b.agent_id]
    versions = [(a.methodology_version, b.methodology_version) for a, b in of_large]
    assert versions == [(VERSIONS[0], VERSIONS[-1])]
    split = [pair for pair in rectangles(ALL, AGENTS, VERSIONS, sizes, 12) if pair[0].agent_id == AGENTS[1]]
    assert len(split) == len(VERSIONS)


@given(
    st.permutations([f"{pair.agent_id}|{pair.methodology_version}" for pair in ALL]),
    st.sampled_from(VERSIONS),
)
def test_the_current_version_is_the_last_in_whatever_order_the_keys_come(
    keys: list[str], current: str
) -> None:
    ordered = current_last(PAIRS, keys, [current])
    assert sorted(ordered) == sorted(keys)
    assert ordered[-len(AGENTS) :] == [f"{agent}|{current}" for agent in AGENTS]
    assert current_last(None, ["b", "a"], [current]) == ["a", "b"]
