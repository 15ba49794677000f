"""Determine which table partitions are up to date by comparing stored fingerprints with current ones.

A fingerprint is a hash of the package version, the data versions of the sources that were read, and the fingerprints
of the tables that were read. A run stores it with the rows that it writes (table run_state). A partition is up to
date if its stored fingerprint equals the one computed from the current files and settings, so the result depends
neither on the order of events nor on what started the run. See docs/decisions/0012.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from agent_eval import __version__
from agent_eval.formats.hashing import digest
from agent_eval.formats.spill import Rows
from agent_eval.gates.regression import INPUTS as COMPARED
from agent_eval.project.data_versions import Sources, open_judgments
from agent_eval.project.gates import baselines
from agent_eval.project.project import Project
from agent_eval.storage import Replacement
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.made_from import MADE_FROM, SOURCES, Shape, shape_of

RUN_STATE = table("run_state")
Place = tuple[str, str | None, str | None]
"""A partition of a table: the table's name, the agent and the version (None if the table has no such dimension)."""

_KEY = ["asset", "agent_id", "methodology_version"]
_PAIR = ["agent_id", "methodology_version"]


@dataclass(frozen=True)
class Fingerprints:
    """Hold the stored fingerprints and the current sources.

    `agents` are the agents with sessions. Rows of other agents are removed by the next run and are not on a board.
    """

    sources: Sources
    agents: tuple[str, ...]
    stored: dict[Place, str] = field(repr=False)
    baselines: Mapping[tuple[str | None, str | None], AgentVersion] = field(default_factory=dict, repr=False)
    """The pair that the gates of a pair compare it with, if the gates name a baseline."""

    @classmethod
    def of(cls, project: Project, sources: Sources) -> "Fingerprints":
        """Read the stored fingerprints of a project."""
        rows = project.store.read(RUN_STATE).select(*_KEY, "fingerprint")
        agents = tuple(project.with_sessions[0])
        return cls(
            sources=sources,
            agents=agents,
            baselines=baselines(project, agents),
            stored={
                (asset, agent, version): mark for asset, agent, version, mark in rows.iter_rows() if asset
            },
        )

    def made_now(self, place: Place) -> str:
        """Return the fingerprint of rows computed from the stored inputs."""
        return self._of(place, self.stored)

    def wanted(self, agents: Collection[str], versions: Collection[str]) -> pl.DataFrame:
        """Return the rows of run_state that a run of all these agents and versions would store.

        An agent without sessions has no rows. Boards use the stored rows of all other agents. A table of pairs that reads
        a table of versions includes the other agents that have rows: the run can change what they read.
        """
        present = [agent for agent in sorted(agents) if agent in self._with_sessions]
        known = {place: mark for place, mark in self.stored.items() if place[1] in (None, *self.agents)}
        made: dict[Place, str] = {}
        for asset in MADE_FROM:
            of_all = _reads_all_agents(asset)
            for place in _places(asset, sorted(self.agents) if of_all else present, sorted(versions)):
                if self._is_known(place) or (of_all and place in self.stored and self._has_version(place)):
                    known[place] = made[place] = self._of(place, known)
        return RUN_STATE.frame(_named(place) | {"fingerprint": mark} for place, mark in made.items())

    @cached_property
    def _with_sessions(self) -> frozenset[str]:
        return frozenset(self.agents)

    def _is_known(self, place: Place) -> bool:
        """Return whether the sources of the partition's agent and version were read."""
        _, agent, _ = place
        return (agent is None or agent in self.sources.agent_sessions) and self._has_version(place)

    def _has_version(self, place: Place) -> bool:
        return place[2] is None or place[2] in self.sources.scoring_spec

    def _of(self, place: Place, tables: Mapping[Place, str]) -> str:
        asset, agent, version = place
        read = [
            (parent, mark)
            for parent in MADE_FROM[asset]
            for mark in self._read(parent, shape_of(asset), agent, version, tables)
        ]
        compared = self.baselines.get((agent, version)) if asset == "gate_results" else None
        if compared is not None:
            read += [(name, tables.get((name, *_partition(name, *compared)))) for name in COMPARED]
        return digest(__version__, list(table(asset).schema), asset, read)

    def _read(
        self, parent: str, by: Shape, agent: str | None, version: str | None, tables: Mapping[Place, str]
    ) -> Iterator[str | None]:
        """Yield the fingerprints of the parent's partitions that a partition reads.

        These are the parent's own partition of the agent and version, or those of all agents. A parent is looked up by
        its own partitions: one that has none per agent is read by the version alone.
        """
        shape = shape_of(parent)
        of_version = None if shape == "agent" else version
        every = (None,) if shape == "version" else self.agents if by == "version" else (agent,)
        for each in every:
            if parent in SOURCES:
                key = {"agent": each, "version": version}.get(shape) or f"{each}|{version}"
                yield self.sources.by_name()[parent].get(key)
            else:
                yield tables.get((parent, each, of_version))


