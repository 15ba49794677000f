"""Define the errors of a lake; each message is one line with the problem and the fix, without passwords."""

from agent_eval.errors import StorageError
from agent_eval.storage.store_errors import StoreError

INSTALL = "Install the extra in a checkout: `pip install -c constraints-cluster.txt '.[cluster]'`"


class ClusterExtraError(StorageError):
    """Raised when a library of the extra `cluster` is missing or incompatible with the installed duckdb."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The store is a DuckLake, but {why}. {INSTALL}.")


class CatalogError(StoreError):
    """Raised when the Postgres server of the catalog cannot be used."""

    def __init__(self, attach: str, doing: str, why: str) -> None:
        super().__init__(
            attach,
            doing,
            f"its catalog cannot be reached ({_first_line(why)})",
            "Start the Postgres server, or correct `catalog` in the table [store] of agent_eval.toml; the password is "
            "read from PGPASSWORD or PGPASSFILE",
        )


class NotInitialisedError(StoreError):
    """Raised when the catalog's database does not contain a lake yet."""

    def __init__(self, attach: str, doing: str) -> None:
        super().__init__(
            attach, doing, "its catalog does not contain a lake yet", "Run `agent-eval store init` once"
        )


class DataFolderError(StoreError):
    """Raised when the folder of Parquet files is missing or belongs to another lake."""

    def __init__(self, attach: str, doing: str, why: str) -> None:
        super().__init__(
            attach,
            doing,
            why,
            "Mount the shared folder on this machine, or correct `data` in the table [store] of agent_eval.toml",
        )


class ClockError(StoreError):
    """Raised when a worker whose clock is wrong would write: the times of its rows would be wrong too."""

    def __init__(self, attach: str, skew: str) -> None:
        super().__init__(attach, "write", skew, "Set the clocks of both machines with NTP, and run again")


class ConflictError(StoreError):
    """Raised when other writers changed the same tables for longer than the time limit."""


class LostLockError(StoreError):
    """Raised when the session that held a lock has ended.

    Another worker may have acquired the lock, so nothing is committed.
    """

    def __init__(self, attach: str, what: str) -> None:
        super().__init__(
            attach,
            "write",
            f"the catalog ended the session that held the lock of {what}, so another worker may have acquired it",
            "Run the command again; it resumes the remaining work",
        )


def _first_line(why: str) -> str:
    return (why.strip().splitlines() or ["unknown reason"])[0].strip().rstrip(".")
