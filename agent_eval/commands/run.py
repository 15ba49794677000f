"""Implement `agent-eval run`: ingest new data, materialise stale assets with Dagster, and record their inputs."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from agent_eval.errors import ConfigurationError
from agent_eval.formats.plain_text import count_of
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.inputs.human_ratings import idle_ratings, outdated_ratings, unasked_ratings
from agent_eval.judge.prompts.personal_data import counted
from agent_eval.judge.protocol import CANNOT_TELL
from agent_eval.judge.rubric import orphan_ratings
from agent_eval.metrics.base import ENDED, NO_REPLY
from agent_eval.project import Project
from agent_eval.project.clusters import outdated_pairs
from agent_eval.project.clusters import refusals as cluster_refusals
from agent_eval.project.data_versions import Sources, read_sources
from agent_eval.project.fingerprints import CLUSTERING, Fingerprints, stale_places
from agent_eval.project.gates import checked_gates, scenario_file_problems
from agent_eval.project.notify.notifications import notify_changes
from agent_eval.settings import unknown_variables
from agent_eval.tables import table
from agent_eval.tables.judging import is_imported_judge
from agent_eval.tables.schema import below
from agent_eval.transcripts.admission import ANY
from agent_eval.transcripts.sessions import line_in_session_file

_PAIR = ["agent_id", "methodology_version"]
_ASKED = {
    "turn_judgments": "unscored_reason",
    "conversation_judgments": "unscored_reason",
    "rubric_ratings": "reason",
}
"""Table → column with the reason why there is no value."""
_FREE = ("human", "rule", "recorded", "none")


@dataclass(frozen=True)
class RunReport:
    """Hold the result of a run for the requested agents and versions."""

    stale: pl.DataFrame  # pairs that could change: something that they are computed from was stale
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]
    n_asked: int  # judgments requested from a model
    n_unscored: int
    n_replaced: int = 0  # answers to earlier wordings, in place of answers that were lost
    is_nothing_scored: bool = False  # a model was called in this run but scored nothing
    n_computed: int = 0  # pairs that were computed, because what they read did change
    n_gated: int = 0  # pairs of which only the gates were evaluated
    is_ingested: bool = False  # some agent's files were read
    spent: str = ""  # cost of the models as text; '' if none was called
    agents: tuple[str, ...] = ()  # requested agents; empty: all

    @property
    def exit_code(self) -> int:
        """Return the exit code.

        It is 0 on success, 1 if records were rejected, judgments are unscored or earlier answers replace lost ones,
        and 2 if no judge request was scored.
        """
        if self.is_nothing_scored or (self.n_asked and self.n_unscored == self.n_asked):
            return 2
        return 1 if self.refusals or self.n_unscored or self.n_replaced else 0


def run(
    project: Project,
    agents: Sequence[str] = (),
    versions: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    *,
    boards: bool = False,
) -> RunReport:
    """Bring every table up to date for the given agents and versions (default: all).

    If `boards` is true, the boards and the report are written even if they are up to date.

    Raises:
        NotFoundError: If a given agent has neither sessions nor rows, or if a given version is not published.
        EditedVersionError: If a requested version was edited after it was frozen; nothing is read or written.
        GateRulesError: If a gate in the settings refers to something that does not exist.
    """
    project.registry.refuse_edited(versions or project.registry.frozen)
    checked_gates(project)
    wanted_agents = project.some_agents(agents)
    for version in versions:
        project.registry.get(version)
    if project.judges.own is not None:
        _ = project.judges.runtime  # rejects a cap that cannot be enforced, before any work
    with project.store.exclusive_section(
        "run"
    ):  # includes hashing, so that the last run to finish has read the newest files
        sources, stale = what_is_stale(project, wanted_agents, versions)
        in_scope = list(versions) or project.registry.versions
        boards_of = in_scope if boards else _newly_superseded(project, in_scope)
        computed = stale.clear()
        if not stale.is_empty() or boards_of:
            computed = _materialise(project, sources, stale, boards_of, say, publishes=boards)
    pairs = pl.DataFrame(
        list(itertools.product(wanted_agents, in_scope)), schema=dict.fromkeys(_PAIR, pl.String), orient="row"
    )
    with project.store.reading():
        report = _report(project, pairs, _pairs_of(stale), computed)
    unsent = notify_changes(project)
    return replace(report, agents=tuple(agents), warnings=(*report.warnings, *filter(None, [unsent])))


def backfill(project: Project, agents: Sequence[str] = (), versions: Sequence[str] = ()) -> list[str]:
    """Start backfills of the given agents and versions (default: all) on the workers; return lines to print.

    Raises:
        ConfigurationError: If the store is a file, or no daemon uses DAGSTER_HOME.
        EditedVersionError: If a requested version was edited after it was frozen.
        RunError: If a backfill is in progress.
        NotFoundError: If a given agent has neither sessions nor rows, or if a given version is not published.
    """
    if not project.store.is_shared:
        raise ConfigurationError(
            f"The store is the file {project.store.attach}, which one run uses at a time: use `agent-eval run`. For several "
            "workers see docs/howto/use-several-workers.md."
        )
    project.registry.refuse_edited(versions or project.registry.frozen)
    for version in versions:
        project.registry.get(version)
    sources, stale = what_is_stale(project, project.some_agents(agents), versions)
    from agent_eval.definitions import defs  # slow imports (1 s)
    from agent_eval.defs.backfill import start_backfills
    from agent_eval.defs.launch import Launch

    launch = Launch.at(project, defs, sources)
    with project.store.exclusive_section("run", wait=False) as is_idle:
        if is_idle:  # otherwise the sensor observes the sources
            with launch.close_abandoned_runs():
                launch.observe(agents=sorted(sources.agent_sessions), versions=sorted(sources.scoring_spec))
    lines = start_backfills(launch, stale)
    if not lines:
        return [
            "Nothing is stale that workers can share; `agent-eval run` computes clusters, gates and boards."
        ]
    waits = "" if is_idle else "A run uses the store now; the backfill continues when it ends. "
    return [
        *lines,
        f"{waits}Lost runs are retried. `redo_stale` waits until the end, then computes clusters, gates and boards.",
    ]


def what_is_stale(
    project: Project, agents: Sequence[str], versions: Sequence[str]
) -> tuple[Sources, pl.DataFrame]:
    """Return the current sources, and a frame with one row per stale asset, agent_id and methodology_version."""
    version_names = list(versions) or list(project.registry.versions)
    sources = read_sources(project, agents, version_names)
    return sources, stale_places(project, Fingerprints.of(project, sources), agents, version_names)


def _pairs_of(places: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs with a table other than the gates among these partitions."""
    return places.filter(pl.col("asset") != "gate_results").select(_PAIR).drop_nulls().unique()


