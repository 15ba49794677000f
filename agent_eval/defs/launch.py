"""Start Dagster runs from the command line, with the same assets and the same instance as the UI."""

import contextlib
import fcntl
import os
import shutil
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import mean

import dagster as dg
import polars as pl

from agent_eval.defs.dagster_internals import leave_output
from agent_eval.defs.instance import (
    CELERY_TASK,
    LAUNCHED_BY,
    PROJECT_TAG,
    REGISTERED,
    close_lost_runs,
    deferred_interrupts,
    records_in,
)
from agent_eval.defs.observations import new_observations, observed, report, report_unreported
from agent_eval.defs.partitions import VERSIONS, chunks, partition_key, rectangles, shape_of, stretches
from agent_eval.defs.purge import purge_history
from agent_eval.defs.resources import RANGE_TAGS, use_project
from agent_eval.errors import NotFoundError, RunError, StorageError
from agent_eval.project import Project
from agent_eval.project.data_versions import Sources
from agent_eval.project.fingerprints import CLUSTERING as CLUSTERING
from agent_eval.project.fingerprints import Fingerprints, ready_places
from agent_eval.project.project import PARENT_RUN
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.schema import below

_DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
_SHIPPED = Path(__file__).with_name("dagster.yaml")
JUDGING = ("transcripts", "turn_judgments", "conversation_judgments")
"""Tables that are computed for all versions of a large agent in one run, because versions share most answers."""
_PlannedRun = tuple[str, Sequence[dg.AssetKey], str, str]
"""A run to be started: its stage, its assets, and the first and last of its partitions."""
_PLACE = dict.fromkeys(("asset", "agent_id", "methodology_version"), pl.String())
LONGEST_WHY = 600  # characters of the cause of a failure; an error names its fix at the end
AUDITS = dg.AssetKey("judge_audits")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_LAUNCHERS = ("dagster/sensor_name", "dagster/schedule_name", CELERY_TASK)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable within the block. Resources find the project through AGENT_EVAL_HOME."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def dagster_home(root: Path) -> Path:
    """Return DAGSTER_HOME, else `.dagster` in the project. The folder is created and initialised under a lock."""
    home = Path(os.environ.get("DAGSTER_HOME") or root / ".dagster").resolve()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"DAGSTER_HOME {home} cannot be made a folder: {error.strerror}.") from error
    if (lock := home / ".initialising").exists() and not lock.is_file():
        raise StorageError(f"{lock} is not a regular file. Move it away.")
    with (home / ".initialising").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not (settings := home / "dagster.yaml").exists():
            own = root / "dagster.yaml"
            shutil.copyfile(own if own.is_file() else _SHIPPED, settings)
        if not all((home / file).exists() for file in _DATABASES):
            with records_in(home), dg.DagsterInstance.from_config(str(home)) as instance:
                instance.get_dynamic_partitions("agent")  # creates every database
    return home


