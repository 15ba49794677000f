"""Implement `agent-eval run --dry-run`: estimate the judge calls of a run and their cost without sending them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import polars as pl
from rich.console import Console

from agent_eval.clusters.taxonomies.taxonomy import LABELS
from agent_eval.commands.run import what_is_stale
from agent_eval.commands.terminal.output import print_json
from agent_eval.errors import JudgeError
from agent_eval.formats.plain_text import count_of
from agent_eval.judge import engine, rubric
from agent_eval.judge.clusters.category import SortingFormat
from agent_eval.judge.clusters.naming import NamingFormat, keys_by_cluster
from agent_eval.judge.estimate import CallEstimate, estimate, estimate_of_clusters
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import AnswersByQuestion, Panel
from agent_eval.judge.prompts import shared_rubrics
from agent_eval.judge.prompts.attachments import TOKENS_PER_IMAGE
from agent_eval.metrics.base import Metric
from agent_eval.project import Project
from agent_eval.project.clusters import questions_about_clusters
from agent_eval.project.fingerprints import CLUSTERING
from agent_eval.project.ingest import ingest
from agent_eval.project.judges import AnswerCache
from agent_eval.transcripts.admission import admit_all


def no_judge() -> JudgeError:
    """Return the error if an estimate is requested but no judge model is set."""
    return JudgeError(
        "No judge model is set, so there are no calls to estimate. Set one: agent-eval run --judge MODEL --dry-run, "
        "or judge_model in agent_eval.toml."
    )


def unusable_judge(problems: Sequence[str]) -> JudgeError:
    """Return the error that prevents the first call if calls to a judge model cannot succeed."""
    return JudgeError(f"{'; '.join(problems)}. No judge was called.")


def refuse_unusable_judges(project: Project, agents: Sequence[str], versions: Sequence[str]) -> None:
    """Check that the configured judge models can be called, if a run would call them.

    Raises:
        JudgeError: If a model's API key is missing or the model is unknown.
    """
    if problems := project.judges.problems():
        project.registry.refuse_edited(versions or project.registry.frozen)
        if planned_work(project, project.some_agents(agents), versions)["in all"].calls.n_calls:
            raise unusable_judge(problems)


def estimate_run(
    project: Project, out: Console, agents: Sequence[str], versions: Sequence[str], *, as_json: bool
) -> None:
    """Print the calls that `run` would make for turns, conversations, rubrics and the clusters that are known.

    The number of calls is exact if no call has to be repeated. Prompt tokens are estimated at four characters each. The
    cost is given without the provider's prompt cache and, if the model's cached tokens cost less, also with it. A missing
    API key is named, since only a run needs it.

    Raises:
        JudgeError: If no judge model is set, or if calls are needed and a judge model is unknown.
        EditedVersionError: If a requested version was edited after it was frozen; a run would reject it.
    """
    project.registry.refuse_edited(versions or project.registry.frozen)
    judge = project.judges.own
    if judge is None:
        raise no_judge()
    rows = [
        {
            "judge": judge.name,
            "what": what,
            **asdict(work.calls),
            "cost_usd": work.cost_usd,
            "cost_cached_usd": work.cost_cached_usd,
            "n_unreadable": work.n_unreadable,
        }
        for what, work in planned_work(project, project.some_agents(agents), versions).items()
    ]
    if rows[-1]["n_calls"] and (problems := project.judges.problems(needs_key=False)):
        raise unusable_judge(problems)
    frame = pl.DataFrame(rows)
    if as_json:
        print_json(frame)
        return
    for row in rows:
        out.print(_sentence(row), markup=False)
    if again := price_of_asking_again(project, agents, versions):
        out.print(again, markup=False)
    if rows[0]["n_calls"]:
        category = "" if project.settings.taxonomy == LABELS else ", and one for their categories"
        out.print(
            f"Not included: for every five clusters of failures that the run finds, one call for their names{category}."
        )
    if rows[-1]["n_calls"]:
        for problem in project.judges.problems():
            out.print(f"Before a run: {problem}.", markup=False)
    out.print("No judge was called. Caps: --max-calls N, --max-cost USD.", style="dim")


def price_of_asking_again(project: Project, agents: Sequence[str], versions: Sequence[str]) -> str:
    """Return what a run pays for questions whose wording has changed since they were answered; '' if it pays nothing.

    It is the difference between the estimated work with and without keeping the earlier answers.
    """
    if (
        project.judges.own is None
        or project.judges.answers.keeps_earlier
        or project.judges.answers.earlier().is_empty()
    ):
        return ""
    agent_ids = project.some_agents(agents)
    full = planned_work(project, agent_ids, versions)["in all"]
    least = planned_work(project, agent_ids, versions, keeps_earlier=True)["in all"]
    n_answers = full.calls.n_answers - least.calls.n_answers
    if n_answers <= 0:
        return ""
    more = full.calls.n_calls - least.calls.n_calls
    is_known = full.cost_usd is not None and least.cost_usd is not None
    cost = f"${max((full.cost_usd or 0) - (least.cost_usd or 0), 0):.4f}" if is_known else "price unknown"
    return (
        f"{count_of(n_answers, 'stored answer')} belong to earlier wordings of their questions. Asking again takes "
        f"{count_of(more, 'more call')}, {cost}; --keep-answers keeps them, marked."
    )


@dataclass(frozen=True)
class PlannedWork:
    """Hold the estimated calls of judge models and their cost in US dollars (None if a model's price is unknown)."""

    calls: CallEstimate
    cost_usd: float | None  # at the full price of prompt tokens
    cost_cached_usd: float | None  # with the providers' prompt caches
    n_unreadable: int = 0  # answers not requested, because the model does not accept an attachment

    def __add__(self, other: "PlannedWork") -> "PlannedWork":
        return PlannedWork(
            self.calls + other.calls,
            _sum(self.cost_usd, other.cost_usd),
            _sum(self.cost_cached_usd, other.cost_cached_usd),
            self.n_unreadable + other.n_unreadable,
        )


def planned_work(
    project: Project, agents: Sequence[str], versions: Sequence[str], *, keeps_earlier: bool | None = None
) -> dict[str, PlannedWork]:
    """Return the estimated work of the judge models in a run: turns and conversations, rubrics, clusters, and in total.

    Clusters are those that are registered and lack a name or a category, not those of failures that the run will find.
    `keeps_earlier` is whether answers to earlier wordings are kept; by default, as in the settings.
    """
    stale = what_is_stale(project, agents, versions)[1].drop_nulls()
    tables = ingest(project, sorted(set(stale["agent_id"])))
    methodologies = project.methodologies(set(stale["methodology_version"]))
    transcripts = admit_all(tables["conversations"], tables["sessions"], tables["agents"], methodologies)
    transcripts = transcripts.join(stale, on=["agent_id", "methodology_version"], how="semi")
    names = project.blinded_terms(agents)
    judge = project.judges.own
    judged_tables = (transcripts, tables["conversations"], tables["turns"])
    samples = (judge.sample, judge.outcome_sample) if judge else (None, None)
    of_rubrics = rubric.open_questions(*judged_tables, tables["sessions"], methodologies, names)
    answers = project.judges.answers
    answers = answers if keeps_earlier is None else replace(answers, keeps_earlier=keeps_earlier)

    def stored(sequences: Sequence[QuestionSequence]) -> AnswersByQuestion:
        keys = {key for sequence in sequences for q in sequence.questions for key in q.keys.values()}
        panel = None if judge is None else Panel(judge, limits=project.judges.view_limits)
        return {} if panel is None else panel.stored(sequences, answers.find(keys))

    of_turns = engine.open_questions(
        *judged_tables, project.metrics, names, *samples, stored=stored,
        human_ratings=project.ratings_of(sorted(set(stale["agent_id"]))), rater_rule=project.settings.rater_rule,
    )  # fmt: skip
    turns = _estimated(project, answers, of_turns, shared_rubrics(project.metrics.metrics))
    rubrics = _estimated(project, answers, of_rubrics, None)
    is_clustered = stale["asset"].is_in([*CLUSTERING]).any()
    clusters = _of_clusters(project, answers) if is_clustered else PlannedWork(CallEstimate(), 0.0, 0.0)
    return {
        "turns and conversations": turns,
        "rubrics": rubrics,
        "known clusters": clusters,
        "in all": turns + rubrics + clusters,
    }


def _of_clusters(project: Project, answers: AnswerCache) -> PlannedWork:
    """Return the estimated work of the first judge model to name and to categorise the registered clusters."""
    judge = project.judges.own
    if judge is None:
        raise no_judge()
    panel = Panel(judge, limits=project.judges.view_limits)
    total = CallEstimate()
    for sequences, form in zip(questions_about_clusters(project), (NamingFormat, SortingFormat), strict=True):
        cache = answers.find(keys_by_cluster(sequences).values())
        total += estimate_of_clusters(sequences, panel, cache, form)
    price = project.judges.price_of(judge.models[0])
    return PlannedWork(total, total.cost_usd(price), total.cost_cached_usd(price))


def _estimated(
    project: Project,
    answers: AnswerCache,
    sequences: Sequence[QuestionSequence],
    metrics: Sequence[Metric] | None,
) -> PlannedWork:
    """Return the estimated calls of all the judge's models; each model has a separate prompt cache."""
    judge = project.judges.own
    if judge is None:
        raise no_judge()
    keys = {key for sequence in sequences for q in sequence.questions for key in q.keys.values()}
    cache = answers.find(keys)
    total = PlannedWork(CallEstimate(), 0.0, 0.0)
    for model in judge.models:
        panel = Panel(replace(judge, models=(model,)), limits=project.judges.view_limits)
        planned, limits = panel.planned(sequences, cache), panel.limits_of(model)
        calls = estimate(planned, panel.shown(metrics), limits, project.settings.judge_concurrency)
        price = project.judges.price_of(model)
        n_unreadable = panel.n_unreadable(sequences)
        total += PlannedWork(calls, calls.cost_usd(price), calls.cost_cached_usd(price), n_unreadable)
    return total


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _sentence(row: Mapping[str, object]) -> str:
    full, cached = row["cost_usd"], row["cost_cached_usd"]
    cost = "price unknown"
    if isinstance(full, float) and isinstance(cached, float):
        saved = f", ${cached:.4f} with prompts cached" if f"{cached:.4f}" != f"{full:.4f}" else ""
        cost = f"${full:.4f}{saved}"
    in_part = (
        f", {count_of(row['n_in_part'], 'answer')} based on part of the evidence" if row["n_in_part"] else ""
    )
    return (
        f"{row['what']}: {count_of(row['n_calls'], 'call')} for {count_of(row['n_answers'], 'answer')}, about {row['n_tokens_in']:,} "
        f"prompt and {row['n_tokens_out']:,} answer tokens, {cost}{in_part}{_attached(row)}"
    )


def _attached(row: Mapping[str, object]) -> str:
    images = (
        f", {row['n_images']:,} images at {TOKENS_PER_IMAGE:,} prompt tokens each" if row["n_images"] else ""
    )
    uncounted = f", {row['n_uncounted']:,} audio clips and files not counted" if row["n_uncounted"] else ""
    unreadable = (
        f", {count_of(row['n_unreadable'], 'answer')} not requested, because they depend on images, audio or files that the judge "
        "does not accept (judge_multimodal; attachments given by URL are never fetched)"
        if row["n_unreadable"]
        else ""
    )
    return images + uncounted + unreadable
