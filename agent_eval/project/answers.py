"""Store the answers of judges in a project's store, and which judge gave the stored judgments.

Answers are first written beside the store, so that they survive a killed run, and then merged.
"""

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.project.beside_store import BesideStore
from agent_eval.storage import Store
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

_CACHE, _STATE = table("judge_cache"), table("judge_state")


@dataclass(frozen=True)
class AnswerCache:
    """Read and write the answers of one store. `beside` holds those that are not merged yet."""

    beside: BesideStore

    @property
    def store(self) -> Store:
        """Return the store."""
        return self.beside.store

    def find(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the stored answers to the questions (table judge_cache), including those of a killed run."""
        self.beside.merge()
        wanted = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        return self.store.read(_CACHE, wanted)

    def sync_recorded(self, verdicts: pl.DataFrame, *, run_id: str) -> None:
        """Make the store hold exactly these recorded verdicts (table judge_cache); answers of models stay."""
        stored = self.store.read(_CACHE, pl.DataFrame({"is_recorded": [True]}))
        changed = verdicts.join(stored, on=["cache_key", "verdict", "judged_at"], how="anti")
        withdrawn = stored.join(verdicts, on="cache_key", how="anti")
        self.store.upsert(_CACHE, changed, run_id=run_id)
        self.store.delete(_CACHE, withdrawn.select(_CACHE.key))

    def last_judges(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge last used for each of these pairs; pairs never judged by a model are omitted.

        Stores of earlier releases name one judge per version: it applies to each pair without its own.
        """
        rows = self.store.read(_STATE, columns=["agent_id", "methodology_version", "spec"]).iter_rows()
        kept = {(agent, version): spec for agent, version, spec in rows}
        found = {pair: kept.get(pair) or kept.get((None, pair.methodology_version)) for pair in pairs}
        return {pair: JudgeSpec.from_json(spec) for pair, spec in found.items() if spec is not None}

    def record_judge(self, pairs: Collection[AgentVersion], spec: JudgeSpec | None, *, run_id: str) -> None:
        """Record this judge as the last one used for these pairs; without one nothing changes."""
        if spec is None:
            return
        rows = (pair._asdict() | {"spec": spec.to_json()} for pair in pairs)
        self.store.upsert(_STATE, _STATE.frame(rows), run_id=run_id)