@dataclass
class Launch:
    """Materialise stale partitions in ranges, stage by stage.

    The stages and their order follow from the asset graph (see `by_stage`). Use this class only while holding the
    store's lock for runs.
    """

    project: Project
    defs: dg.Definitions
    instance: dg.DagsterInstance
    sources: Sources
    _stages: dict[str, list[dg.AssetKey]] = field(default_factory=dict[str, list[dg.AssetKey]])
    computed: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_PLACE))
    """The partitions that `materialise` computed, with the key columns of run_state."""

    @classmethod
    def at(cls, project: Project, defs: dg.Definitions, sources: Sources) -> "Launch":
        """Return a launcher for these definitions and sources on the project's Dagster instance."""
        home = dagster_home(project.home.root)
        instance = dg.DagsterInstance.from_config(str(home))
        leave_output(instance)
        launch = cls(project=project, defs=defs, instance=instance, sources=sources, _stages=by_stage(defs))
        agents = project.known_agents()  # boards load the rows of every known agent
        with records_in(home):
            launch.instance.add_dynamic_partitions("agent", agents)
        return launch

    @contextlib.contextmanager
    def close_abandoned_runs(self) -> Iterator[None]:
        """Mark runs of killed processes as failed, then run the block, with database errors as StorageError.

        Use this only while holding the store's lock for runs.

        Raises:
            StorageError: If Dagster's databases cannot be read or written.
        """
        with records_in(Path(self.instance.root_directory)):
            close_lost_runs(self.instance, self.project.home.root, self.project.store)
            yield

    def observe(self, *, agents: Sequence[str], versions: Sequence[str]) -> None:
        """Report the data versions of the sources that this run reads to Dagster, and rows that it does not know."""
        pairs = {AgentVersion.of(agent_id=a, methodology_version=v).key for a in agents for v in versions}
        report(
            self.instance,
            new_observations(self.sources, observed(self.instance), {*agents, *versions, *pairs}),
        )
        report_unreported(self.instance, Fingerprints.of(self.project, self.sources))

    def materialise(self, stale: pl.DataFrame, boards_of: Collection[str]) -> Iterator[str]:
        """Run every stage that has stale partitions, on exactly these; yield a line per finished run.

        A stale partition is computed only if the rows that it reads changed, which is known when those before it were
        computed: a change that leaves rows as they were stops there. Neighbouring partitions with the same assets share
        a run, up to `max_conversations_per_run`. The conversations of a larger agent are judged in one run for all
        versions; its other tables are computed in one run per version. The stages run in order, so an asset is computed
        after everything that it reads, and clusters after all judgments.

        Args:
            stale: The stale partitions: asset, agent_id and methodology_version, as in table run_state.
            boards_of: Versions whose boards are computed even if they are up to date.

        Raises:
            NotFoundError: If a requested version is not in the loaded definitions.
            RunError: If a run fails; the later runs are not started.
        """
        self._planned(stale, boards_of)  # refuses unknown versions before any work
        forced = self._boards(boards_of)
        left = pl.concat([stale, forced]).unique(maintain_order=True)
        seconds: list[float] = []
        kinds: list[tuple[str, ...]] = []
        while True:
            marks = Fingerprints.of(self.project, self.sources)
            ready, later = self._next(marks, left, forced)
            planned = self._planned(ready, ())
            if not planned:
                return
            of_now, of_later = ([_kind(run) for run in runs] for runs in (planned, self._planned(later, ())))
            is_clustering = [bool({*CLUSTERING} & {*kind}) for kind in of_now]
            is_registered = sum(is_clustering) > 1
            for number, run in enumerate(planned):
                began = time.monotonic()
                if is_registered and is_clustering.index(True) == number:
                    self._register_failures(ready)
                run_text = self._run(*run, is_registered=is_registered and is_clustering[number])
                seconds.append(time.monotonic() - began)
                yield run_text + place_of_several([*kinds, *of_now, *of_later], seconds)
            kinds += of_now
            self.computed = pl.concat([self.computed, ready])
            left = left.join(ready, on=left.columns, how="anti", nulls_equal=True)

    def _next(
        self, marks: Fingerprints, left: pl.DataFrame, forced: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the partitions of the first stage that has any to compute, and those whose inputs changed already.

        The latter are computed later, together with what the runs before them change. What reads new judgments is
        computed in their run: it costs less than to find out in a further run that little of it changed.
        """
        for keys in self._stages.values():
            of_stage = left.filter(pl.col("asset").is_in([key.path[-1] for key in keys]))
            ready = ready_places(marks, of_stage, forced)
            pairs_to_judge = ready.filter(pl.col("asset") == "turn_judgments").drop("asset")
            of_judged = of_stage.join(pairs_to_judge, on=pairs_to_judge.columns, how="semi")
            ready = pl.concat([ready, of_judged]).unique(maintain_order=True)
            waiting = of_stage.join(ready, on=left.columns, how="anti", nulls_equal=True)
            if waiting["asset"].is_in(JUDGING).any() and ready["asset"].is_in(JUDGING).any():
                ready = ready.filter(~pl.col("asset").is_in([*CLUSTERING, *below(CLUSTERING)]))
            if not ready.is_empty():
                rest = left.join(ready, on=left.columns, how="anti", nulls_equal=True)
                changed = [marks.is_changed(place) for place in rest.iter_rows()]
                return ready, rest.filter(pl.Series(changed, dtype=pl.Boolean))
        return left.clear(), left.clear()

    def _boards(self, versions: Collection[str]) -> pl.DataFrame:
        """Return the partitions of the boards of these versions, with the key columns of run_state."""
        return pl.DataFrame(
            [
                (key.path[-1], None, version)
                for stage, keys in self._stages.items()
                if self._shape(stage) == "version"
                for key in keys
                for version in versions
            ],
            schema=_PLACE,
            orient="row",
        )

    def _register_failures(self, stale: pl.DataFrame) -> None:
        """Assign the failures of all stale pairs to clusters, before several runs compute the cluster tables."""
        from agent_eval.project.clusters import (
            register_failures,
        )  # numpy is slow to load, so it is imported only when needed

        pairs = stale.filter(pl.col("asset").is_in(CLUSTERING)).select(AgentVersion._fields)
        register_failures(self.project, pairs, run_id=self.project.origin.run, watch=self.project.watch)

    def _planned(self, stale: pl.DataFrame, boards_of: Collection[str]) -> list[_PlannedRun]:
        stale = pl.concat([stale, self._boards(boards_of)])
        agents = list(self.instance.get_dynamic_partitions("agent"))
        versions = list(VERSIONS.get_partition_keys())
        if unknown := {*stale["methodology_version"].drop_nulls()} - {*versions}:
            raise NotFoundError(
                f"Methodology {', '.join(sorted(unknown))} is not a partition of the loaded definitions "
                f"({', '.join(versions)}). Start from the project's own folder, or set AGENT_EVAL_HOME to it."
            )
        limit = self.project.settings.max_conversations_per_run
        sizes = self.project.n_conversations(agents) if limit else {}
        planned: list[_PlannedRun] = []
        for stage in self._stages:
            if self._shape(stage) == "agent":
                planned += [
                    (stage, assets, part[0], part[-1])
                    for assets, rows in self._together(stale, stage)
                    for stretch in stretches(set(rows["agent_id"]), agents)
                    for part in chunks(stretch, sizes, limit)
                ]
            elif self._shape(stage) == "version":
                planned += [
                    (stage, assets, stretch[0], stretch[-1])
                    for assets, rows in self._together(stale, stage)
                    for stretch in stretches(set(rows["methodology_version"]), versions)
                ]
            elif self._shape(stage) == "agent x version":
                of_pairs = partial(self._of_pairs, stage=stage, agents=agents, versions=versions, sizes=sizes)
                large = [agent for agent, n in sizes.items() if limit and n * len(versions) > limit]
                planned += self._clusters_last(stale, of_pairs, large)
        return planned

    def _shape(self, stage: str) -> str:
        graph = self.defs.resolve_asset_graph()
        return shape_of(graph.get(self._stages[stage][0]).partitions_def)

    def _clusters_last(
        self, stale: pl.DataFrame, of_pairs: Callable[..., list[_PlannedRun]], large: Sequence[str]
    ) -> list[_PlannedRun]:
        """Return the planned runs of a stage of pairs; if there are several, clusters are computed after all judgments.

        The `large` agents are judged in one run for all versions.
        """
        runs = of_pairs(stale)
        if len(runs) < 2:
            return runs
        is_clustered = pl.col("asset").is_in([*CLUSTERING, *below(CLUSTERING)])
        is_judged = pl.col("agent_id").is_in(large) & pl.col("asset").is_in(JUDGING)
        return [
            *of_pairs(stale.filter(is_judged), splits_agents=False),
            *of_pairs(stale.filter(~is_judged, ~is_clustered)),
            *of_pairs(stale.filter(is_clustered)),
        ]

    def _of_pairs(
        self,
        stale: pl.DataFrame,
        *,
        stage: str,
        agents: Sequence[str],
        versions: Sequence[str],
        sizes: Mapping[str, int],
        splits_agents: bool = True,
    ) -> list[_PlannedRun]:
        """Return the planned runs of a stage whose partitions are pairs of agent and version."""
        limit = self.project.settings.max_conversations_per_run
        return [
            (stage, assets, partition_key(first), partition_key(last))
            for assets, rows in self._together(stale, stage)
            for first, last in rectangles(
                _pairs(rows), agents, versions, sizes, limit, splits_agents=splits_agents
            )
        ]

    def _together(self, stale: pl.DataFrame, stage: str) -> Iterator[tuple[list[dg.AssetKey], pl.DataFrame]]:
        """Yield the stale partitions of a stage, grouped by their stale assets.

        The assets include those that the same op computes.
        """
        graph = self.defs.resolve_asset_graph()
        names = [key.path[-1] for key in self._stages[stage]]
        by_partition = (
            stale.filter(pl.col("asset").is_in(names))
            .group_by("agent_id", "methodology_version", maintain_order=True)
            .agg(pl.col("asset").unique().sort())
        )
        for (assets,), rows in by_partition.group_by("asset", maintain_order=True):
            ops = (graph.get(dg.AssetKey(name)).execution_set_asset_keys for name in assets)
            yield sorted({key for of_op in ops for key in of_op}), rows

    def publish(self) -> str:
        """Publish the HTML report of all boards.

        Raises:
            RunError: If the report cannot be written.
        """
        return self._run("whole", self._stages["whole"])

    def forget(self, agents: Collection[str]) -> None:
        """Delete the partitions of removed agents."""
        for agent in agents:
            self.instance.delete_dynamic_partition("agent", agent)

    def purge(self) -> None:
        """Remove Dagster's records of runs older than the setting `keep_runs_days`."""
        retention = timedelta(days=self.project.settings.keep_runs_days)
        purge_history(self.instance, datetime.now(UTC) - retention)

    def _run(
        self,
        stage: str,
        assets: Sequence[dg.AssetKey],
        first: str = "",
        last: str = "",
        *,
        is_registered: bool = False,
    ) -> str:
        partitions = dict(zip(RANGE_TAGS, (first, last), strict=True)) if first else {}
        what = stage if {*assets} >= {*self._stages[stage]} else ", ".join(key.path[-1] for key in assets)
        run_text = f"{what}: {first}" if first else ", ".join(key.path[-1] for key in assets)
        if first != last:
            run_text += f" … {last}"
        with (
            _environment("AGENT_EVAL_HOME", str(self.project.home.root)),
            use_project(self.project, self.sources),
            deferred_interrupts() as is_interrupted,
            self.project.store.kept_attached(),
            getattr(self.instance.event_log_storage, "partitions_held", contextlib.nullcontext)(),
        ):
            result = self.defs.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=self.instance,
                asset_selection=list(assets),
                tags=partitions
                | started_by(self.instance)
                | {PROJECT_TAG: str(self.project.home.root)}
                | ({REGISTERED: "true"} if is_registered else {}),
                run_config=_QUIET,
                raise_on_error=False,
            )
            if is_interrupted():
                raise KeyboardInterrupt
        if not result.success:
            why = cause_of_failure(result)
            raise RunError(
                f"Stage {run_text} failed: {why}. Completed work is stored. See the log of run {result.run_id} in "
                "`agent-eval ui`, fix the cause and run again."
            )
        return run_text


