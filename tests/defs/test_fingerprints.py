"""What a table's fingerprint covers: every partition that the table reads, and no other."""

import pytest

from agent_eval.gates.regression import INPUTS as COMPARED
from agent_eval.project.data_versions import Sources
from agent_eval.project.fingerprints import Fingerprints, Place
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.schema import MADE_FROM, SOURCES, shape_of

AGENTS, VERSIONS = ("ada", "bob"), ("1.2.0", "1.3.0")


def keys_of(name: str) -> list[str]:
    return {
        "agent": [*AGENTS],
        "version": [*VERSIONS],
        "agent x version": [f"{agent}|{version}" for agent in AGENTS for version in VERSIONS],
    }[shape_of(name)]


def places_of(name: str) -> list[Place]:
    shape = shape_of(name)
    agents = (None,) if shape == "version" else AGENTS
    return [(name, a, v) for a in agents for v in ((None,) if shape == "agent" else VERSIONS)]


def fingerprints(*changed: tuple[str, str] | Place, **more: object) -> Fingerprints:
    """All tables are stored; the `changed` partitions of tables (places) and sources (name, key) have another mark."""
    sources = {name: {key: str((name, key) in changed) for key in keys_of(name)} for name in SOURCES}
    stored = {place: f"{place} {place in changed}" for name in MADE_FROM for place in places_of(name)}
    given = {"sources": Sources(**sources), "agents": AGENTS, "stored": stored, **more}
    return Fingerprints(**given)  # type: ignore[arg-type]


def reads(child: Place, agent: str | None, version: str | None) -> bool:
    """Return whether a partition reads the parent's partition of this agent and version (None: it has none)."""
    _, own_agent, own_version = child
    is_of_agent = agent is None or own_agent is None or agent == own_agent
    return is_of_agent and (version is None or own_version is None or version == own_version)


@pytest.mark.parametrize("parent", sorted({parent for parents in MADE_FROM.values() for parent in parents}))
def test_a_change_of_an_input_makes_stale_what_reads_it_and_nothing_else(parent: str) -> None:
    before = fingerprints()
    children = [
        place for child, parents in MADE_FROM.items() if parent in parents for place in places_of(child)
    ]
    for _, agent, version in places_of(parent):
        key = agent if version is None else version if agent is None else f"{agent}|{version}"
        after = fingerprints((parent, str(key)) if parent in SOURCES else (parent, agent, version))
        for place in children:
            is_stale = after.made_now(place) != before.made_now(place)
            assert is_stale == reads(place, agent, version), (place, agent, version)


@pytest.mark.parametrize("parent", COMPARED)
def test_gates_with_a_baseline_read_its_rows_too(parent: str) -> None:
    baselines = {("ada", "1.3.0"): AgentVersion.of(agent_id="bob", methodology_version="1.3.0")}
    of_bob = (parent, "bob", None if shape_of(parent) == "agent" else "1.3.0")

    def is_stale(version: str, **given: object) -> bool:
        marks = {
            fingerprints(*changed, **given).made_now(("gate_results", "ada", version))
            for changed in ([], [of_bob])
        }
        return len(marks) == 2

    assert is_stale("1.3.0", baselines=baselines)
    assert not is_stale("1.2.0", baselines=baselines)
    assert not is_stale("1.3.0")


@pytest.mark.parametrize("agents", [("ada",), AGENTS])
def test_a_run_of_one_agent_also_wants_what_reads_a_table_of_its_version(agents: tuple[str, ...]) -> None:
    """A label of ada changes the calibration of the version, and with it the gates of bob."""
    of_versions = dict.fromkeys(VERSIONS, "")
    rated = {"human_ratings": dict.fromkeys(AGENTS, "another label")}
    of_agents = {name: dict.fromkeys(agents, "") for name in ("agent_sessions",)}
    configs = {"judge_config": {f"{a}|{v}": "" for a in agents for v in VERSIONS}}
    specs = dict.fromkeys(("scoring_spec", "cluster_spec", "gate_spec"), of_versions)
    sources = Sources(**of_agents, **rated, **configs, **specs)
    wanted = fingerprints(sources=sources).wanted(agents, ["1.3.0"])
    gates = wanted.filter(asset="gate_results").select("agent_id", "methodology_version").rows()
    assert gates == [("ada", "1.3.0"), ("bob", "1.3.0")]
    others = wanted.filter(wanted["asset"] != "gate_results")["agent_id"].drop_nulls().unique().sort()
    assert others.to_list() == [*agents]
    never_run = fingerprints(sources=sources, stored={})
    assert never_run.wanted(agents, ["1.3.0"]).filter(asset="gate_results").height == len(agents)
