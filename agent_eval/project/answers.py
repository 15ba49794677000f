"""Read and write the answers of judges in a project's store, and record which judge gave the stored judgments.

Answers are first written to files or a catalog next to the store, so that they survive a killed run, and are then
merged into the store.
"""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.metrics.earlier import EARLIER, rubric_hash_now
from agent_eval.metrics.profile import asked_since
from agent_eval.project.beside_store import BesideStore
from agent_eval.storage import Store
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_ANSWERED_BY = ["question_key", "model", "parameters", "repeat", "is_recorded"]
_CACHE, _STATE = table("judge_cache"), table("judge_state")


@dataclass(frozen=True)
class AnswerCache:
    """Read and write the answers of one store. `beside` contains the answers that are not merged yet."""

    beside: BesideStore
    keeps_earlier: bool = False  # whether answers to earlier wordings of a question answer it

    @property
    def store(self) -> Store:
        """Return the store."""
        return self.beside.store

    def find(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the stored answers to the questions (rows of judge_cache), including those of a killed run.

        If earlier answers are kept, a question without an answer has that to its earlier wording, under its own key.
        """
        self.beside.merge()
        key_frame = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        stored = self.store.read(_CACHE, key_frame)
        if not self.keeps_earlier:
            return stored
        earlier = self.find_earlier(question_keys)
        return pl.concat([stored, earlier.join(stored, on=_ANSWERED_BY, how="anti", nulls_equal=True)])

    def find_earlier(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the answers to earlier wordings of the questions (rows of judge_cache), under their own keys."""
        return self.earlier().filter(pl.col("question_key").is_in(list(question_keys)))

    def earlier(self) -> pl.DataFrame:
        """Return the answers to earlier wordings (rows of judge_cache), each under the key of the current question."""
        forms = [{"metric": name, "profile_version": version} for name, (_, version) in EARLIER.items()]
        rows = self.store.read(_CACHE, pl.DataFrame(forms))
        names = ("metric", "rubric_hash", "profile_version", "content_hash", "turn_index")
        keys = [_key_now(*row) for row in rows.select(names).iter_rows()]
        now = pl.Series("question_key", keys, dtype=pl.String)
        return rows.with_columns(now).drop_nulls("question_key")

    def sync_recorded(self, verdicts: pl.DataFrame, *, run_id: str) -> None:
        """Replace the recorded verdicts in table judge_cache with these; answers of models are not changed."""
        stored = self.store.read(_CACHE, pl.DataFrame({"is_recorded": [True]}))
        changed = verdicts.join(stored, on=["cache_key", "verdict", "judged_at"], how="anti")
        withdrawn = stored.join(verdicts, on="cache_key", how="anti")
        self.store.upsert(_CACHE, changed, run_id=run_id)
        self.store.delete(_CACHE, withdrawn.select(_CACHE.key))

    def last_judges(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge last used for each of these pairs; pairs that no model has judged are omitted."""
        rows = self.store.read(_STATE, columns=["agent_id", "methodology_version", "spec"]).iter_rows()
        by_pair = {(agent, version): spec for agent, version, spec in rows}
        return {pair: JudgeSpec.from_json(by_pair[pair]) for pair in pairs if by_pair.get(pair) is not None}

    def record_judge(self, pairs: Collection[AgentVersion], spec: JudgeSpec | None, *, run_id: str) -> None:
        """Record this judge as the last one used for these pairs; if it is None, do nothing."""
        if spec is None:
            return
        rows = (pair._asdict() | {"spec": spec.to_json()} for pair in pairs)
        self.store.upsert(_STATE, _STATE.frame(rows), run_id=run_id)


def _key_now(
    metric: str, rubric_hash: str, profile_version: str, content_hash: str, turn_index: int | None
) -> str | None:
    """Return the current key of a question that was asked in an earlier wording; None for other questions."""
    now = rubric_hash_now(metric, rubric_hash, profile_version)
    return None if now is None else question_key(content_hash, turn_index, metric, now, asked_since(metric))
