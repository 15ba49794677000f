"""Define the public Python functions of `agent_eval`, for notebooks and scripts.

`agent_eval.__init__` imports each name from here when it is first used.
"""

import json
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from agent_eval.commands.arguments import check_id, check_judge, check_trials, names_of, path_of, require
from agent_eval.commands.estimate import refuse_unusable_judges
from agent_eval.commands.results.notebook import NotebookProject
from agent_eval.commands.run import RunReport
from agent_eval.errors import ArgumentError, InvalidValueError
from agent_eval.formats.files import is_slug
from agent_eval.formats.plain_text import count_of
from agent_eval.formats.validation_messages import explain
from agent_eval.judge.engine import judge_transcripts
from agent_eval.judge.llm.client import (
    Client,
    LiteLLMClient,
    attachment_kinds_of,
    context_tokens_of,
    price_of,
)
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.scripted import Script, ScriptedClient
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import CONTEXT_TOKENS, ViewLimits
from agent_eval.metrics.metric_set import DEFAULT, MetricSet
from agent_eval.project import Project
from agent_eval.scores.composite.score import composite
from agent_eval.scores.reliability import pass_at_k, pass_hat_k
from agent_eval.scores.reliability.attempts import check_attempts, invalid_count
from agent_eval.scores.reliability.over_tasks import Alike, no_estimate
from agent_eval.scores.reliability.worst_and_best import within_bounds, worst_and_best
from agent_eval.scores.tools import tool_correctness
from agent_eval.scores.tools.trajectory import match as match_trajectory
from agent_eval.tables import table
from agent_eval.transcripts.attachments import AttachmentKind
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.importers.auto import AUTO, FileReport, import_files
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.import_errors import (
    invalid_agent_id,
    invalid_session_id,
    unknown_format,
)
from agent_eval.transcripts.importers.inputs import input_files
from agent_eval.transcripts.models import Conversation, id_key

__all__ = [
    "compare_agents",
    "composite",
    "import_file",
    "judge_conversations",
    "match_trajectory",
    "open_project",
    "pass_at_k",
    "pass_hat_k",
    "reliability_of",
    "run_project",
    "tool_correctness",
]

RATINGS = (
    "conversation_id", "turn_index", "metric", "rating_1to5", "value", "label", "status", "unscored_reason",
    "rationale", "evidence", "judge",
)  # fmt: skip
"""The columns that `judge_conversations` returns."""
_A_PROJECT = "a project, as open_project returns it"
_CONVERSATIONS = (
    "a dict with `conversation_id` and `messages`, a list of these, or a polars frame with these columns"
)
_TAKEN_OVER = (
    "agent_id", "conversation_id", "session_id", "n_turns", "n_user_messages", "n_tool_calls", "content_hash",
)  # fmt: skip


def _invalid_conversation(number: int, problem: str) -> InvalidValueError:
    return InvalidValueError(
        f"Conversation {number}: {problem}. Expected a dict with `conversation_id` and `messages`, each message with "
        "`role` and `content`, or a list of these, or a frame with these two columns."
    )


def open_project(path: str | Path | None = None) -> NotebookProject:
    """Open the project at or above a folder.

    Args:
        path: A folder with `agent_eval.toml` or `data/`, or one of its subfolders. Default: the folder in the
            environment variable AGENT_EVAL_HOME, else the working directory.

    Returns:
        The project. Its methods `leaderboard`, `summary`, `errors` and `compare` return a sentence, a chart and rows, and
        `table` reads a stored table as a polars frame.

    Raises:
        ArgumentError: If `path` is not a path or is empty.
        NoRootError: If no project is found.

    Example:
        >>> import agent_eval
        >>> agent_eval.open_project("examples").table("leaderboard")  # doctest: +SKIP
    """
    if path is not None:
        path = path_of("path", path, "the path of a folder")
    return NotebookProject.open(path)


def import_file(
    path: str | Path, *, agent: str, project: Project, format_name: str = AUTO, session: str | None = None
) -> list[FileReport]:
    """Import a file, a folder or an archive of transcripts, as `agent-eval import` does.

    Args:
        path: A file, folder or archive of transcripts.
        agent: The id of the agent that the transcripts belong to.
        project: The project. Transcripts are stored in its folder data/sessions.
        format_name: A format in docs/formats.md. Default: the format of each file is detected from its content.
        session: The session id, for a single file. Default: derived from the name of the file.

    Returns:
        One report per file, with the numbers of conversations and turns, and the rejected records with reasons. If a
        file cannot be imported, its report contains the reason; no error is raised.

    Raises:
        ArgumentError: If an argument has an unsupported type or is empty, or if `session` is given for several files.
        NotFoundError: If the path does not exist, or if the format is unknown.
        InputError: If the agent id is invalid, or if the session id is invalid.
    """
    require("project", project, Project, _A_PROJECT)
    source_path = path_of("path", path, "the path of a file, folder or archive")
    check_id("agent", agent, "the id of an agent")
    if not is_slug(agent):
        raise invalid_agent_id(agent)
    if session is not None:
        check_id("session", session, "the id of a session")
        if not is_slug(session):
            raise invalid_session_id(session)
    check_id("format_name", format_name, "the name of a format")
    if format_name not in (AUTO, *FORMATS):
        raise unknown_format(format_name, FORMATS)
    files = input_files([source_path])
    if session is not None and len(files) != 1:
        raise ArgumentError(
            "session", session, f"None, because the path contains {count_of(len(files), 'file')}"
        )
    folder = project.home.existing_sessions()
    return list(import_files(format_name, files, sessions_folder=folder, agent_id=agent, session_id=session))