def _materialise(
    project: Project,
    sources: Sources,
    stale: pl.DataFrame,
    boards_of: Sequence[str],
    say: Callable[[str], None],
    *,
    publishes: bool,
) -> pl.DataFrame:
    """Compute what is stale, and return the partitions that were computed."""
    from agent_eval.definitions import defs  # slow import (1 s), only if there is work
    from agent_eval.defs.launch import Launch

    launch = Launch.at(project, defs, sources)
    agents = sorted({*sources.agent_sessions})
    with launch.close_abandoned_runs():
        launch.observe(agents=agents, versions=sorted({*sources.scoring_spec}))
        for done in launch.materialise(stale, boards_of):
            say(done)
        if (others := _with_changed_clusters(project)) is not None:
            launch.sources, of_others = others
            for done in launch.materialise(of_others, ()):
                say(done)
        launch.forget(set(agents) - set(project.known_agents()))
        launch.purge()
        if publishes:
            say(launch.publish())  # last, so that tables are kept if the report fails
    return launch.computed


def _with_changed_clusters(project: Project) -> tuple[Sources, pl.DataFrame] | None:
    """Return the sources and the partitions of other agents and versions whose clusters this run changed, if any."""
    changed = sorted(outdated_pairs(project))
    if not changed:
        return None
    pairs = pl.DataFrame(changed, schema=dict.fromkeys(_PAIR, pl.String), orient="row")
    sources, stale = what_is_stale(project, pairs["agent_id"].unique().sort().to_list(), ())
    of_clusters = stale.filter(pl.col("asset").is_in([*CLUSTERING, *below(CLUSTERING)]))
    of_versions = of_clusters.filter(pl.col("agent_id").is_null())
    return sources, pl.concat([of_versions, of_clusters.join(pairs, on=_PAIR, how="semi")])