def _partition(name: str, agent: str, version: str) -> tuple[str | None, str | None]:
    """Return the agent and the version of the table's partition that holds the rows of a pair."""
    shape = shape_of(name)
    return (None if shape == "version" else agent, None if shape == "agent" else version)


def _reads_all_agents(asset: str) -> bool:
    """Return whether a table of pairs reads a table of versions, which is computed from the rows of all agents."""
    tables = [parent for parent in MADE_FROM[asset] if parent not in SOURCES]
    return shape_of(asset) == "agent x version" and any(shape_of(parent) == "version" for parent in tables)


def _places(asset: str, agents: Sequence[str], versions: Sequence[str]) -> Iterator[Place]:
    shape = shape_of(asset)
    for agent in (None,) if shape == "version" else agents:
        for version in (None,) if shape == "agent" else versions:
            yield asset, agent, version


def stale_places(
    project: Project, found: Fingerprints, agents: Collection[str], versions: Collection[str]
) -> pl.DataFrame:
    """Return the stale partitions: those that differ from `wanted`, and all partitions of agents without sessions.

    Returns:
        One row per table and partition, with the key columns of run_state.
    """
    wanted = found.wanted(agents, versions)
    stored = RUN_STATE.frame(_named(place) | {"fingerprint": mark} for place, mark in found.stored.items())
    changed = wanted.join(stored, on=wanted.columns, how="anti", nulls_equal=True).select(_KEY)
    held = project.store.read(table("agents"), columns=["agent_id"])["agent_id"].to_list()
    gone = ({*held, *stored["agent_id"].drop_nulls()} - {*found.agents}) & {*agents}
    emptied = [
        _named(place)
        for asset in MADE_FROM
        if shape_of(asset) != "version"
        for place in _places(asset, sorted(gone), sorted(versions))
    ]
    return pl.concat([changed, pl.DataFrame(emptied, schema=changed.schema)])


def _named(place: Place) -> dict[str, str | None]:
    return dict(zip(_KEY, place, strict=True))


def record_of(
    project: Project, found: Fingerprints, asset: str, made: Rows, partitions: pl.DataFrame
) -> Replacement:
    """Return the rows of run_state for partitions that are being written, and update `found`.

    An agent without sessions has no rows. If a judge's answer is missing, the stored fingerprint equals no computed
    one, so the partition and all partitions computed from it stay stale.
    """
    lacking = set(open_judgments(project, asset, made).iter_rows())
    places: list[Place] = [
        (asset, key.get("agent_id"), key.get("methodology_version"))
        for key in partitions.iter_rows(named=True)
    ]
    rows = []
    for place in places:
        found.stored.pop(place, None)
        if place[1] is None or place[1] in found.agents:
            mark = found.made_now(place)
            found.stored[place] = digest(mark, "answers are lacking") if place[1:] in lacking else mark
            rows.append(_named(place) | {"fingerprint": found.stored[place]})
    keys = RUN_STATE.frame(map(_named, places)).select(_KEY)
    return Replacement(RUN_STATE, RUN_STATE.frame(rows), keys)