def run_project(
    project: Project,
    *,
    agents: Sequence[str] = (),
    methodologies: Sequence[str] = (),
    judge: str | None = None,
) -> RunReport:
    """Bring all tables of a project up to date, as `agent-eval run` does.

    Args:
        project: The project.
        agents: Ids of the agents to include. Default: all.
        methodologies: Methodology versions to include. Default: all.
        judge: litellm name of a judge model. Default: the setting `judge_model`. API keys are read from environment
            variables.

    Returns:
        A report of updated tables, rejected records and unscored judgments, with the exit code of the command.

    Raises:
        ArgumentError: If an argument has an unsupported type.
        JudgeError: If the API key of the judge model is missing or the model is unknown. No request is sent.
        NotFoundError: If an agent does not exist, or if a version does not exist.
        RunError: If the run fails. Completed work is stored.
    """
    require("project", project, Project, _A_PROJECT)
    if judge is not None:
        require("judge", judge or None, str, "the name of a model")
    agent_ids, versions = names_of("agents", agents), names_of("methodologies", methodologies)
    from agent_eval.commands.run import run  # loads Dagster

    with_judge = project.with_settings(judge_model=judge)
    refuse_unusable_judges(with_judge, agent_ids, versions)
    return run(with_judge, agent_ids, versions)


def compare_agents(
    project: Project, agent: str, other: str, *, methodology: str | None = None
) -> pl.DataFrame:
    """Compare two agents of a project, as `agent-eval compare` does.

    Args:
        project: The project.
        agent: The id of an agent.
        other: The id of another agent.
        methodology: A methodology version. Default: the current one.

    Returns:
        One row per compared quantity: `quantity`, `unit` (sessions, tasks or conversations), `value` and `other_value` on
        the quantity's scale, `difference` (`value` − `other_value`) with its 95 % interval `low` to `high`, `p_value`,
        `p_holm` (corrected over the secondary quantities), `smallest_detectable`, `verdict`, and `reason` if the verdict
        is unknown. Values that cannot be computed are null, such as the interval of a single unit. The frame is empty if
        the agents have no quantity in common.

    Raises:
        ArgumentError: If an argument has an unsupported type or is empty.
        InvalidValueError: If both ids are equal.
        NotFoundError: If an agent does not exist, or if the version does not exist.

    Example:
        >>> project = agent_eval.open_project("examples")  # doctest: +SKIP
        >>> agent_eval.compare_agents(project, "lumen-support", "quill-help")["verdict"]  # doctest: +SKIP
    """
    from agent_eval.commands.results.compare import compared
    from agent_eval.scores.statistics.compare import SCHEMA

    require("project", project, Project, _A_PROJECT)
    for name, value in (("agent", agent), ("other", other)):
        check_id(name, value, "the id of an agent")
    if methodology is not None:
        check_id("methodology", methodology, "a version such as '1.3.0'")
    version = project.registry.current.version if methodology is None else methodology
    comparison_rows = compared(project, version, agent, other).rows
    return pl.DataFrame(schema=SCHEMA) if comparison_rows is None else comparison_rows


