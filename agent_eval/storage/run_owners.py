"""Record which process works on each run of Dagster, so that the run of a killed process can be marked as failed.

Dagster records no owner: a run whose process was killed stays "started", and every later run waits for it. There is
one file per run in DAGSTER_HOME. A process is identified by its id, its start and the boot of its machine, because
process ids are reused.
"""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from agent_eval.formats.atomic_files import write_atomically

_PROC = Path("/proc")


class Owner(Enum):
    """Describe whether the process that works on a run is active; `UNKNOWN` if this machine cannot decide it."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Process:
    """Identify a process; no two processes of any machine are equal."""

    host: str
    boot: str
    namespace: str  # of the process id: containers of one machine count their processes separately
    pid: int
    start: str

    @classmethod
    def current(cls) -> "Process":
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), _boot(), _namespace(), pid, _start(pid))

    def state(self) -> Owner:
        """Return whether the process is active, as far as this process can see."""
        if (self.boot, self.namespace) == (_boot(), _namespace()):
            return Owner.ALIVE if self.start and _start(self.pid) == self.start else Owner.DEAD
        was_rebooted = self.host == socket.gethostname() and self.boot != _boot()
        return Owner.DEAD if was_rebooted else Owner.UNKNOWN


@dataclass(frozen=True)
class RunOwners:
    """Record, list and remove the owners of the runs in one DAGSTER_HOME."""

    home: Path

    @classmethod
    def of(cls, root: Path) -> "RunOwners":
        """Return the owners in DAGSTER_HOME, else in `.dagster` of the project at `root`."""
        return cls(Path(os.environ.get("DAGSTER_HOME") or root / ".dagster"))

    def record(self, run_id: str) -> None:
        """Record this process as the owner of a run. An error, such as a full disk, must not stop the run."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file(run_id), json.dumps(asdict(Process.current())))

    def forget(self, run_id: str) -> None:
        """Remove the record of a run that has ended."""
        with contextlib.suppress(OSError):
            self._file(run_id).unlink(missing_ok=True)

    def state(self, run_id: str) -> Owner:
        """Return whether the owner of a run is active; unknown if none is recorded."""
        try:
            return Process(**json.loads(self._file(run_id).read_text(encoding="utf-8"))).state()
        except (OSError, ValueError, TypeError):
            return Owner.UNKNOWN

    def dead(self) -> list[str]:
        """Return the ids of the recorded runs whose owner has ended, sorted."""
        return sorted(run_id for run_id in self._recorded() if self.state(run_id) is Owner.DEAD)

    def _recorded(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            yield from (file.stem for file in self._folder.iterdir() if file.suffix == ".json")

    @property
    def _folder(self) -> Path:
        return self.home / "run_owners"

    def _file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"


def _boot() -> str:
    """Return an id of the current boot of this machine; '' if the system has none."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return str((_PROC / "self/ns/pid").readlink())
    return ""


def _start(pid: int) -> str:
    """Return when a process was started, as its system writes it; '' if it has ended or is a zombie."""
    if not (_PROC / "self/stat").exists():  # macOS
        ps_command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(ps_command, capture_output=True, text=True, check=False).stdout.strip()
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
