"""Answers of judges in a project's store, and the judges that the stored judgments were asked of.

Answers are first written to a journal beside the store, where a killed run leaves them, and then merged into it.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.storage import Store
from agent_eval.storage.journal import Journal, finished_journals
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_CACHE, _STATE = table("judge_cache"), table("judge_state")


@dataclass(frozen=True)
class AnswerCache:
    """The answers of one store. `journals` is the folder of those on their way into it."""

    store: Store
    journals: Path

    def find(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the stored answers to any of the questions (table judge_cache), those of a killed run among them."""
        self.merge()
        wanted = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        return self.store.read(_CACHE, wanted)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Callable[[Sequence[Mapping[str, object]]], None]]:
        """Yield a function that stores answers of models (rows of judge_cache).

        They are safe when it returns, and merged into the store at the end.
        """
        journal = Journal.begin(self.journals)
        try:
            yield journal.append
        finally:
            journal.close()
            self.merge()

    def merge(self) -> None:
        """Move answers from journals that no process holds into the store."""
        if not self.journals.is_dir():
            return
        with finished_journals(self.journals, _CACHE) as rows:
            self.store.upsert(_CACHE, rows, run_id="judge")

    def sync_recorded(self, verdicts: pl.DataFrame, *, run_id: str) -> None:
        """Make the store hold exactly these recorded verdicts (table judge_cache); answers of models stay."""
        stored = self.store.read(_CACHE, pl.DataFrame({"is_recorded": [True]}))
        changed = verdicts.join(stored, on=["cache_key", "verdict", "judged_at"], how="anti")
        withdrawn = stored.join(verdicts, on="cache_key", how="anti")
        self.store.upsert(_CACHE, changed, run_id=run_id)
        self.store.delete(_CACHE, withdrawn.select(_CACHE.key))

    def last_judges(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return, for those of these pairs that a model was asked about, the judge that they were last asked of.

        Stores of earlier releases name one judge per version: it is that of each pair without one of its own.
        """
        rows = self.store.read(_STATE, columns=["agent_id", "methodology_version", "spec"]).iter_rows()
        kept = {(agent, version): spec for agent, version, spec in rows}
        found = {pair: kept.get(pair) or kept.get((None, pair.methodology_version)) for pair in pairs}
        return {pair: JudgeSpec.from_json(spec) for pair, spec in found.items() if spec is not None}

    def record_judge(self, pairs: Collection[AgentVersion], spec: JudgeSpec | None, *, run_id: str) -> None:
        """Remember that the judgments of these pairs were asked of this judge; without one nothing changes."""
        if spec is None:
            return
        rows = (pair._asdict() | {"spec": spec.to_json()} for pair in pairs)
        self.store.upsert(_STATE, _STATE.frame(rows), run_id=run_id)
