"""`agent-eval run`: take in what is new, materialise what is stale through Dagster, keep what it was made from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval.clustering import refusals as cluster_refusals
from agent_eval.judge.ratings import unasked_ratings
from agent_eval.judge.rubric import orphan_ratings
from agent_eval.project import Project, taken_in
from agent_eval.settings import unknown_variables
from agent_eval.sources import Sources, read_sources
from agent_eval.tables import table
from agent_eval.transcripts.records import Refusal

RUN_STATE = table("run_state")


@dataclass(frozen=True)
class RunReport:
    """What a run made anew, and how the agents and versions it was asked for stand: refusals, unscored judgments."""

    stale: pl.DataFrame
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]
    n_asked: int
    n_unscored: int

    @property
    def exit_code(self) -> int:
        """0 done; 1 a record was refused or some judgments are unscored; 2 nothing that was asked got scored."""
        if self.n_asked and self.n_unscored == self.n_asked:
            return 2
        return 1 if self.refusals or self.n_unscored else 0


def run(
    project: Project,
    agents: Sequence[str] = (),
    versions: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    *,
    boards: bool = False,
) -> RunReport:
    """Bring every table up to date for the named agents and versions (default: all); `boards`: the boards in any case.

    Raises:
        UnknownAgentError: If an agent is named that has neither sessions nor rows.
        UnknownMethodologyError: If a version is named that is not published.
    """
    wanted_agents = project.some_agents(agents)
    for version in versions:
        project.registry.get(version)
    with project.store.only_one("run"):  # hashing included: the last run to finish read the newest files
        sources = read_sources(project, wanted_agents, list(versions) or list(project.registry.versions))
        wanted = sources.fingerprints()
        stale = wanted.join(project.store.read(RUN_STATE), on=wanted.columns, how="anti")
        if not stale.is_empty() or boards:
            _materialise(project, sources, stale, wanted if boards else stale, say)
    return _report(project, wanted.select("agent_id", "methodology_version"), stale)


def _materialise(
    project: Project,
    sources: Sources,
    stale: pl.DataFrame,
    boards_of: pl.DataFrame,
    say: Callable[[str], None],
) -> None:
    from agent_eval.defs.launch import Launch  # Dagster costs a second: only when there is work

    launch = Launch.at(project)
    agents, versions = stale["agent_id"].unique().to_list(), stale["methodology_version"].unique().to_list()
    with launch.taking_over(project.store):
        launch.observe(sources, agents=agents, versions=versions)
        for done in launch.materialise(stale, _not_taken_in(project, sources, agents), boards_of):
            say(done)
        is_gone = ~pl.col("agent_id").is_in(project.with_sessions[0])
        project.store.upsert(RUN_STATE, stale.filter(~is_gone), run_id=launch.last_run_id)
        project.store.delete(RUN_STATE, stale.filter(is_gone).select("agent_id", "methodology_version"))
        launch.forget(set(agents) - set(project.known_agents()))


def _not_taken_in(project: Project, sources: Sources, agents: Sequence[str]) -> set[str]:
    """The agents whose stored rows were read from other session files than those of now."""
    held = dict(project.store.read(table("agents"), columns=["agent_id", "taken_in"]).iter_rows())
    return {a for a in agents if held.get(a) != taken_in(sources.agent_sessions[a])}


def _report(project: Project, wanted: pl.DataFrame, stale: pl.DataFrame) -> RunReport:
    errors = project.store.read(table("import_errors"), wanted.select("agent_id").unique())
    refusals = [Refusal(row["file"], row["line"], row["reason"]) for row in errors.iter_rows(named=True)]
    for source in (project.declared, project.with_sessions, project.human_ratings, project.verdicts):
        refusals += source[1]
    refusals += cluster_refusals(project)
    refusals += [Refusal(str(p.file), p.line or 0, p.reason) for p in project.registry.problems]
    asked = pl.concat(
        project.store.read(table(name), wanted, columns=["judge", "status"])
        for name in ("turn_judgments", "conversation_judgments")
    ).filter(~pl.col("judge").is_in(["rule", "human"]), pl.col("status").is_in(["scored", "unscored"]))
    return RunReport(
        stale=stale,
        refusals=tuple(refusals),
        warnings=_warnings(project),
        n_asked=asked.height,
        n_unscored=asked.filter(pl.col("status") == "unscored").height,
    )


def _warnings(project: Project) -> tuple[str, ...]:
    declared, with_sessions = project.declared[0], set(project.with_sessions[0])
    categories = {t.category for m in project.registry.all() for t in m.templates}
    ratings = project.human_ratings[0]
    rated = project.store.read(table("conversations"), ratings.select("agent_id").unique())
    found: list[str] = []
    for agent, entry in declared.items():
        if agent not in with_sessions:
            found.append(f"Agent {agent} stands in agents.yaml but has no sessions.")
        if entry.category and entry.category not in categories:
            found.append(
                f"Agent {agent} has category {entry.category!r}, for which no version has a template."
            )
    undeclared = sorted(with_sessions - set(declared))
    found += [
        f"Agent {a} has no entry in agents.yaml: without a category it has no template." for a in undeclared
    ]
    found += [f"{name} is set, and means nothing here." for name in unknown_variables()]
    return (
        *found,
        *orphan_ratings(ratings, rated),
        *unasked_ratings(
            ratings,
            {m.version: m for m in project.registry.all()},
            {agent: entry.category for agent, entry in declared.items()},
        ),
        *(f"{p.file}: {p.reason}" for p in project.registry.frozen_problems()),
    )
