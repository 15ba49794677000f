"""`agent-eval run`: take in what is new, materialise what is stale through Dagster, keep what it was made from."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval.errors import AgentEvalError
from agent_eval.judge.rubric import orphan_ratings
from agent_eval.project import Project
from agent_eval.sources import Sources, read_sources
from agent_eval.tables import table
from agent_eval.transcripts.records import Refusal

RUN_STATE = table("run_state")


class UnknownAgentError(AgentEvalError):
    """An agent was named that the project does not have."""

    def __init__(self, agent: str, known: Collection[str]) -> None:
        super().__init__(
            f"Agent {agent!r} is not known. Known: {', '.join(sorted(known)) or 'none yet'}. "
            "Import transcripts with `agent-eval import FORMAT PATH --agent ID`."
        )


@dataclass(frozen=True)
class RunReport:
    """What a run did: pairs made anew, records refused, judgments that a failing judge left unscored."""

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


def known_agents(project: Project) -> list[str]:
    """Agents with a session folder now, or with rows from an earlier run."""
    earlier = project.store.read(RUN_STATE)["agent_id"].to_list()
    return sorted({*project.with_sessions[0], *earlier})


def run(
    project: Project,
    agents: Sequence[str] = (),
    versions: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Bring every table up to date for the named agents and versions (default: all).

    Raises:
        UnknownAgentError: If an agent is named that has neither sessions nor rows.
        UnknownMethodologyError: If a version is named that is not published.
    """
    known = known_agents(project)
    for agent in agents:
        if agent not in known:
            raise UnknownAgentError(agent, known)
    for version in versions:
        project.registry.get(version)
    sources = read_sources(project, list(agents) or known, list(versions) or list(project.registry.versions))
    wanted = sources.fingerprints()
    stale = wanted.join(project.store.read(RUN_STATE), on=wanted.columns, how="anti")
    if not stale.is_empty():
        _materialise(project, sources, stale, say)
    return _report(project, stale)


def _materialise(project: Project, sources: Sources, stale: pl.DataFrame, say: Callable[[str], None]) -> None:
    from agent_eval.defs.launch import Launch  # Dagster costs a second: only when there is work

    gone = sorted(set(stale["agent_id"]) - set(project.with_sessions[0]))
    launch = Launch.at(project)
    launch.observe(
        sources,
        agents=stale["agent_id"].unique().to_list(),
        versions=stale["methodology_version"].unique().to_list(),
    )
    for done in launch.materialise(stale):
        say(done)
    project.store.upsert(RUN_STATE, stale, run_id=launch.last_run_id)
    if gone:
        project.store.delete(RUN_STATE, pl.DataFrame({"agent_id": gone}))
        launch.forget(gone)


def _report(project: Project, stale: pl.DataFrame) -> RunReport:
    agents = stale.select("agent_id").unique()
    errors = project.store.read(table("import_errors"), agents)
    refusals = [Refusal(row["file"], row["line"], row["reason"]) for row in errors.iter_rows(named=True)]
    for source in (project.declared, project.with_sessions, project.human_ratings, project.verdicts):
        refusals += source[1]
    refusals += [Refusal(str(p.file), p.line or 0, p.reason) for p in project.registry.problems]
    asked = pl.concat(
        project.store.read(table(name), stale.select("agent_id", "methodology_version")).filter(
            ~pl.col("judge").is_in(["rule", "human"]), pl.col("status").is_in(["scored", "unscored"])
        ).select("status")
        for name in ("turn_judgments", "conversation_judgments")
    )  # fmt: skip
    return RunReport(
        stale=stale,
        refusals=tuple(refusals),
        warnings=_warnings(project),
        n_asked=asked.height,
        n_unscored=asked.filter(pl.col("status") == "unscored").height,
    )


def _warnings(project: Project) -> tuple[str, ...]:
    with_sessions = set(project.with_sessions[0])
    without = sorted(set(project.declared[0]) - with_sessions)
    undeclared = sorted(with_sessions - set(project.declared[0]))
    orphans = orphan_ratings(project.human_ratings[0], project.store.read(table("conversations")))
    frozen = project.registry.frozen_problems()
    return (
        *(f"Agent {a} stands in agents.yaml but has no sessions." for a in without),
        *(
            f"Agent {a} has sessions but no entry in agents.yaml: without a category it has no template."
            for a in undeclared
        ),
        *orphans,
        *(f"{p.file}: {p.reason}" for p in frozen),
    )
