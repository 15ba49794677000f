"""Manage the data of a store that is not in its tables: unmerged answers, the ledger and the prompt secret.

For a DuckDB store these are files in the same folder. A lake stores them in its catalog, which all workers share.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl

from agent_eval.settings.home import Home
from agent_eval.settings.lake import LakeSettings
from agent_eval.storage import Store
from agent_eval.storage.journal import Journal, finished_journals
from agent_eval.storage.ledger import Ledger, SpendingCap, ledger_of, spent
from agent_eval.tables import table

if TYPE_CHECKING:
    from agent_eval.judge.llm.budget import SharedBudget
    from agent_eval.judge.llm.sharing.claims import ClaimTable
    from agent_eval.storage.lake import LakeStore

_CACHE = table("judge_cache")
Append = Callable[[Sequence[Mapping[str, object]]], None]


@dataclass(frozen=True)
class Caps:
    """Hold the caps on the number and cost of judge calls that apply across processes."""

    of_run: SpendingCap
    in_all: SpendingCap
    per_day: SpendingCap
    of_automation: SpendingCap  # per day


class BesideStore(Protocol):
    """Define access to the data of a store that is not in its tables."""

    @property
    def store(self) -> Store:
        """Return the store."""
        ...

    @property
    def journals(self) -> Path:
        """Return the folder of journals of this machine."""
        ...

    @property
    def model_facts(self) -> Path | None:
        """Return the file that keeps what litellm says of models; None with a lake, which keeps none."""
        ...

    @property
    def claiming(self) -> "Callable[[], ClaimTable] | None":
        """Return a function that opens the table of claimed questions; None if there are no other workers."""
        ...

    @contextlib.contextmanager
    def writing(self) -> Iterator[Append]:
        """Yield a function that stores answers (rows of judge_cache) durably; merge them after the block."""
        ...

    def merge(self) -> None:
        """Move answers into judge_cache, except those that a process is still writing."""
        ...

    def ledger(self, run: str, *, is_automatic: bool, caps: Caps) -> "SharedBudget":
        """Return the ledger of judge calls, to record the calls of one run."""
        ...

    def spent(self) -> pl.DataFrame:
        """Return the recorded spending as table spending."""
        ...

    def secret(self) -> bytes:
        """Return the random key for the codes that delimit transcripts in prompts; it is created once and stored."""
        ...


@dataclass(frozen=True)
class FilesBesideStore:
    """Store unmerged answers, ledger and prompt secret in files whose names are `base` with different endings."""

    store: Store
    base: Path
    claiming = None

    @property
    def model_facts(self) -> Path:
        """Return the file that keeps what litellm says of models."""
        return self._file(".models")

    @property
    def journals(self) -> Path:
        """Return the folder of the journals with answers that are not merged yet."""
        return self._file(".journal")

    @contextlib.contextmanager
    def writing(self) -> Iterator[Append]:
        """Yield a function that appends answers to a journal; merge the journal after the block."""
        journal = Journal.begin(self.journals)
        try:
            yield journal.append
        finally:
            journal.close()
            self.merge()

    def merge(self) -> None:
        """Move answers from unlocked journals into the store."""
        if not self.journals.is_dir():
            return
        with finished_journals(self.journals, _CACHE) as rows:
            self.store.upsert(_CACHE, rows, run_id="judge")

    def ledger(self, run: str, *, is_automatic: bool, caps: Caps) -> Ledger:
        """Return the ledger in a file, without the caps of the run, which the run's only process applies itself."""
        file = ledger_of(self.base)
        return Ledger(file, run, is_automatic, caps.in_all, caps.per_day, caps.of_automation)

    def spent(self) -> pl.DataFrame:
        """Return the recorded spending as table spending."""
        return spent(ledger_of(self.base))

    def secret(self) -> bytes:
        """Return the key, which is stored in a file."""
        from agent_eval.judge.llm.redaction import kept_secret

        return kept_secret(self._file(".key"))

    def _file(self, ending: str) -> Path:
        return self.base.with_name(self.base.name + ending)


@dataclass(frozen=True)
class CatalogBesideStore:
    """Store unmerged answers, ledger and prompt secret in the catalog of a lake.

    `data` is the project's data folder on this machine.
    """

    store: "LakeStore"
    data: Path
    model_facts = None

    @property
    def journals(self) -> Path:
        """Return a folder that only this machine uses, since file locks may not work across machines."""
        return self.data / f"agent_eval.lake.journal-{socket.gethostname()}"

    def claiming(self) -> "ClaimTable":
        """Open the table of claimed questions for a new worker."""
        from agent_eval.judge.llm.sharing.claims import RENEW_S
        from agent_eval.storage.lake.answers import ClaimedQuestions

        return ClaimedQuestions(self.store.catalog_session("write"), 3 * RENEW_S)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Append]:
        """Yield a function that stores answers in the catalog; merge them after the block."""
        from agent_eval.storage.lake.answers import publish

        with contextlib.closing(self.store.catalog_session("write")) as session:
            try:
                yield lambda rows: publish(session, rows)
            finally:
                self.merge()

    def merge(self) -> None:
        """Move the answers of all workers from the catalog into the lake."""
        from agent_eval.storage.lake.answers import merge

        merge(self.store)

    def ledger(self, run: str, *, is_automatic: bool, caps: Caps) -> "SharedBudget":
        """Return the ledger in the catalog, which also applies the caps of a run to all of its processes."""
        from agent_eval.storage.lake.ledger import CatalogLedger

        return CatalogLedger(
            self.store, run, is_automatic, caps.in_all, caps.per_day, caps.of_automation, caps.of_run
        )

    def spent(self) -> pl.DataFrame:
        """Return the recorded spending as table spending."""
        from agent_eval.storage.lake.ledger import spent

        return spent(self.store)

    def secret(self) -> bytes:
        """Return the key, which is stored in the catalog."""
        return self.store.prompt_secret()


def open_store(home: Home, location: Path | LakeSettings | None) -> BesideStore:
    """Open the store in the settings with its other data: a lake, or a DuckDB file relative to the root."""
    if isinstance(location, LakeSettings):
        from agent_eval.storage.lake import LakeStore  # needs the extra `cluster`

        return CatalogBesideStore(LakeStore.of(location.address, home.root / location.data), home.data)
    file = home.root / location if location else home.data / "agent_eval.duckdb"
    return FilesBesideStore(Store.at(file), file)
