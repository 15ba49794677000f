"""Determine which table partitions are up to date by comparing stored fingerprints with current ones.

A run stores two hashes with the rows of a partition (table run_state):

- The fingerprint of its **inputs**: the package version, the data versions of the sources that were read, and the
  fingerprints of the rows that were read. A partition is up to date if it equals the one computed from the current
  files, settings and stored rows, so the result depends neither on the order of events nor on what started the run.
- The fingerprint of its **rows**, which what reads them depends on. If a change leaves the rows as they were, it stops
  there: a comment in session.yaml is ingested and makes nothing else stale.

See docs/decisions/0012.
"""

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from agent_eval import __version__
from agent_eval.formats.hashing import digest
from agent_eval.formats.spill import Rows, frames_of
from agent_eval.gates.regression import INPUTS as COMPARED
from agent_eval.project.data_versions import Sources, open_judgments
from agent_eval.project.gates import baselines
from agent_eval.project.project import Project
from agent_eval.storage import Replacement
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.contract import Table
from agent_eval.tables.schema import MADE_FROM, SOURCES, shape_of

RUN_STATE = table("run_state")
Place = tuple[str, str | None, str | None]
"""A partition of a table: the table's name, the agent and the version (None if the table has no such dimension)."""

NO_ROWS = "no rows"
_FORM = 2  # of the fingerprints of rows; a store with those of another form is computed again
CLUSTERING = ("error_clusters", "error_issues", "error_rates", "failures", "issue_runs")
"""Tables that are computed after all judgments, because clusters depend on the failures of all stale agents."""
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
    """The fingerprint of the rows of each stored partition."""
    baselines: Mapping[tuple[str | None, str | None], AgentVersion] = field(default_factory=dict, repr=False)
    """The pair that the gates of a pair compare it with, if the gates name a baseline."""
    computed_from: dict[Place, str] = field(default_factory=dict, repr=False)
    """The fingerprint of the inputs that the rows of each stored partition were computed from."""

    @classmethod
    def of(cls, project: Project, sources: Sources) -> "Fingerprints":
        """Read the stored fingerprints of a project; rows that an earlier release stored have none.

        Clusters that later runs changed count as not computed, so that they do not depend on the order of runs.
        """
        from agent_eval.project.clusters import outdated_pairs  # imported on use: it loads numpy

        rows = project.store.read(RUN_STATE).drop_nulls(["asset", "rows_fingerprint"])
        agents = tuple(project.with_sessions[0])
        outdated = {(name, *pair) for pair in outdated_pairs(project) for name in CLUSTERING}
        return cls(
            sources=sources,
            agents=agents,
            baselines=baselines(project, agents),
            stored={tuple(row): mark for *row, mark in rows.select(*_KEY, "rows_fingerprint").iter_rows()},
            computed_from={
                place: mark
                for *row, mark in rows.select(*_KEY, "fingerprint").iter_rows()
                if (place := tuple(row)) not in outdated
            },
        )

    def made_now(self, place: Place) -> str:
        """Return the fingerprint of the stored inputs of a partition."""
        return self._of(place, self.stored)

    def is_changed(self, place: Place) -> bool:
        """Return whether a partition was computed from other inputs than the stored ones, or not at all."""
        return self.computed_from.get(place) != self.made_now(place)

    def data_versions(self, asset: str, partitions: pl.DataFrame) -> list[tuple[str, bool]]:
        """Return the fingerprint of the rows of each partition, and whether it was computed from the stored inputs.

        It was not if some answers are missing. A partition of an agent without sessions has no rows.
        """
        places = [
            (asset, key.get("agent_id"), key.get("methodology_version"))
            for key in partitions.iter_rows(named=True)
        ]
        return [(self.stored.get(p, NO_ROWS), p not in self.stored or not self.is_changed(p)) for p in places]

    def wanted(self, agents: Collection[str], versions: Collection[str]) -> pl.DataFrame:
        """Return the rows of run_state that a run of all these agents and versions would store, without those of rows.

        A stale partition counts as changed for what reads it. Whether its rows are other rows is known when it was
        computed (`ready_places`).

        An agent without sessions has no rows. Boards use the stored rows of all other agents. A table of pairs that reads
        a table of versions includes the other agents that have rows: the run can change what they read.
        """
        present = [agent for agent in sorted(agents) if agent in self._with_sessions]
        rows = {place: mark for place, mark in self.stored.items() if place[1] in (None, *self.agents)}
        inputs: dict[Place, str] = {}
        for asset in MADE_FROM:
            of_all = _reads_all_agents(asset)
            for place in _places(asset, sorted(self.agents) if of_all else present, sorted(versions)):
                if self.is_known(place) or (of_all and place in self.stored and self._has_version(place)):
                    inputs[place] = self._of(place, rows)
                    if inputs[place] != self.computed_from.get(place):
                        rows[place] = digest("rows that are computed from", inputs[place])
        return RUN_STATE.frame(_named(place, fingerprint=mark) for place, mark in inputs.items())

    @cached_property
    def _with_sessions(self) -> frozenset[str]:
        return frozenset(self.agents)

    def is_known(self, place: Place) -> bool:
        """Return whether the sources of the partition's agent and version were read."""
        _, agent, _ = place
        return (agent is None or agent in self.sources.agent_sessions) and self._has_version(place)

    def _has_version(self, place: Place) -> bool:
        return place[2] is None or place[2] in self.sources.scoring_spec

    def _of(self, place: Place, rows: Mapping[Place, str]) -> str:
        """Return the fingerprint of the inputs of a partition, where `rows` has those of the rows of tables."""
        sources = self.sources.by_name()
        read = [
            (name, sources[name].get(key) if isinstance(key, str) else rows.get(key))
            for name, key in self._inputs(place)
        ]
        return digest(__version__, _FORM, list(table(place[0]).schema), place[0], read)

    def parents(self, place: Place) -> Iterator[Place]:
        """Yield the partitions of tables that a partition reads."""
        return (key for _, key in self._inputs(place) if not isinstance(key, str))

    def _inputs(self, place: Place) -> Iterator[tuple[str, str | Place]]:
        """Yield what a partition reads: sources with the key of their partition, and partitions of tables.

        Of each parent these are its own partition of the agent and version, or those of all agents. A parent is looked
        up by its own partitions: one that has none per agent is read by the version alone.
        """
        asset, agent, version = place
        for parent in MADE_FROM[asset]:
            shape = shape_of(parent)
            is_by_version, of_version = shape_of(asset) == "version", None if shape == "agent" else version
            for each in (None,) if shape == "version" else self.agents if is_by_version else (agent,):
                if parent in SOURCES:
                    yield parent, {"agent": each, "version": version}.get(shape) or f"{each}|{version}"
                else:
                    yield parent, (parent, each, of_version)
        compared = self.baselines.get((agent, version)) if asset == "gate_results" else None
        if compared is not None:
            yield from ((name, (name, *_partition(name, *compared))) for name in COMPARED)


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
    project: Project, marks: Fingerprints, agents: Collection[str], versions: Collection[str]
) -> pl.DataFrame:
    """Return the stale partitions: those that differ from `wanted`, and all partitions of agents without sessions.

    A partition is also stale if it reads a stale one; a run may find that the rows that it reads did not change.

    Returns:
        One row per table and partition, with the key columns of run_state.
    """
    current = marks.wanted(agents, versions)
    stored = RUN_STATE.frame(_named(place, fingerprint=mark) for place, mark in marks.computed_from.items())
    by = [*_KEY, "fingerprint"]
    changed = current.join(stored, on=by, how="anti", nulls_equal=True).select(_KEY)
    stored_agents = project.store.read(table("agents"), columns=["agent_id"])["agent_id"].to_list()
    of_state = project.store.read(RUN_STATE, columns=["agent_id"])["agent_id"].drop_nulls()
    gone = ({*stored_agents, *of_state} - {*marks.agents}) & {*agents}
    emptied = [
        _named(place)
        for asset in MADE_FROM
        if shape_of(asset) != "version"
        for place in _places(asset, sorted(gone), sorted(versions))
    ]
    return pl.concat([changed, pl.DataFrame(emptied, schema=changed.schema)])


