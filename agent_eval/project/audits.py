"""Audit judge models: ask a fixed sample of answered questions again, without using the cache.

The stored answers are not changed and still count; the answers of the audit are stored in table `judge_audits`.
`judge.audits.drift` compares them; this module only reads and writes the answers.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import polars as pl

from agent_eval.formats.hashing import canonical
from agent_eval.judge.audits.drift import Audit, latest_drift
from agent_eval.judge.audits.sampling import audit_sample
from agent_eval.judge.engine import open_questions
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import Unscored
from agent_eval.project.beside_store import BesideStore
from agent_eval.project.project import Project
from agent_eval.storage.journal import Journal, finished_journals
from agent_eval.tables import table

_AUDITS = table("judge_audits")
Row = Mapping[str, object]


def audit_judges(project: Project, *, run_id: str, watch: Watch | None = None) -> Audit:
    """Ask each judge model in the settings its sample of questions again, and store the answers.

    The questions about a turn are asked as before: with the metrics that the model answered, in calls with the same
    layout. Questions without an earlier answer are not asked, lost answers are omitted, and the spending caps in
    the settings apply.

    Raises:
        JudgeError: If there is a cap in dollars and a model's price is unknown.
    """
    nothing = latest_drift(_AUDITS.empty())
    spec = project.judges.own
    if spec is None:
        return Audit(nothing, "no judge model is set; set judge_model or pass --judge")
    audit_id = datetime.now(UTC).isoformat(timespec="microseconds")
    sequences = _sequences(project)
    questions = [q for of_agent in sequences.values() for sequence in of_agent for q in sequence.questions]
    keys = {key for question in questions for key in question.keys.values()}
    stored = project.judges.answers.find(keys)
    lost: list[Unscored] = []
    n_asked = 0
    for model in spec.models:
        one = replace(spec, models=(model,), repeats=1)
        before = {str(row["question_key"]): row for row in _answers(stored, one).iter_rows(named=True)}
        sample = audit_sample(sequences, before, project.settings.audit_size)
        runtime = replace(
            project.judges.runtime, writing=partial(_kept, project, audit_id, before, run_id), claiming=None
        )
        answers_by_key = Panel(one, runtime).answers(
            sample, table("judge_cache").empty(), project.metrics.metrics, watch=watch or project.watch
        )
        verdicts = [verdict for judge_answers in answers_by_key.values() for _, verdict in judge_answers]
        lost += [verdict for verdict in verdicts if isinstance(verdict, Unscored)]
        n_asked += len(verdicts)
    if not n_asked:
        return Audit(nothing, f"{spec.name} has no stored answers to questions that could be asked again")
    audit_rows = project.store.read(_AUDITS, pl.DataFrame({"audit_id": [audit_id]}))
    if audit_rows.is_empty():
        return Audit(nothing, f"{spec.name} answered nothing: {lost[0].detail}", n_asked, len(lost))
    return Audit(latest_drift(audit_rows), None, n_asked, len(lost), lost[0].detail if lost else "")


def _sequences(project: Project) -> dict[str, list[QuestionSequence]]:
    """Return all questions that models are asked about turns and conversations, by agent."""
    sequences = {}
    for agent in project.known_agents():
        key = pl.DataFrame({"agent_id": [agent]})
        transcripts, conversations, turns = (
            project.store.read(table(name), key) for name in ("transcripts", "conversations", "turns")
        )
        sequences[agent] = open_questions(
            transcripts, conversations, turns, project.metrics, project.blinded_terms([agent])
        )
    return sequences


def _answers(stored: pl.DataFrame, spec: JudgeSpec) -> pl.DataFrame:
    """Return the stored answers that one model gave with these parameters."""
    written = canonical(dict(spec.parameters)).decode()
    is_own = pl.col("is_recorded").is_null() & (pl.col("model") == spec.models[0])
    return stored.filter(is_own & (pl.col("parameters") == written))


@contextlib.contextmanager
def _kept(
    project: Project, audit_id: str, before: Mapping[str, Row], run_id: str
) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Yield a function that appends answers to a journal; they are durable when it returns.

    The journal is merged into table judge_audits at the end of the block.
    """
    journal = Journal.begin(_folder(project.beside_store))

    def keep(rows: Sequence[Row]) -> None:
        journal.append([_row(row, before[str(row["question_key"])], audit_id) for row in rows])

    try:
        yield keep
    finally:
        journal.close()
        merge_answers(project.beside_store, run_id=run_id)


def merge_answers(beside: BesideStore, *, run_id: str) -> None:
    """Move the answers of finished and of killed audits of this machine into table judge_audits."""
    with finished_journals(_folder(beside), _AUDITS) as rows:
        beside.store.upsert(_AUDITS, rows, run_id=run_id)


def _folder(beside: BesideStore) -> Path:
    return beside.journals.with_name(f"{beside.journals.name}-audit")


def _row(answer: Row, before: Row, audit_id: str) -> dict[str, object]:
    own = {name: answer[name] for name in _AUDITS.schema if name in answer}
    return own | {
        "audit_id": audit_id,
        "verdict_before": before["verdict"],
        "judged_before_at": str(before["judged_at"]),
    }
