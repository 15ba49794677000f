"""Cluster failures in the project's store: only one process at a time reads, extends and writes the registry.

Package `clusters` assigns failures to clusters. This module reads and writes the tables and reads the files with
manual overrides.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TypedDict

import polars as pl
import yaml

from agent_eval.clusters.cluster_registry import REGROUPING, Grown, Space, new_texts, register, targets
from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.embedding import Embedder, Vectors, embedder
from agent_eval.clusters.failures import (
    FACETS,
    FAILURE_METRICS,
    RUN_COLUMNS,
    TOOL_COLUMNS,
    with_findings,
    with_run_key,
)
from agent_eval.clusters.failures import failures as found_in
from agent_eval.clusters.issues.lifecycle import error_issues, issue_costs
from agent_eval.clusters.issues.sightings import issue_runs
from agent_eval.clusters.naming import (
    Case,
    ClusterNames,
    Namer,
    merge_proposed,
    name_clusters,
    open_proposals,
)
from agent_eval.clusters.overrides import BY as HUMAN
from agent_eval.clusters.overrides import (
    OverrideEntry,
    apply_overrides,
    overrides_hash,
    read_overrides,
    separated,
)
from agent_eval.clusters.rates import error_rates, of_valid_runs, runs
from agent_eval.clusters.taxonomies.taxonomy import Categoriser, Taxonomy, categorised, read_taxonomy
from agent_eval.clusters.texts import BLOCK
from agent_eval.clusters.trends import compared, earlier_runs
from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.atomic_files import write_atomically
from agent_eval.formats.files import files_in
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import clean
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.yaml import YamlError, read_text
from agent_eval.gates import COLUMNS
from agent_eval.judge.clusters.category import categories_of, category_questions
from agent_eval.judge.clusters.naming import names_of, naming_questions
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import BlindedTerms
from agent_eval.project.project import Project
from agent_eval.storage import Store
from agent_eval.tables import table
from agent_eval.tables.frames import Sessions, ToolCalls, Transcripts

_JUDGMENTS = table("turn_judgments")
_REGISTRY, _MEMBERS, _EVENTS, _VECTORS = (
    table(name) for name in ("error_registry", "error_members", "error_events", "failure_vectors")
)


ACCEPTED = "accepted.yaml"
ACCEPTED_HEADER = (
    "# Written by `agent-eval errors --accept` and `--undo`; comments of your own are not kept.\n"
)


@dataclass(frozen=True)
class Decided:
    """Hold the file of accepted merges, and the clusters whose merges were accepted and undone."""

    file: Path
    accepted: Sequence[str]
    undone: Sequence[str]


def cluster_overrides(project: Project) -> tuple[list[OverrideEntry], list[Refusal]]:
    """Read data/clusters/*.yaml; return the entries, ordered by file and line, and the refused entries."""
    entries: list[OverrideEntry] = []
    refusals: list[Refusal] = []
    for path, reason in files_in(project.home.clusters, ".yaml"):
        file = clean(path.name)
        if reason:
            refusals.append(Refusal(file, 0, reason))
            continue
        try:
            file_entries, refused = read_overrides(file, read_text(path))
        except YamlError as error:
            file_entries, refused = [], [Refusal(file, error.line, error.reason)]
        entries += file_entries
        refusals += refused
    return entries, refusals


def cluster_version(project: Project) -> str:
    """Return the data version of the inputs of clustering: manual overrides, embedding, taxonomy, merges and splits."""
    events = project.store.read(_EVENTS, columns=["event_id", "kind", "by"])
    is_made = (pl.col("kind") != "merge proposed") & ~pl.col("by").is_in([HUMAN, REGROUPING])
    event_ids = sorted(events.filter(is_made)["event_id"])
    settings = project.settings
    merges = [settings.clusters] if settings.clusters != "people" else []
    entries = cluster_overrides(project)[0]
    taxonomy = taxonomy_of(project)
    above = [] if taxonomy is None else [taxonomy.version]
    return digest("clusters", overrides_hash(entries), settings.cluster_embedding, event_ids, *merges, *above)


def taxonomy_of(project: Project) -> Taxonomy | None:
    """Return the taxonomy of the settings; None if it is that of the failure labels.

    Raises:
        ConfigurationError: If it is unknown or invalid.
    """
    return read_taxonomy(project.settings.taxonomy, project.home.root)


def failure_questions(project: Project, pairs: pl.DataFrame, **values: object) -> pl.DataFrame:
    """Return the stored turn judgments of failure metrics for these pairs, with the columns that clustering needs.

    `values` limits the result to rows with these values.
    """
    names = sorted({*FAILURE_METRICS, *(m.name for m in project.metrics.turn if m.is_failure)})
    keys = pairs.join(pl.DataFrame({"metric": names}), how="cross").with_columns(
        pl.lit(value).alias(name) for name, value in values.items()
    )
    return project.store.read(_JUDGMENTS, keys, columns=[*COLUMNS["turn_judgments"], *FACETS])


def register_failures(
    project: Project, pairs: pl.DataFrame, *, run_id: str, watch: Watch | None = None
) -> None:
    """Register the failures of many pairs (agent_id, methodology_version) in the cluster registry and name the clusters.

    The judgments are read one agent at a time. A cluster depends on the failures that are already assigned to it, so
    all failures are registered before the tables are computed: the result does not depend on the number of runs.
    """
    members = project.store.read(_MEMBERS, columns=[*BLOCK, "text_hash", "first_run", "first_failure"])
    nothing = found_in(_JUDGMENTS.empty(), table("tool_calls").empty())
    failures = new_texts(nothing.with_columns(run_key=pl.lit(None, dtype=pl.String)), members)
    for of_agent in pairs.unique().sort("agent_id").partition_by("agent_id"):
        failure_judgments = failure_questions(project, of_agent, status="scored", is_effective=True)
        conversations = failure_judgments.select("agent_id", "conversation_id").unique()
        calls = project.store.read(table("tool_calls"), conversations, columns=TOOL_COLUMNS)
        transcripts = project.store.read(table("transcripts"), of_agent, columns=RUN_COLUMNS)
        sessions = project.store.read(table("sessions"), of_agent.select("agent_id").unique())
        new = with_run_key(found_in(failure_judgments, calls), transcripts, sessions)
        failures = new_texts(pl.concat([failures, new]), members)
    namer, categoriser = judge_as_namer(project, watch), judge_as_categoriser(project, watch)
    cluster_failures(project, failures, run_id=run_id, namer=namer, categoriser=categoriser)


def cluster_failures(
    project: Project,
    failures: pl.DataFrame,
    *,
    run_id: str,
    namer: Namer | None = None,
    categoriser: Categoriser | None = None,
) -> Grown:
    """Assign each failure to a cluster and extend the stored registry; other processes wait until this is done."""
    today = _today()
    with _alone(project.store, run_id) as state:
        grown = register(*state.tables, failures, space(project, run_id), seen_at=today)
        state.keep(grown.registry, grown.members, grown.events)
        if namer is not None:
            naming = name_clusters(*state.tables, space(project, run_id), namer, at=today)
            state.keep(naming.registry, state.tables[1], naming.events)
        entries = cluster_overrides(project)[0]
        if project.settings.clusters == "model":
            proposed = project.store.read(_EVENTS)
            merged = merge_proposed(state.tables[0], proposed, separated(entries), at=today)
            state.keep(merged.registry, state.tables[1], merged.events)
        applied = apply_overrides(*state.tables, entries, at=today)
        state.keep(applied.registry, applied.members, applied.events)
        sorted_in = categorised(*state.tables, space(project, run_id), taxonomy_of(project), categoriser)
        state.keep(sorted_in, state.tables[1])
        return register(*state.tables, failures, space(project, run_id), seen_at=today)


def clustered(
    project: Project,
    turn_judgments: pl.DataFrame,
    tool_calls: ToolCalls,
    transcripts: Transcripts,
    sessions: Sessions,
    *,
    run_id: str,
    watch: Watch | None = None,
    is_registered: bool = False,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return tables failures, error_clusters, error_rates, issue_runs and error_issues, computed from these judgments.

    If a judge model is configured, it names new and changed clusters, unless `register_failures` has already done
    so.

    Args:
        project: The project; its cluster registry is extended.
        turn_judgments: The judgments that contain the failures.
        tool_calls: The tool calls of the same agents.
        transcripts: The transcripts of the same agents; they define which conversations count.
        sessions: The sessions of the same agents; they define the run of each conversation.
        run_id: The run id that is written to every new row.
        watch: A function that receives the progress of the judge model.
        is_registered: Whether the failures are already registered.
    """
    failures = with_run_key(found_in(turn_judgments, tool_calls), transcripts, sessions)
    ask = (judge_as_namer(project, watch), judge_as_categoriser(project, watch))
    namer, categoriser = (None, None) if is_registered else ask
    grown = cluster_failures(project, failures, run_id=run_id, namer=namer, categoriser=categoriser)
    grown = replace(grown, failures=with_findings(grown.failures))
    pairs = transcripts.select("agent_id", "methodology_version").unique()  # without removed agents
    earlier, sightings = (
        of_valid_runs(project.store.read(table(name), pairs), sessions)
        for name in ("error_rates", "issue_runs")
    )
    rated = error_rates(grown.failures, turn_judgments, runs(transcripts, sessions), grown.registry, earlier)
    trend = compared(rated, earlier_runs(rated), grown.registry)
    runs_of_issues = issue_runs(
        grown.failures,
        turn_judgments,
        transcripts,
        sessions,
        grown.registry,
        sightings,
    )
    issues = error_issues(runs_of_issues, grown.registry, _costs(project, grown.failures))
    above = taxonomy_of(project)
    clusters = error_clusters(
        grown.failures, turn_judgments, grown.registry, trend, above.version if above else None
    )
    return grown.failures, clusters, rated, runs_of_issues, issues


def _costs(project: Project, failures: pl.DataFrame) -> pl.DataFrame:
    """Return what the conversations with failures cost, by cluster (`issue_costs`)."""
    where = failures.select("agent_id", "conversation_id").unique()
    keys = (
        failures.select("methodology_version", *where.columns)
        .unique()
        .with_columns(metric=pl.lit("goal_completion"), is_effective=pl.lit(value=True))
    )
    key = ["methodology_version", *where.columns]
    return issue_costs(
        failures,
        project.store.read(
            table("conversations"), where, columns=[*where.columns, "outcome_class", "cost_usd"]
        ),
        project.store.read(table("turns"), where, columns=[*where.columns, "latency_ms"]),
        project.store.read(table("conversation_judgments"), keys, columns=[*key, "value"]),
    )


def outdated_pairs(project: Project) -> set[tuple[str, str]]:
    """Return the pairs (agent, version) whose stored clusters differ from the registry, which later runs changed.

    A cluster differs if its title, cause, severity or category did, if it was merged, or if texts of the pair left it when an
    earlier run was added.
    """
    described = ["title", "root_cause", "severity", "category", "category_by"]
    pair = ["agent_id", "methodology_version"]
    rows = project.store.read(table("error_clusters"), columns=[*pair, "cluster_id", *described])
    if rows.is_empty():
        return set()
    registry = project.store.read(_REGISTRY, columns=["cluster_id", "merged_into", *described])
    is_other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_now")) for name in described)
    registered_rows = rows.join(registry, on="cluster_id", suffix="_now")
    outdated = registered_rows.filter(is_other | pl.col("merged_into").is_not_null()).select(pair)
    events = project.store.read(_EVENTS, pl.DataFrame({"by": [REGROUPING]}), columns=["cluster_id"]).unique()
    left = rows.join(outdated, on=pair, how="anti").join(events, on="cluster_id", how="semi")
    if not left.is_empty():
        columns = [*pair, *BLOCK, "text_hash", "cluster_id"]
        of_clusters = left.select(*pair, "cluster_id")
        failures = project.store.read(table("failures"), of_clusters, columns=columns)
        texts = failures.select("text_hash").drop_nulls().unique()
        members = project.store.read(_MEMBERS, texts, columns=[*BLOCK, "text_hash", "cluster_id"])
        now = members.with_columns(pl.col("cluster_id").replace_strict(targets(registry)).alias("now"))
        both = failures.join(now.drop("cluster_id"), on=[*BLOCK, "text_hash"], nulls_equal=True)
        outdated = pl.concat([outdated, both.filter(pl.col("now") != pl.col("cluster_id")).select(pair)])
    return {(agent, version) for agent, version in outdated.unique().iter_rows()}


def judge_as_namer(project: Project, watch: Watch | None = None) -> Namer | None:
    """Return a namer of clusters that asks the judge model in the settings; None if no judge model is set.

    Agent names are hidden from the model.
    """
    judge = project.judges.own
    return (
        None
        if judge is None
        else Namer(judge.models[0], partial(names_of, **_asked_with(project, judge, watch)))
    )


def judge_as_categoriser(project: Project, watch: Watch | None = None) -> Categoriser | None:
    """Return a function that asks the judge model for categories; None without a judge model or taxonomy."""
    judge = project.judges.own
    if judge is None or taxonomy_of(project) is None:
        return None
    return Categoriser(judge.models[0], partial(categories_of, **_asked_with(project, judge, watch)))


def questions_about_clusters(
    project: Project,
) -> tuple[Sequence[QuestionSequence], Sequence[QuestionSequence]]:
    """Return the questions for the names and for the categories of the registered clusters; nothing is asked or written."""
    judge = project.judges.own
    if judge is None:
        return [], []
    cases_to_name: list[Case] = []
    sorted_in: dict[str, tuple[Case, Mapping[str, str]]] = {}

    def names(cases: Sequence[Case]) -> ClusterNames:
        cases_to_name.extend(cases)
        return ClusterNames()

    def categories(cases: Sequence[Case], candidates: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
        sorted_in.update({case.cluster_id: (case, candidates[case.cluster_id]) for case in cases})
        return {}

    tables = project.store.read(_REGISTRY), project.store.read(_MEMBERS)
    vectors = space(project, None)
    name_clusters(*tables, vectors, Namer(judge.models[0], names), at=_today())
    categorised(*tables, vectors, taxonomy_of(project), Categoriser(judge.models[0], categories))
    withheld = _withheld(project)
    of_category = {name: candidates for name, (_, candidates) in sorted_in.items()}
    cases = [case for case, _ in sorted_in.values()]
    return naming_questions(cases_to_name, withheld), category_questions(cases, of_category, withheld)


def _withheld(project: Project) -> Collection[BlindedTerms]:
    return project.blinded_terms(project.known_agents()).values()


class _AskedWith(TypedDict):
    """Define what questions about clusters are asked with."""

    panel: Panel
    lookup: Callable[[Collection[str]], pl.DataFrame]
    withheld: Iterable[BlindedTerms]
    watch: Watch | None


def _asked_with(project: Project, judge: JudgeSpec, watch: Watch | None) -> _AskedWith:
    return {
        "panel": Panel(judge, project.judges.runtime),
        "lookup": project.judges.answers.find,
        "withheld": _withheld(project),
        "watch": watch,
    }


def unknown_overrides(project: Project) -> tuple[Refusal, ...]:
    """Return the manual overrides that cannot be applied to the current registry; nothing is written."""
    entries = cluster_overrides(project)[0]
    if not entries:
        return ()
    return apply_overrides(
        project.store.read(_REGISTRY), project.store.read(_MEMBERS), entries, at=_today()
    ).refused


def proposals(project: Project) -> pl.DataFrame:
    """Return the rows of error_events with merges that a model proposed and that are not decided, by cluster."""
    entries = cluster_overrides(project)[0]
    decided = {e.override.cluster for e in entries if "merge_into" in e.override.model_fields_set}
    proposed = open_proposals(project.store.read(_EVENTS), project.store.read(_REGISTRY))
    return proposed.filter(~pl.col("cluster_id").is_in([*decided]))


def decide_proposals(project: Project, accepted: Sequence[str], undone: Sequence[str]) -> Decided:
    """Accept merges that models proposed, or undo accepted ones, in data/clusters/accepted.yaml.

    Args:
        project: The project; the next run applies the file.
        accepted: Clusters whose proposal is accepted; `all` for every open one.
        undone: Clusters whose accepted merge is undone, or whose merge by a model (setting `clusters`); `all` for every
            such merge. Other entries of the file are kept.

    Raises:
        NotFoundError: If a cluster has no open proposal, or no merge that can be undone; nothing is written.
        InputError: If the file was made invalid by hand; nothing is written.
    """
    file = project.home.clusters / ACCEPTED
    entries, refused = read_overrides(ACCEPTED, read_text(file)) if file.is_file() else ([], [])
    if refused:
        raise InputError(
            f"{file}:{refused[0].line}: {refused[0].reason}. Correct or delete this entry, then repeat the command."
        )
    written = [entry.override.model_dump(mode="json", exclude_unset=True) for entry in entries]
    into = dict(proposals(project).select("cluster_id", "other_id").iter_rows())
    registry = project.store.read(_REGISTRY)
    by_model = set(registry.filter(pl.col("merged_by") == "model")["cluster_id"]) - separated(entries)
    merges = dict.fromkeys([e["cluster"] for e in written if e.get("merge_into")] + sorted(by_model))
    accept = [*into] if "all" in accepted else list(dict.fromkeys(accepted))
    undo = [*merges] if "all" in undone else list(dict.fromkeys(undone))
    for cluster, cluster_ids, option in [
        *((name, into, "--accept") for name in accept),
        *((name, merges, "--undo") for name in undo),
    ]:
        if cluster not in cluster_ids:
            names = sorted(cluster_ids)
            raise NotFoundError(
                f"{option} {cluster}: there is no such merge. Allowed: all, or {', '.join(names[:10]) or 'none at present'}"
                f"{f' and {len(names) - 10} others' if len(names) > 10 else ''}; see agent-eval errors --proposals."
            )
    for entry in written:
        if entry["cluster"] in undo:
            entry.pop("merge_into", None)
    remaining_entries = [entry for entry in written if len(entry) > 1]
    remaining_entries += [{"cluster": cluster, "merge_into": into[cluster]} for cluster in accept]
    applies_again = project.settings.clusters == "model"
    separate = [cluster for cluster in undo if applies_again or cluster in by_model]
    remaining_entries += [{"cluster": cluster, "merge_into": None} for cluster in separate]
    if accept or undo:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, ACCEPTED_HEADER + yaml.safe_dump(remaining_entries, sort_keys=False))
    return Decided(file, accept, undo)


def consolidate_clusters(project: Project, *, run_id: str) -> pl.DataFrame:
    """Merge clusters with the same cause, split mixed clusters, and return the new rows of error_events.

    The next run updates the tables of the agents, because merges and splits are part of their data version.
    """
    with _alone(project.store, run_id) as state:
        consolidation = consolidate(*state.tables, space(project, run_id), at=_today())
        state.keep(consolidation.registry, consolidation.members, consolidation.events)
        return consolidation.events


def space(project: Project, run_id: str | None) -> Space:
    """Return the vector space of the project's texts; vectors are read from the store or computed by the model."""
    model = embedder(project.settings.cluster_embedding)
    return Space(partial(cached_vectors, project.store, model, run_id=run_id), model.radius)


def cached_vectors(store: Store, model: Embedder, texts: pl.DataFrame, *, run_id: str | None) -> Vectors:
    """Return one vector for each row of `texts` (text_hash, text); missing ones are computed, and stored if there is a run id."""
    text_keys = texts.select("text_hash").unique().with_columns(pl.lit(model.name).alias("model"))
    vector_rows = store.read(_VECTORS, text_keys)
    missing = texts.join(vector_rows, on="text_hash", how="anti").unique("text_hash").sort("text_hash")
    if not missing.is_empty():
        vectors = pl.Series("vector", model(missing["text"].to_list())).arr.to_list()
        rows = missing.select("text_hash", pl.lit(model.name).alias("model"), vectors)
        if run_id is not None:
            store.upsert(_VECTORS, rows, run_id=run_id)
        vector_rows = pl.concat([vector_rows, rows])
    rows = texts.select("text_hash").join(vector_rows, on="text_hash", how="left", maintain_order="left")
    flat: Vectors = rows["vector"].explode(empty_as_null=False).to_numpy()
    return flat.reshape(rows.height, -1)


class _State:
    """Hold the tables of the cluster registry while this process holds their lock."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.tables = store.read(_REGISTRY), store.read(_MEMBERS)

    def keep(self, registry: pl.DataFrame, members: pl.DataFrame, events: pl.DataFrame | None = None) -> None:
        """Write the changes, clusters before their members, so that a killed run leaves no member without a cluster."""
        for contract, before, after in zip(
            (_REGISTRY, _MEMBERS), self.tables, (registry, members), strict=True
        ):
            changed = after.join(before, on=after.columns, how="anti", nulls_equal=True)
            self.store.upsert(contract, changed, run_id=self.run_id)
        if events is not None:
            self.store.upsert(_EVENTS, self._fresh(events), run_id=self.run_id)
        self.tables = registry, members

    def _fresh(self, events: pl.DataFrame) -> pl.DataFrame:
        return events.join(self.store.read(_EVENTS, columns=["event_id"]), on="event_id", how="anti")


@contextmanager
def _alone(store: Store, run_id: str) -> Iterator[_State]:
    with store.exclusive_section("registry"):
        yield _State(store, run_id)


def _today() -> date:
    return datetime.now(UTC).date()


def refusals(project: Project) -> Sequence[Refusal]:
    """Return the manual overrides of clusters that are not applied, with the reasons."""
    return [*cluster_overrides(project)[1], *unknown_overrides(project)]