def ready_places(marks: Fingerprints, stale: pl.DataFrame, forced: pl.DataFrame) -> pl.DataFrame:
    """Return the stale partitions that are to be computed next: an input changed, and none will change before them.

    Args:
        marks: The fingerprints as stored now.
        stale: The stale partitions that were not computed yet, with the key columns of run_state.
        forced: The partitions among them that are computed even if no input changed.

    Returns:
        Rows of `stale`. A partition that reads stale partitions is only among them if all of those are: one run
        computes them in order. If there are none, the rest of `stale` turned out to be up to date.
    """
    always = {*forced.select(_KEY).rows()}
    ready: dict[Place, None] = {}
    waiting = set[Place]()
    for place in sorted(stale.select(_KEY).rows(), key=lambda row: _ORDER[row[0]]):  # parents first
        is_gone = place[1] is not None and place[1] not in marks.agents
        parents = {*marks.parents(place)}
        if not (is_gone or place in always or marks.is_changed(place)):
            waiting |= {place} if parents & (waiting | ready.keys()) else set()
        elif parents & waiting:
            waiting.add(place)
        else:
            ready[place] = None
    return pl.DataFrame([*ready], schema=stale.select(_KEY).schema, orient="row")


_ORDER = {asset: number for number, asset in enumerate(MADE_FROM)}