def _kind(run: _PlannedRun) -> tuple[str, ...]:
    """Return the names of the assets of a planned run."""
    return tuple(key.path[-1] for key in run[1])


def place_of_several(kinds: Sequence[tuple[str, ...]], seconds: Sequence[float]) -> str:
    """Return the progress of several runs as text, e.g. ' (2 of 7, about 40 s left)'; empty for a single run.

    Args:
        kinds: The assets of each planned run.
        seconds: The duration of each finished run. The estimate for each remaining run is the mean duration of
            finished runs with the same assets, else of all finished runs.
    """
    n_done, n = len(seconds), len(kinds)
    if n < 2:
        return ""
    if n_done == n:
        return f" ({n} of {n})"
    durations_of_kind: dict[tuple[str, ...], list[float]] = {}
    for kind, took in zip(kinds, seconds, strict=False):
        durations_of_kind.setdefault(kind, []).append(took)
    left = sum(mean(durations_of_kind.get(kind, seconds)) for kind in kinds[n_done:])
    unit = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
    return f" ({n_done} of {n}, about {unit} left)"


def started_by(instance: dg.DagsterInstance) -> dict[str, str]:
    """Return the tags that record what started a run: a parent run, whose id is in the environment, or the command.

    The tags of the parent run's sensor or schedule are copied, since the UI would otherwise show "Manually launched".
    The tag of its Celery task is copied because run monitoring reads it. `dagster/root_run_id` is not set: Dagster
    would count this run as a retry of the parent run and would not retry that one again.
    """
    parent = os.environ.get(PARENT_RUN, "").partition(" ")[0]
    if not parent:
        return {LAUNCHED_BY: "agent-eval run"}
    run = instance.get_run_by_id(parent)
    of_parent = {name: value for name, value in (run.tags if run else {}).items() if name in _LAUNCHERS}
    return {
        "dagster/parent_run_id": parent,
        LAUNCHED_BY: "reconcile",
    } | of_parent


