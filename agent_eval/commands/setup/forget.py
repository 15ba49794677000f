"""Implement `agent-eval store forget`: remove one conversation, and nothing that another one needs.

The line in data/sessions is removed too, because the next run would otherwise import the conversation again and ask
judges about it. Answers that a conversation with the same text also uses are kept. Answers about the whole session
(U1 to U6) are removed, because the judge read the conversation for them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from rich.console import Console

from agent_eval.errors import NotFoundError
from agent_eval.formats.atomic_files import sync_folder, sync_stream
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import one_line
from agent_eval.project import Project
from agent_eval.project.audits import merge_answers
from agent_eval.project.report import publish, report_folder
from agent_eval.report.html.folder import MARKER
from agent_eval.storage import Store
from agent_eval.storage.rewriting import copies_with, rewrite
from agent_eval.tables import table
from agent_eval.tables.schema import TABLES
from agent_eval.transcripts.sessions import CONVERSATIONS

_RUN = "forget"
_BLOCK = ("label", "tool", "text_hash")
_TEXTS = ("rule_root_cause", "root_cause", "model_root_cause")
_LAST = ("turns", "conversations")  # a repeated command still finds what an interrupted one has not removed


@dataclass
class _Found:
    """Hold where one conversation is stored."""

    agent_id: str
    conversation_id: str
    files: list[Path] = field(default_factory=list[Path])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    answers: pl.DataFrame = field(default_factory=pl.DataFrame)  # keys of judge_cache
    n_of_session: int = 0  # of the answers
    failures: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def key(self) -> pl.DataFrame:
        """Return the agent and the conversation as a frame of one row."""
        return pl.DataFrame({"agent_id": [self.agent_id], "conversation_id": [self.conversation_id]})


def forget(
    project: Project,
    out: Console,
    *,
    conversation_id: str,
    agent_id: str | None,
    confirm: Callable[[str], bool],
) -> int:
    """Remove a conversation from session files, tables, answers, clusters and the report; print what still has it.

    Return the exit code: 1 if `confirm` declines, so that nothing was changed, or a backup still has the conversation.

    Raises:
        NotFoundError: If no agent, or more than one, has the conversation.
        StoreError: If the store cannot be changed.
    """
    with project.store.exclusive_section("run"):
        project.beside_store.merge()
        merge_answers(project.beside_store, run_id="audit")
        traces = _found(project, conversation_id, agent_id)
        rows = ", ".join(f"{name} {n:,}" for name, n in traces.rows.items()) or "none"
        _say(out, f"Agent {traces.agent_id}, conversation {traces.conversation_id}. Rows: {rows}.")
        shared = f", of these {traces.n_of_session:,} about its whole session" if traces.n_of_session else ""
        _say(out, f"Answers of judges: {traces.answers.height:,}{shared}.")
        for file in traces.files:
            _say(out, f"Its line is removed from {file}.")
        if not confirm("Remove this conversation?"):
            _say(out, "Nothing was changed.")
            return 1
        _remove(project.store, traces)
        for file in traces.files:
            _without(file, traces.conversation_id)
        rewrite(project.store)
    if (report_folder(project) / MARKER).exists():
        publish(project)
        _say(out, f"The report in {report_folder(project)} was written again.")
    return _what_remains(project, out, traces)


def _found(project: Project, conversation_id: str, agent_id: str | None) -> _Found:
    sessions, store = project.home.sessions, project.store
    conversation_key = table("conversations"), pl.DataFrame({"conversation_id": [conversation_id]})
    agents = set(store.read(*conversation_key, columns=["agent_id"])["agent_id"])
    files: dict[str, list[Path]] = {}
    for file in sorted(sessions.glob(f"*/*/{CONVERSATIONS}")):
        with file.open("rb") as lines:
            has_it = any(_is_line_of(line, conversation_id) for line in lines)
        if has_it:
            files.setdefault(file.parent.parent.name, []).append(file)
    having = sorted((agents | files.keys()) & ({agent_id} if agent_id else agents | files.keys()))
    if len(having) != 1:
        of = f"Agent {agent_id!r}" if agent_id else "No agent"
        raise NotFoundError(
            f"{of} has {'no ' if agent_id else 'a '}conversation {conversation_id[:200]!r}. `agent-eval explain` lists ids."
            if not having
            else f"Several agents have a conversation {conversation_id[:200]!r}: {', '.join(having)}. Choose one with --agent."
        )
    traces = _Found(having[0], conversation_id, files.get(having[0], []))
    for name, each in TABLES.items():
        if {"agent_id", "conversation_id"} <= set(each.schema):
            n = store.counts(each, traces.key, columns=["agent_id"])["n"].sum()
            if n:
                traces.rows[name] = int(n)
    traces.failures = store.read(table("failures"), traces.key)
    traces.answers, traces.n_of_session = _answers(store, traces)
    return traces


def _answers(store: Store, traces: _Found) -> tuple[pl.DataFrame, int]:
    """Return the keys of the answers that only this conversation uses, and the number of those about its session."""
    is_own = (pl.col("agent_id") == traces.agent_id) & (pl.col("conversation_id") == traces.conversation_id)
    columns = ["agent_id", "conversation_id", "content_hash"]
    hashes = pl.concat([store.read(table(name), columns=columns) for name in _LAST])
    own = set(hashes.filter(is_own)["content_hash"].drop_nulls())
    others = set(hashes.filter(~is_own)["content_hash"].drop_nulls())
    whole = store.read(table("conversations"), columns=[*columns, "session_id"])
    for mine in whole.filter(is_own)["content_hash"].drop_nulls():
        if mine not in others:
            for other in others:
                own |= {digest("pair", mine, other), digest("pair", other, mine)}
    sessions = whole.filter(is_own).select("agent_id", "session_id").unique()
    rated = store.read(table("rubric_ratings"), sessions).filter(pl.col("conversation_id").is_null())
    keys = rated.select("question_key").drop_nulls().unique()
    of_session = set(store.read(table("judge_cache"), keys, columns=["content_hash"])["content_hash"])
    clusters = traces.failures["cluster_id"].unique().to_list() if traces.failures.width else []
    cache = store.read(
        table("judge_cache"), columns=["cache_key", "content_hash", "metric", "is_recorded"]
    ).filter(
        pl.col("content_hash").is_in(list((own - others) | of_session)) | pl.col("metric").is_in(clusters)
    )
    return cache.select("cache_key").unique(), cache.filter(
        pl.col("content_hash").is_in(list(of_session))
    ).height


def _remove(store: Store, traces: _Found) -> None:
    """Remove the conversation from the store; the rows by which it is found again are removed last."""
    for name in ("judge_cache", "judge_audits"):
        store.delete(table(name), traces.answers)
    _remove_from_clusters(store, traces)
    for name in (*(name for name in traces.rows if name not in _LAST), *_LAST):
        store.delete(table(name), traces.key)


def _remove_from_clusters(store: Store, traces: _Found) -> None:
    """Remove texts that only this conversation has, and the words of clusters that quote it or have no other text."""
    if traces.failures.is_empty():
        return
    everyone = store.read(table("failures"))
    others = everyone.join(traces.failures, on="failure_id", how="anti")
    texts = traces.failures.select(_BLOCK).drop_nulls("text_hash").unique()
    only_here = texts.join(others, on=list(_BLOCK), how="anti", nulls_equal=True)
    members = table("error_members")
    stored = store.read(members)
    other_members = stored.join(only_here, on=list(_BLOCK), how="anti", nulls_equal=True)
    theirs = (
        others.sort("failure_id")
        .unique(list(_BLOCK), keep="first")
        .select(*_BLOCK, "quote", "reason", first_failure="failure_id")
    )
    shared = other_members.join(texts, on=list(_BLOCK), how="semi", nulls_equal=True)
    shared = shared.drop("quote", "reason", "first_failure").join(
        theirs, on=list(_BLOCK), how="left", nulls_equal=True
    )
    store.upsert(members, shared.select(stored.columns), run_id=_RUN)
    store.delete(members, only_here)
    hashes = only_here.select("text_hash").join(other_members.select("text_hash"), on="text_hash", how="anti")
    store.delete(table("failure_vectors"), hashes.unique())
    registry = table("error_registry")
    touched = store.read(registry, traces.failures.select("cluster_id").unique())
    quoted = {text for name in ("quote", "reason") for text in traces.failures[name].drop_nulls() if text}
    store.upsert(
        registry,
        registry.frame(
            _without_words(row, quoted, has_others=row["cluster_id"] in set(others["cluster_id"]))
            for row in touched.iter_rows(named=True)
        ),
        run_id=_RUN,
    )
    store.delete(table("error_clusters"), traces.failures.select("agent_id", "cluster_id").unique())


def _without_words(row: dict[str, object], quoted: set[str], *, has_others: bool) -> dict[str, object]:
    """Return a row of error_registry without words from the conversation; a title becomes the label."""

    def is_told(text: object) -> bool:
        words = " ".join(str(text or "").rstrip("…").split())
        return any(
            words and (" ".join(q.split()) in words or words.partition(": ")[2][:40] in q) for q in quoted
        )

    for name in ("title", "rule_title", "model_title", *_TEXTS):
        if row[name] is not None and (not has_others or is_told(row[name])):
            row[name] = row["label"] if name in ("title", "rule_title") else None
    return row


def _is_line_of(line: bytes, conversation_id: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("conversation_id") == conversation_id


def _without(file: Path, conversation_id: str) -> None:
    """Rewrite a session file without the lines of the conversation; all other lines keep their bytes."""
    fresh = file.with_name(f".{file.name}.new")
    try:
        with file.open("rb") as lines, fresh.open("wb") as rewritten:
            rewritten.writelines(line for line in lines if not _is_line_of(line, conversation_id))
            sync_stream(rewritten)
        fresh.chmod(file.stat().st_mode & 0o777)
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(file.parent)


def _what_remains(project: Project, out: Console, traces: _Found) -> int:
    """Print which files still name the conversation; return 1 if a backup has it."""
    folders = (project.home.ratings, project.home.verdicts, project.home.clusters)
    for file in sorted(path for folder in folders for path in folder.glob("*") if path.is_file()):
        if traces.conversation_id.encode() in file.read_bytes():
            _say(out, f"{file} names the conversation; edit it yourself.")
    copies = list(copies_with(project.store, project.home.root, traces.agent_id, traces.conversation_id))
    for path, is_seen in copies:
        _say(
            out,
            f"Backup {path} {'still has it' if is_seen else 'cannot be read: it may have it'}; delete it yourself.",
        )
    _say(
        out,
        "Removed. The next `agent-eval run` computes scores and clusters without it. Copies elsewhere are not known: files that "
        "were imported, backups outside the project, Dagster's records of earlier runs, and the provider of the judge."
        + (" Run `agent-eval store compact` too." if project.store.file is None else ""),
    )
    return int(bool(copies))


def _say(out: Console, sentence: str) -> None:
    out.print(one_line(sentence), markup=False, soft_wrap=True)