def _newly_superseded(project: Project, versions: Collection[str]) -> list[str]:
    """Return the versions whose stored board has a different superseding version than the registry."""
    stored = project.store.read(
        table("leaderboard"), columns=["methodology_version", "superseded_by"]
    ).unique()
    now = {m.version: m.superseded_by for m in project.registry.all()}
    return sorted({v for v, successor in stored.iter_rows() if v in versions and successor != now.get(v)})


def _report(project: Project, pairs: pl.DataFrame, stale: pl.DataFrame, computed: pl.DataFrame) -> RunReport:
    errors = project.store.read(table("import_errors"), pairs.select("agent_id").unique())
    refusals = [Refusal(row["file"], row["line"], row["reason"]) for row in errors.iter_rows(named=True)]
    for source in (project.declared, project.with_sessions, project.human_ratings, project.verdicts):
        refusals += source[1]
    refusals += cluster_refusals(project)
    refusals += [problem for suite in project.suites for problem in suite.problems]
    refusals += [Refusal(str(p.file), p.line or 0, p.reason) for p in project.registry.problems]
    judgment_counts = pl.concat(
        project.store.counts(table(name), pairs, columns=["judge", "status", "earlier_profile", why]).rename(
            {why: "reason"}
        )
        for name, why in _ASKED.items()
    ).filter(
        ~pl.col("judge").is_in(_FREE) & ~is_imported_judge(),
        pl.col("status").is_in(["scored", "unscored"]),
    )
    is_replaced = pl.col("earlier_profile").is_not_null() & (not project.judges.answers.keeps_earlier)
    is_unscored = (pl.col("status") == "unscored") & (pl.col("reason").fill_null("") != CANNOT_TELL)
    return RunReport(
        stale=stale,
        refusals=tuple(refusals),
        warnings=_warnings(project),
        n_asked=int(judgment_counts["n"].sum()),
        n_unscored=int(judgment_counts.filter(is_unscored)["n"].sum()),
        n_replaced=int(judgment_counts.filter(is_replaced)["n"].sum()),
        is_nothing_scored=_is_nothing_scored(project),
        n_computed=(n_computed := _pairs_of(computed).height),
        n_gated=computed.select(_PAIR).drop_nulls().unique().height - n_computed,
        is_ingested="sessions" in computed["asset"],
        spent=_spent(project),
    )


def _is_nothing_scored(project: Project) -> bool:
    if project.judges.own is None:
        return False
    budget = project.judges.runtime.budget
    return budget.n_unscored > 0 and budget.n_scored == 0


def _spent(project: Project) -> str:
    if project.judges.own is None:
        return ""
    budget = project.judges.runtime.budget
    cost = "cost unknown" if budget.known_cost_usd is None else f"${budget.cost_usd:.4f}"
    left = f", {count_of(budget.n_unscored, 'answer')} unscored" if budget.n_unscored else ""
    hidden = f", hidden: {counted(project.judges.redactor.counts)}" if project.settings.judge_redact else ""
    return f"{budget.n_calls:,} judge calls, {cost}{left}{hidden}"


