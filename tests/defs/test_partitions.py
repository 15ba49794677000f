from hypothesis import given
from hypothesis import strategies as st

from agent_eval.defs.partitions import PAIRS, key_frame, rectangles, stretches
from agent_eval.tables.agent_version import AgentVersion

AGENTS = ["a", "b", "c", "d"]
VERSIONS = ["1.0.0", "1.1.0", "1.2.0", "1.10.0"]
ALL = [AgentVersion.of(agent_id=a, methodology_version=v) for a in AGENTS for v in VERSIONS]


def test_a_key_becomes_the_columns_of_stored_tables() -> None:
    frame = key_frame(PAIRS, ["lumen|1.0.0", "x.y-z|1.3.0"])
    assert frame.rows() == [("lumen", "1.0.0"), ("x.y-z", "1.3.0")]
    assert frame.columns == ["agent_id", "methodology_version"]


def test_stretches_are_unbroken_in_the_given_order() -> None:
    assert stretches({"a", "b", "d"}, AGENTS) == [("a", "b"), ("d", "d")]


def test_everything_stale_is_one_rectangle() -> None:
    assert list(rectangles(ALL, AGENTS, VERSIONS)) == [(ALL[0], ALL[-1])]


def test_nothing_stale_is_no_rectangle() -> None:
    assert list(rectangles([], AGENTS, VERSIONS)) == []


@given(st.sets(st.sampled_from(ALL)))
def test_rectangles_cover_exactly_the_stale_pairs_and_each_once(stale: set[AgentVersion]) -> None:
    covered = [
        AgentVersion.of(agent_id=agent, methodology_version=version)
        for first, last in rectangles(stale, AGENTS, VERSIONS)
        for agent in AGENTS[AGENTS.index(first.agent_id) : AGENTS.index(last.agent_id) + 1]
        for version in VERSIONS[
            VERSIONS.index(first.methodology_version) : VERSIONS.index(last.methodology_version) + 1
        ]
    ]
    assert sorted(covered) == sorted(stale)