def cause_of_failure(result: dg.ExecuteInProcessResult) -> str:
    """Return the root cause of the first failed step in one line, of at most `LONGEST_WHY` characters."""
    errors = [e.step_failure_data.error for e in result.filter_events(lambda e: e.is_step_failure)]
    error = next((e for e in errors if e), None)
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return "no step reported an error"
    return textwrap.shorten(error.message, LONGEST_WHY, placeholder=" …").rstrip(".")


def by_stage(defs: dg.Definitions) -> dict[str, list[dg.AssetKey]]:
    """Return the assets of each stage of `Launch`, in the order of the asset graph, without audits.

    A stage has assets with the same partitions. An asset is in a later stage than every asset that it reads, unless
    both have the same partitions: then one run can compute both. A stage is named after its partitions, and a later
    stage with the same partitions after its assets.
    """
    graph = defs.resolve_asset_graph()
    levels: dict[dg.AssetKey, int] = {}
    stages: dict[tuple[int, str], list[dg.AssetKey]] = {}
    for key in graph.toposorted_asset_keys:
        shape = shape_of(graph.get(key).partitions_def)
        if key not in graph.materializable_asset_keys or key == AUDITS:
            continue
        parents: list[tuple[int, str]] = [
            (levels[parent], str(shape_of(graph.get(parent).partitions_def)))
            for parent in graph.get(key).parent_keys
            if parent in levels
        ]
        levels[key] = max((level + (of != shape) for level, of in parents), default=0)
        stages.setdefault((levels[key], shape), []).append(key)
    by_title: dict[str, list[dg.AssetKey]] = {}
    for (_, of), keys in sorted(stages.items(), key=lambda stage: stage[0][0]):
        by_title[of if of not in by_title else ", ".join(sorted(key.path[-1] for key in keys))] = sorted(keys)
    return by_title


def _pairs(frame: pl.DataFrame) -> list[AgentVersion]:
    return [AgentVersion(a, v) for a, v in frame.select("agent_id", "methodology_version").iter_rows()]