def _warnings(project: Project) -> tuple[str, ...]:
    declared, with_sessions = project.declared[0], set(project.with_sessions[0])
    categories = {t.category for m in project.registry.all() for t in m.templates}
    ratings = project.human_ratings[0]
    rated = project.store.read(table("conversations"), ratings.select("agent_id").unique())
    names_text = pl.any_horizontal(pl.col("turn_index", "text_hash").is_not_null())
    of_texts = ratings.filter(names_text).select("agent_id", "conversation_id").unique()
    turns = project.store.read(
        table("turns"), of_texts, columns=[*of_texts.columns, "turn_index", "messages"]
    )
    current = ratings.join(outdated_ratings(ratings, turns), on=["file", "line"], how="anti")
    texts: list[str] = []
    for agent, entry in declared.items():
        if agent not in with_sessions:
            texts.append(f"Agent {agent} is in agents.yaml but has no sessions.")
        if entry.category and entry.category not in categories:
            texts.append(
                f"Agent {agent} has category {entry.category!r}, which has no template in any version."
            )
    undeclared = sorted(with_sessions - set(declared))
    texts += [
        f"Agent {a} has no entry in agents.yaml, so it has no category and no template." for a in undeclared
    ]
    texts += [f"Ignoring unknown environment variable {name}." for name in unknown_variables()]
    return (
        *texts,
        *_unnamed(project),
        *_unknown_versions(project),
        *orphan_ratings(ratings, rated, turns),
        *unasked_ratings(
            ratings,
            {m.version: m for m in project.registry.all()},
            {agent: entry.category for agent, entry in declared.items()},
        ),
        *idle_ratings(current, _judged_where(project, current)),
        *(f"{p.file}: {p.reason}" for p in project.registry.frozen_problems()),
        *(f"{p.file}: {p.reason}" for p in project.registry.place_problems),
        *(
            f"Scenario {p.file}{f':{p.line}' if p.line else ''}: {p.reason}"
            for p in scenario_file_problems(project)
        ),
    )


def _unknown_versions(project: Project) -> Iterator[str]:
    """Yield a warning with file and line for each session that was run for a version that does not exist."""
    version_names = project.registry.versions
    columns = ["agent_id", "session_id", "methodology_versions"]
    rows = project.store.read(table("sessions"), columns=columns).explode("methodology_versions")
    unknown = rows.filter(~pl.col("methodology_versions").is_in([ANY, *version_names])).sort(columns)
    for agent, session, version in unknown.iter_rows():
        folder = project.home.sessions / agent / session
        yield (
            f"{agent}/{session}/session.yaml:{line_in_session_file(folder, 'methodology_versions', version)}: "
            f"methodology_versions names {version}, which does not exist, so the session does not count under it. Versions: "
            f"{', '.join(version_names)}. Correct it, or add methodologies/{version}.yaml."
        )


def _judged_where(project: Project, ratings: pl.DataFrame) -> pl.DataFrame:
    """Return the metrics that apply to the conversations that people rated, with the turns they apply to."""
    rated = ratings.select("agent_id", "conversation_id").drop_nulls().unique()
    columns = ["agent_id", "conversation_id", "metric", "unscored_reason"]
    turns = project.store.read(table("turn_judgments"), rated, columns=[*columns, "turn_index"])
    whole = project.store.read(table("conversation_judgments"), rated, columns=columns)
    rows = pl.concat([turns, whole], how="diagonal")
    return rows.filter(~pl.col("unscored_reason").is_in([NO_REPLY, ENDED]).fill_null(value=False)).unique()


def _unnamed(project: Project) -> Iterator[str]:
    """Yield a warning with the reason if a judge model did not name some error clusters."""
    registry = project.store.read(table("error_registry"), columns=["naming_problem"])
    problems = sorted(registry["naming_problem"].drop_nulls())
    if problems:
        yield (
            f"{len(problems)} error clusters keep the name of the rule, because the judge model did not name them: {problems[0]} "
            "The next run with the model requests names again."
        )
