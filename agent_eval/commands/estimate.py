"""`agent-eval run --dry-run`: which judge calls a run would make, and what they would cost. Nothing is sent or stored."""

from collections.abc import Mapping, Sequence

import polars as pl
from rich.console import Console

from agent_eval.commands.run import what_is_stale
from agent_eval.commands.terminal.output import print_json
from agent_eval.errors import AgentEvalError
from agent_eval.judge import engine, rubric
from agent_eval.judge.llm.calls import CallEstimate, QuestionSequence, estimate
from agent_eval.judge.llm.panel import Panel
from agent_eval.metrics.base import Metric
from agent_eval.project import Project
from agent_eval.project.ingest import ingest
from agent_eval.transcripts.admission import admit_all


class NoJudgeError(AgentEvalError):
    """An estimate needs to know who would be asked."""

    def __init__(self) -> None:
        super().__init__(
            "No judge model is set, so no call would be made. Name one: agent-eval run --judge MODEL --dry-run, "
            "or judge_model in agent_eval.toml."
        )


def estimate_run(
    project: Project, out: Console, agents: Sequence[str], versions: Sequence[str], *, as_json: bool
) -> None:
    """Print the calls that `run` would make for turns, conversations and rubrics.

    Calls are exact as long as every call is answered at once; prompt tokens are counted at four characters each, and
    the money is what they cost without the provider's cache.

    Raises:
        NoJudgeError: If no judge model is set.
        EditedVersionError: If a wanted version was edited after it was frozen: a run would refuse it.
    """
    project.registry.refuse_edited(versions or project.registry.recorded)
    judge = project.own_judge
    if judge is None:
        raise NoJudgeError
    rows = [
        {
            "judge": judge.name,
            "what": what,
            "n_calls": found.n_calls,
            "n_answers": found.n_answers,
            "n_tokens_in": found.n_tokens_in,
            "n_tokens_out": found.n_tokens_out,
            "n_in_part": found.n_in_part,
            "cost_usd": _cost(project, found),
        }
        for what, found in planned_work(project, project.some_agents(agents), versions).items()
    ]
    frame = pl.DataFrame(rows)
    if as_json:
        print_json(frame)
        return
    for row in rows:
        out.print(_sentence(row), markup=False)
    out.print("Nothing was asked. Caps: --max-calls N, --max-cost USD.", style="dim")


def planned_work(project: Project, agents: Sequence[str], versions: Sequence[str]) -> dict[str, CallEstimate]:
    """The work of judge models that a run would do: for turns and conversations, for rubrics, and in all."""
    stale = what_is_stale(project, agents, versions)[1].drop_nulls()
    tables = ingest(project, sorted(set(stale["agent_id"])))
    methodologies = project.methodologies(set(stale["methodology_version"]))
    transcripts = admit_all(tables["conversations"], tables["sessions"], tables["agents"], methodologies)
    transcripts = transcripts.join(stale, on=["agent_id", "methodology_version"], how="semi")
    names = project.blinded_terms(agents)
    judged = (transcripts, tables["conversations"], tables["turns"])
    of_turns = engine.open_questions(*judged, project.metrics, names)
    of_rubrics = rubric.open_questions(*judged, tables["sessions"], methodologies, names)
    turns = _estimated(project, of_turns, project.metrics.metrics)
    rubrics = _estimated(project, of_rubrics, None)
    return {"turns and conversations": turns, "rubrics": rubrics, "in all": turns + rubrics}


def _estimated(
    project: Project, sequences: Sequence[QuestionSequence], metrics: Sequence[Metric] | None
) -> CallEstimate:
    judge = project.own_judge
    if judge is None:
        raise NoJudgeError
    panel = Panel(judge, limits=project.view_limits)
    keys = {key for sequence in sequences for q in sequence.questions for key in q.keys.values()}
    planned = panel.planned(sequences, project.answers.find(keys))
    smallest = min((panel.limits_of(m) for m in judge.models), key=lambda limits: limits.context_tokens)
    return estimate(planned, panel.shown(metrics), smallest)


def _cost(project: Project, found: CallEstimate) -> float | None:
    """US dollars; an ensemble's calls are shared out evenly over its models."""
    models = project.settings.judge_models
    costs = [found.cost_usd(project.price_of(model)) for model in models]
    known = [cost for cost in costs if cost is not None]
    return sum(known) / len(models) if len(known) == len(costs) else None


def _sentence(row: Mapping[str, object]) -> str:
    cost = "price unknown" if row["cost_usd"] is None else f"${row['cost_usd']:.4f}"
    in_part = f", {row['n_in_part']:,} answers on part of the evidence" if row["n_in_part"] else ""
    return (
        f"{row['what']}: {row['n_calls']:,} calls for {row['n_answers']:,} answers, about {row['n_tokens_in']:,} "
        f"prompt and {row['n_tokens_out']:,} answer tokens, {cost}{in_part}"
    )
