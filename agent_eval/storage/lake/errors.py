"""Define the errors of a lake; each message is one line with the problem and the fix, without passwords."""

from agent_eval.errors import StorageError
from agent_eval.storage.store_errors import StoreError

INSTALL = "Install the extra in a checkout: `pip install -c constraints-cluster.txt '.[cluster]'`"


def missing_extra(why: str) -> StorageError:
    """Return the error if a library of the extra `cluster` is missing or incompatible with the installed duckdb."""
    return StorageError(f"The store is a DuckLake, but {why}. {INSTALL}.")


class CatalogError(StoreError):
    """Raised when the Postgres server of the catalog cannot be used.

    Fix: Start the Postgres server, or correct `catalog` in [store].
    """

    def __init__(self, attach: str, doing: str, why: str) -> None:
        super().__init__(
            attach,
            doing,
            f"its catalog cannot be reached ({_first_line(why)})",
            "Start the Postgres server, or correct `catalog` in the table [store] of agent_eval.toml; the password is "
            "read from PGPASSWORD or PGPASSFILE",
        )


class NotInitialisedError(StoreError):
    """Raised when the catalog's database does not contain a lake yet.

    Fix: Run `agent-eval store init` once.
    """

    def __init__(self, attach: str, doing: str) -> None:
        super().__init__(
            attach, doing, "its catalog does not contain a lake yet", "Run `agent-eval store init` once"
        )


class DataFolderError(StoreError):
    """Raised when the folder of Parquet files is missing or belongs to another lake.

    Fix: Mount the shared folder, or correct `data` in [store].
    """

    def __init__(self, attach: str, doing: str, why: str) -> None:
        super().__init__(
            attach,
            doing,
            why,
            "Mount the shared folder on this machine, or correct `data` in the table [store] of agent_eval.toml",
        )


def wrong_clock(attach: str, skew: str) -> StoreError:
    """Return the error if a worker whose clock is wrong would write: the times of its rows would be wrong too."""
    return StoreError(attach, "write", skew, "Set the clocks of both machines with NTP, and run again")


class ConflictError(StoreError):
    """Raised when other writers changed the same tables for longer than the time limit.

    Fix: Run again when the other writers have finished.
    """


def lost_lock(attach: str, what: str) -> StoreError:
    """Return the error if the session that held a lock has ended.

    Another worker may have acquired the lock, so nothing is committed.
    """
    return StoreError(
        attach,
        "write",
        f"the catalog ended the session that held the lock of {what}, so another worker may have acquired it",
        "Run the command again; it resumes the remaining work",
    )


def _first_line(why: str) -> str:
    return (why.strip().splitlines() or ["unknown reason"])[0].strip().rstrip(".")