def judge_conversations(
    conversations: Mapping[str, Any] | Iterable[Mapping[str, Any]] | pl.DataFrame,
    judge: str | Script,
    *,
    metrics: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Judge conversations without a project. Rules are applied before the judge, and nothing is stored.

    Args:
        conversations: One or several `{"conversation_id": …, "messages": [{"role": …, "content": …}, …]}`, or a frame
            with these columns. docs/sessions.md lists optional keys such as `goal`, `tools` and `knowledge`.
        judge: litellm name of a model whose API key is in an environment variable; or a function (which may be async)
            that receives a metric's name and the prompt, and returns a score, a label, or None if undecided.
        metrics: Names of built-in metrics. Default: all. Some metrics expect labels: a warning lists the metrics for
            which the answers of a function are invalid.

    Returns:
        The effective judgments, one row per metric and turn (`turn_index` from 0) or per metric and conversation
        (`turn_index` null). A row has a `rating_1to5`, a `value` (0 to 1) or a `label` if its `status` is "scored".

    Raises:
        ArgumentError: If an argument has an unsupported type, or the function does not take two arguments.
        InvalidValueError: If a conversation is invalid.
        NotFoundError: If a metric does not exist.
        JudgeError: If the API key of the model is missing or the model is unknown. No request is sent.

    Example:
        >>> said = {"conversation_id": "c", "messages": [{"role": "user", "content": "Hi"},
        ...         {"role": "assistant", "content": "Hello, how can I help?"}]}
        >>> agent_eval.judge_conversations(said, lambda metric, prompt: 4, metrics=["helpfulness"])["rating_1to5"][0]
        4
    """
    require("conversations", conversations, (Mapping, Iterable, pl.DataFrame), _CONVERSATIONS)
    check_judge(judge)
    names = None if metrics is None else names_of("metrics", metrics)
    metric_set = DEFAULT if names is None else MetricSet(tuple(DEFAULT.get(name) for name in names))
    rows = ConversationRows()
    used_ids = set[str]()
    for number, conversation in enumerate(_read(conversations), start=1):
        if id_key(conversation.conversation_id) in used_ids:
            raise _invalid_conversation(
                number, f"another conversation has the id {conversation.conversation_id!r}"
            )
        used_ids.add(id_key(conversation.conversation_id))
        rows.add("agent", "session", None, conversation)
    conversation_rows = table("conversations").conform(rows.conversations.frame())
    admitted = table("transcripts").frame(
        {
            **{key: row[key] for key in _TAKEN_OVER},
            "methodology_version": "any", "benchmark_id": "any", "tests": [], "is_admitted": True,
        }
        for row in conversation_rows.iter_rows(named=True)
    )  # fmt: skip
    cache = table("judge_cache").empty()
    judgments = judge_transcripts(
        *(
            admitted,
            conversation_rows,
            table("turns").conform(rows.turns.frame()),
            table("human_ratings").empty(),
            lambda _: cache,
        ),
        metrics=metric_set,
        panel=_panel(judge),
    )
    whole = judgments.conversation_judgments.with_columns(turn_index=pl.lit(None, pl.Int64))
    columns = [*RATINGS, "is_effective"]
    both = pl.concat([judgments.turn_judgments.select(columns), whole.select(columns)])
    order = pl.col("turn_index").is_null()
    if callable(judge):
        _warn_of_misfits(both)
    return (
        both.filter("is_effective")
        .drop("is_effective")
        .sort("conversation_id", order, "turn_index", "metric")
    )


def reliability_of(trials: pl.DataFrame, ks: Sequence[int] | None = None) -> pl.DataFrame:
    """Return unbiased estimates of pass@k and pass^k over tasks, computed from a frame of trials.

    For a task with n trials, c of which are correct, pass@k is 1 − C(n−c, k)/C(n, k) and pass^k is C(c, k)/C(n, k), as
    in tau-bench. The result is the mean over the tasks with at least k trials of known outcome, for each k on its own.

    Args:
        trials: One row per trial, with `task_id` and `is_correct` (Boolean, or 0 and 1; null if the outcome is unknown).
            A trial without a task id belongs to no task: it is counted, but in no estimate.
        ks: Numbers of attempts. Default: 1 to the smallest number of known trials of any task that has one.

    Returns:
        One row per k: `k`, `pass_at_k` and `pass_hat_k` (0 to 1; null without an estimate); both with every unknown trial
        counted as failed (`…_worst`) and as passed (`…_best`); `n_tasks`, `n_tasks_excluded`; the numbers of trials
        of these tasks with a known outcome (`n_trials`), of all tasks with an unknown outcome (`n_unknown`) and without a
        task id (`n_without_task`); and `reason`, which names what is missing (null if nothing is).

    Raises:
        ArgumentError: If `trials` is not a frame, or `ks` is not a list of integers.
        InvalidValueError: If a column is missing, or `is_correct` contains other values, such as rewards,
            or if a k is less than 1, or greater than the largest number of trials of a task.

    Example:
        >>> trials = pl.DataFrame({"task_id": ["a", "a", "b", "b"], "is_correct": [True, False, True, True]})
        >>> agent_eval.reliability_of(trials)["pass_hat_k"].to_list()
        [0.75, 0.5]
    """
    check_trials(trials)
    if ks is not None and not (isinstance(ks, Sequence) and all(isinstance(k, int) for k in ks)):
        raise ArgumentError("ks", ks, "a list of integers, such as [1, 2]")
    n_without = trials["task_id"].null_count()
    tasks = trials.drop_nulls("task_id").group_by("task_id").agg(
        n=pl.col("is_correct").count(), c=pl.col("is_correct").cast(pl.Int64).sum(),
        n_open=pl.col("is_correct").null_count(),
    ).sort("task_id")  # fmt: skip
    counts = [Alike(n, c, n_open, 0, 1, ()) for n, c, n_open in tasks.select("n", "c", "n_open").iter_rows()]
    most = max((task.n for task in counts), default=0)
    least = min((task.n for task in counts if task.n), default=1 if trials.height else 0)
    attempts = [check_attempts(k) for k in ks] if ks is not None else list(range(1, least + 1))
    if ks is not None and attempts and max(attempts) > most:
        raise invalid_count(
            f"k is {max(attempts)}, but no task has more than {count_of(most, 'trial')} with a known outcome"
        )
    n_unknown = sum(task.n_open for task in counts)
    missing = [
        f"{n_unknown} of {n_unknown + sum(task.n for task in counts)} trials are of unknown outcome"
        if n_unknown
        else "",
        f"{n_without} without a task id count in no estimate" if n_without else "",
    ]
    rows = []
    for k in attempts:
        enough = [task for task in counts if task.n >= k]
        row: dict[str, object] = {
            "k": k,
            "pass_at_k": sum(pass_at_k(t.n, t.c, k) for t in enough) / len(enough) if enough else None,
            "pass_hat_k": sum(pass_hat_k(t.n, t.c, k) for t in enough) / len(enough) if enough else None,
            "n_tasks": len(enough),
            "n_tasks_excluded": len(counts) - len(enough),
            "n_trials": sum(t.n for t in enough),
            "n_unknown": n_unknown,
            "n_without_task": n_without,
            "reason": "; ".join(filter(None, [*([] if enough else [no_estimate(k, most)]), *missing]))
            or None,
        }
        row = within_bounds(row | worst_and_best(counts, k, "unbiased", k, 0))
        if (bound := row.pop("interval", None)) is not None:
            row["reason"] = f"{bound}; {row['reason']}"
        rows.append({name: row[name] for name in _OF_TRIALS})
    return pl.DataFrame(rows, schema=_OF_TRIALS)


_OF_TRIALS: Mapping[str, type[pl.DataType]] = {
    "k": pl.Int64,
    **dict.fromkeys(("pass_at_k", "pass_hat_k"), pl.Float64),
    **dict.fromkeys(("n_tasks", "n_tasks_excluded", "n_trials"), pl.Int64),
    **{f"pass_{kind}_k_{end}": pl.Float64 for kind in ("at", "hat") for end in ("worst", "best")},
    **dict.fromkeys(("n_unknown", "n_without_task"), pl.Int64),
    "reason": pl.String,
}


def _read(source: Mapping[str, Any] | Iterable[Mapping[str, Any]] | pl.DataFrame) -> Iterator[Conversation]:
    if isinstance(source, pl.DataFrame):
        rows: Iterable[Mapping[str, Any]] = source.iter_rows(named=True)
    else:
        rows = [source] if isinstance(source, Mapping) else source
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise _invalid_conversation(number, f"it is a {type(row).__name__}")
        try:
            conversation = Conversation.model_validate({k: v for k, v in row.items() if v is not None})
            json.dumps(conversation.model_dump(), ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            surrogate = "a text contains an unpaired surrogate, which is not valid Unicode"
            raise _invalid_conversation(number, surrogate) from error
        except ValidationError as error:
            raise _invalid_conversation(number, explain(error, Conversation)) from error
        if problem := conversation.problem():
            raise _invalid_conversation(number, problem)
        yield conversation


def _warn_of_misfits(judgments: pl.DataFrame) -> None:
    """Warn about answers of a function that are invalid for their metrics."""
    misfits = judgments.filter("is_effective", unscored_reason="parse_failure")
    if misfits.height:
        first = str(misfits["rationale"][0] or "")
        warnings.warn(
            f"{misfits.height} of {judgments.height} judgments are unscored, because answers of the function are invalid for their "
            f"metrics: {first[:200]}. Return a valid answer for each metric, or choose other metrics with `metrics`.",
            stacklevel=3,
        )


def _panel(judge: str | Script) -> Panel:
    if callable(judge):
        client: Client = ScriptedClient(judge)
        tokens, kinds = CONTEXT_TOKENS, frozenset[AttachmentKind]()
    else:
        client = LiteLLMClient(judge, 0.0, 60.0, price_of(judge))
        tokens, kinds = context_tokens_of(judge) or CONTEXT_TOKENS, attachment_kinds_of(judge)

    @contextmanager
    def writing() -> Iterator[Callable[[Sequence[Mapping[str, object]]], None]]:
        yield lambda _: None

    secret = secrets.token_bytes(32)  # for the codes that delimit transcripts in prompts
    runtime = JudgeRuntime(client=lambda _: client, writing=writing, secret=secret)
    return Panel(JudgeSpec((client.model,)), runtime, lambda _: ViewLimits(tokens, kinds=kinds))