def _named(place: Place, **marks: str) -> dict[str, str | None]:
    return dict(zip(_KEY, place, strict=True)) | marks


def record_of(
    project: Project, marks: Fingerprints, asset: str, new_rows: Rows, partitions: pl.DataFrame
) -> Replacement:
    """Return the rows of run_state for partitions that are being written, and update `marks`.

    An agent without sessions has no rows. If a judge's answer is missing, the stored fingerprint of the inputs equals
    no computed one, so the partition stays stale.
    """
    lacking = set(open_judgments(project, asset, new_rows).iter_rows())
    of_rows = rows_fingerprints(table(asset), new_rows, partitions)
    places: dict[Place, str] = {
        (asset, key.get("agent_id"), key.get("methodology_version")): of_rows[tuple(key.values())]
        for key in partitions.iter_rows(named=True)
    }
    rows = []
    for place, row_mark in places.items():
        marks.stored.pop(place, None)
        marks.computed_from.pop(place, None)
        if place[1] is None or place[1] in marks.agents:
            mark = marks.made_now(place)
            marks.computed_from[place] = digest(mark, "answers are lacking") if place[1:] in lacking else mark
            marks.stored[place] = row_mark
            rows.append(_named(place, fingerprint=marks.computed_from[place], rows_fingerprint=row_mark))
    keys = RUN_STATE.frame(map(_named, places)).select(_KEY)
    return Replacement(RUN_STATE, RUN_STATE.frame(rows), keys)


def damaged_partitions(project: Project, marks: Fingerprints, tables: Collection[str]) -> Iterator[Place]:
    """Yield the partitions of some tables whose rows are not those that were stored, e.g. after a bit of a file flipped.

    Only partitions that are up to date are compared: if a release adds a column, the rows of others differ.
    """
    places = sorted(
        (p for p in marks.stored if p[0] in tables and any(p[1:]) and not marks.is_changed(p)), key=str
    )
    for (name, _), group in itertools.groupby(places, key=lambda place: place[:2]):
        of_agent = {tuple(value for value in place[1:] if value is not None): place for place in group}
        columns = [
            column for column, value in zip(_PAIR, next(iter(of_agent.values()))[1:], strict=True) if value
        ]
        partitions = pl.DataFrame(list(of_agent), schema=columns, orient="row")
        rows_now = rows_fingerprints(table(name), project.store.read(table(name), partitions), partitions)
        yield from (place for key, place in of_agent.items() if rows_now[key] != marks.stored[place])


def rows_fingerprints(target: Table, rows: Rows, partitions: pl.DataFrame) -> dict[tuple[object, ...], str]:
    """Return the hash of the rows of each partition, by its values in the order of `partitions.columns`.

    It depends neither on the order of the rows nor on how they are cut into parts, nor on columns without content
    (`Column.is_content`): it is the hash of the partition and of the sum of the hashes of its rows.
    """
    by, content = partitions.columns, sorted(c.name for c in target.columns if c.is_content)
    sums = dict.fromkeys(partitions.iter_rows(), (0, 0))
    for frame in frames_of(rows):
        names = [name for name in content if name in frame.columns and name not in by]
        latest: dict[object, tuple[pl.DataFrame, int]] = {}  # by agent
        for key, of_partition in frame.partition_by(by, as_dict=True, maintain_order=True).items():
            of_content = of_partition.select(names)
            agent = key[by.index("agent_id")] if "agent_id" in by else None
            earlier, total = latest.get(agent, (None, 0))
            # most versions of an agent have the same rows
            if earlier is None or not _have_equal_texts(of_content, earlier):
                total = _sum_of_hashes(of_content.select(pl.struct(names).struct.json_encode()).to_series())
            latest[agent] = (of_content, total)
            n_before, before = sums.get(key, (0, 0))
            sums[key] = (n_before + of_content.height, before + total)
    return {key: digest(*key, n, str(total % _MODULUS)) for key, (n, total) in sums.items()}


def _have_equal_texts(rows: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Return whether the rows have the same JSON texts: equal numbers have, except for 0.0 and -0.0."""
    number = pl.selectors.float()
    texts = (number.cast(pl.String), pl.selectors.list(number).cast(pl.List(pl.String)))
    return rows.equals(others) and rows.select(*texts).equals(others.select(*texts))


def _sum_of_hashes(texts: pl.Series) -> int:
    hashes = (hashlib.blake2b(text.encode(), digest_size=32).digest() for text in texts)
    return sum(map(int.from_bytes, hashes))


_MODULUS = 1 << 256
