"""Kills, full memory, full disks, a clock set back, a read-only project, backups and many processes at once: by hand, half an hour.

`python -m benchmarks.chaos [KIND …]` prints a line for each disturbance that did harm, a line per kind, and `n of n`.
A project is disturbed, then one plain run follows: it must exit with 0, all tables must equal those of an undisturbed
project, and a judge may be paid again for no more calls than were under way.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import polars as pl

from benchmarks.interrupting import tables
from benchmarks.judge_server import MockJudge, mock_judge
from benchmarks.live import served

CONCURRENCY, N_CHATS, LATENCY_MS = 4, 12, 60
RUN = ("run", "--methodology", "1.3.0")
IMPORT = ("import", "openai", "chats.jsonl", "--agent", "bot")
MOVING = (
    "judged_at",
    "answered_at",
    "first_seen",
    "last_seen",
    "n_tokens_cached",
)  # the clock, the provider's cache
Tables = dict[str, pl.DataFrame]


class HarmError(Exception):
    """What a disturbance broke."""


@dataclass
class Ground:
    """Makes projects, and knows what an undisturbed one holds and costs."""

    folder: Path
    judge: MockJudge
    plainly: Sequence[str] = (
        sys.executable,
        "-m",
        "agent_eval",
    )  # how a command starts that nothing disturbs
    sizes: dict[str, int] = field(
        default_factory=dict[str, int]
    )  # bytes at most: store, journal, events, home
    n_repeated: int = 0

    def __post_init__(self) -> None:
        self.judge.reset(latency_ms=LATENCY_MS)
        started = time.monotonic()
        self.calm = self.fresh()
        self.import_s = time.monotonic() - started
        began = time.monotonic()
        process = self.start(self.calm, program=self.plainly)
        while process.poll() is None:
            time.sleep(0.02)
            for name, size in _sizes(self.calm).items():
                self.sizes[name] = max(size, self.sizes.get(name, 0))
            if self.judge.stats()["calls"] == 0:
                started = time.monotonic()
        process.communicate()
        self.run_s = time.monotonic() - started  # from the first call on
        self.whole_s = time.monotonic() - began
        self.n_calls = self.judge.stats()["calls"]
        self.expected = shown(self.calm)

    def fresh(self, *, is_imported: bool = True) -> Path:
        """A project of its own that was never run."""
        root = Path(tempfile.mkdtemp(dir=self.folder))
        write_chats(root / "chats.jsonl", range(N_CHATS))
        (root / "data").mkdir()
        (root / "data" / "agent_eval.duckdb.key").write_bytes(b"k" * 32)  # what fences texts: equal prompts
        if is_imported:
            self.plain(root, *IMPORT)
        return root

    def start(
        self, root: Path, *command: str, before: Sequence[str] = (), program: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """A command on the project, `run` if none is named, in a process of its own."""
        return subprocess.Popen(
            [*before, *(program or (sys.executable, "-m", "agent_eval")), *(command or RUN)],
            cwd=root,
            env=os.environ | self.environment(root),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def environment(self, root: Path) -> dict[str, str]:
        return self.judge.environment | {
            "AGENT_EVAL_HOME": str(root),
            "DAGSTER_HOME": str(root / ".dagster"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "AGENT_EVAL_JUDGE_CONCURRENCY": str(CONCURRENCY),
        }

    def plain(self, root: Path, *command: str, before: Sequence[str] = ()) -> str:
        """What a command says that must go well."""
        program = () if before else self.plainly
        process = self.start(root, *command, before=before, program=program)
        said, _ = process.communicate(timeout=600)
        if process.returncode:
            raise HarmError(f"{' '.join(command) or 'run'} exits with {process.returncode}: {said[-600:]}")
        return said

    def recovers(
        self, root: Path, *command: str, spare: int = CONCURRENCY, expected: Tables | None = None
    ) -> None:
        """One plain run puts all in order, and asks only for what no answer is stored of.

        Raises:
            HarmError: If it does not.
        """
        n_before, n_told = self.judge.stats()["calls"], _n_scored(root)
        self.plain(root, *command)
        found = shown(root)
        different = [
            name for name, frame in (expected or self.expected).items() if not frame.equals(found[name])
        ]
        if different:
            raise HarmError(f"other rows in {', '.join(different)}")
        n_all = self.judge.stats()["calls"]
        self.n_repeated += n_all - self.n_calls
        if n_all - self.n_calls > spare:
            raise HarmError(f"{n_all - self.n_calls} calls were paid twice")
        if n_told + n_all - n_before > self.n_calls:
            raise HarmError(f"{n_told} questions were shown as scored, {n_all - n_before} were asked again")


def write_chats(file: Path, numbers: Sequence[int]) -> None:
    """Conversations of two turns each."""
    lines = [
        {
            "id": f"c{i}",
            "task_id": f"t{i}",
            "correct": i % 3 > 0,
            "messages": [
                {"role": role, "content": f"{said} {i}."}
                for role, said in (
                    ("user", "Where is parcel"),
                    ("assistant", "On its way is parcel"),
                    ("user", "And the bill of"),
                    ("assistant", "Paid is the bill of"),
                )
            ],
        }
        for i in numbers
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def shown(root: Path) -> Tables:
    """Every table without what depends on the moment, and without who paid for which call."""
    held = {name: frame for name, frame in tables(root).items() if name != "spending"}
    held["human_ratings"] = held["human_ratings"].drop("line")  # as of the last change of the agent's ratings
    by_person = pl.when(pl.col("rater") != pl.col("judge")).then("rated_at").alias("rated_at")
    held["rubric_ratings"] = held["rubric_ratings"].with_columns(by_person)  # a model rates when it answers
    return {name: frame.drop(*MOVING, strict=False) for name, frame in held.items()}


def _sizes(root: Path) -> dict[str, int]:
    def bytes_of(*patterns: str) -> int:
        total = 0
        for path in (path for pattern in patterns for path in root.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):
                total = max(total, path.stat().st_size)
        return total

    return {
        "store": bytes_of("data/agent_eval.duckdb"),
        "journal": bytes_of("data/agent_eval.duckdb.journal/*.jsonl"),
        "events": bytes_of(".dagster/history/**/*.db"),
    }


def _n_scored(root: Path) -> int:
    """Turns that the store shows as answered by the model."""
    try:
        with duckdb.connect(str(root / "data" / "agent_eval.duckdb"), read_only=True) as con:
            query = "SELECT count(DISTINCT (conversation_id, turn_index)) FROM turn_judgments WHERE status = 'scored' AND judge_model LIKE '%mock%'"
            return int((con.execute(query).fetchone() or (0,))[0])
    except duckdb.Error:  # never made, or damaged
        return 0


# What is done to a project. Each ends with a plain run.


def killed_while_judging(ground: Ground, chance: random.Random) -> None:
    """kill -9 after a random number of calls."""
    process = ground.start(root := ground.fresh())
    _when_asked(ground, process, chance.randint(1, ground.n_calls - 1))
    process.kill()
    process.communicate()
    ground.recovers(root)


def killed_while_writing(ground: Ground, chance: random.Random) -> None:
    """kill -9 at a random moment after the first call: answers are merged, tables written, events stored."""
    process = ground.start(root := ground.fresh())
    _when_asked(ground, process, 1)
    time.sleep(chance.uniform(0, ground.run_s))
    process.kill()
    process.communicate()
    ground.recovers(root)


def killed_while_importing(ground: Ground, chance: random.Random) -> None:
    """kill -9 of an import, which is then repeated."""
    process = ground.start(root := ground.fresh(is_imported=False), *IMPORT)
    time.sleep(chance.uniform(0.3, 1) * ground.import_s)
    process.kill()
    process.communicate()
    ground.plain(root, *IMPORT)
    ground.recovers(root)


def memory_killed(ground: Ground, chance: random.Random) -> None:
    """From a random moment on, a control group has no more memory: the kernel kills the run. Only root can make one."""
    group = Path("/sys/fs/cgroup/memory", f"agent-eval-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        raise HarmError(f"a control group of version 1 cannot be made: {error}") from error
    try:
        process = ground.start(root := ground.fresh())
        (group / "cgroup.procs").write_text(f"{process.pid}")
        _wait(process, chance.uniform(0, ground.whole_s))
        while process.poll() is None:  # it frees some now and then
            with contextlib.suppress(OSError):
                (group / "memory.limit_in_bytes").write_text((group / "memory.usage_in_bytes").read_text())
            time.sleep(0.02)
        said, _ = process.communicate()
    finally:
        _until_empty(group)
    if process.returncode not in (0, -signal.SIGKILL):
        raise HarmError(f"exit {process.returncode}: {said[-1500:]}")
    ground.recovers(root)


def memory_refused(ground: Ground, chance: random.Random) -> None:
    """From a random moment on, `ulimit -v` leaves some more megabytes: allocations of the run fail."""
    process = ground.start(root := ground.fresh())
    _wait(process, chance.uniform(0, ground.whole_s))
    with contextlib.suppress(OSError):  # it has ended
        n_pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        left = n_pages * resource.getpagesize() + chance.randrange(2**24)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (left, resource.RLIM_INFINITY))
    try:
        process.communicate(timeout=120)
    except subprocess.TimeoutExpired as hang:
        process.kill()
        raise HarmError(f"still runs two minutes later: {process.communicate()[0][-600:]}") from hang
    ground.recovers(root)


def journal_full(ground: Ground, chance: random.Random) -> None:
    """The disk with store and journal has room for a random part of the journal, for good or for a second.

    A limit on the size of files would refuse writes in the middle of the store too, below the size that it has, which
    no full disk does and which damages any database file.
    """
    root = ground.fresh()
    shutil.copytree(root / "data", root / "imported")
    with _small_disk(root / "data", 300_000_000) as is_mounted:
        if not is_mounted:
            raise HarmError("no small disk can be mounted here")
        shutil.copytree(root / "imported", root / "data", dirs_exist_ok=True)
        process = ground.start(root)
        _when_asked(ground, process, 1)
        filler = root / "data" / "filler"
        left = chance.randrange(ground.sizes["journal"])
        with filler.open("wb") as file:
            while (free := shutil.disk_usage(filler.parent).free) > left:
                with contextlib.suppress(OSError):  # the run took some of it meanwhile
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free - left)
        if chance.random() < 0.5:
            time.sleep(1)
            filler.unlink()
        process.communicate()
        filler.unlink(missing_ok=True)
        ground.recovers(root)


def store_full(ground: Ground, chance: random.Random) -> None:
    """No file may pass a random size of the store."""
    process = ground.start(root := ground.fresh())
    _limit(process, chance.randrange(ground.sizes["events"], ground.sizes["store"]))
    process.communicate()
    ground.recovers(root)


def event_log_full(ground: Ground, chance: random.Random) -> None:
    """Dagster's folder is a disk of a random size; without the right to mount one, no file may pass that size."""
    size = chance.randrange(2**16, 2 * ground.sizes["events"])
    root = ground.fresh()
    with _small_disk(root / ".dagster", size) as is_mounted:
        process = ground.start(root)
        if not is_mounted:
            _limit(process, size)
        process.communicate()
        _enlarge(root / ".dagster", is_mounted=is_mounted)
        ground.recovers(root)


def data_disk_full(ground: Ground, chance: random.Random) -> None:
    """The data folder is a disk of a random size; too little room to pay for answers is said beforehand."""
    root = ground.fresh()
    shutil.copytree(root / "data", root / "imported")
    size = chance.choice((2**17, 32_000_000)) + chance.randrange(ground.sizes["store"])
    with _small_disk(root / "data", size) as is_mounted:
        shutil.copytree(root / "imported", root / "data", dirs_exist_ok=True)
        process = ground.start(root)
        if not is_mounted:
            _limit(process, size)
        process.communicate()
        _enlarge(root / "data", is_mounted=is_mounted)
        ground.recovers(root)


def clock_set_back(ground: Ground, chance: random.Random) -> None:
    """A run of a changed file some days ahead; the file is changed back, then a run today. Needs `faketime`.

    The tables must equal those after the same two runs by one clock, but for hashes of rows: those of error clusters
    contain the day on which each was first seen.
    """
    if not (program := shutil.which("faketime")):
        raise HarmError("faketime is not installed")
    ahead = (program, "-f", f"+{chance.randint(1, 30)}d")
    calm, disturbed = ground.fresh(), ground.fresh()
    for root, before in ((calm, ()), (disturbed, ahead)):
        ground.judge.reset(latency_ms=LATENCY_MS)
        session = next((root / "data" / "sessions").glob("*/*/session.yaml"))
        text = session.read_text()
        session.write_text(f"{text}# changed\n")
        ground.plain(root, before=before)
        session.write_text(text)
    ground.plain(calm)
    expected = {name: frame for name, frame in shown(calm).items() if name != "run_state"}
    ground.recovers(disturbed, expected=expected)


def read_only(ground: Ground, chance: random.Random) -> None:
    """The project is mounted read-only at a run, and the command says so in a line."""
    root = ground.fresh()
    if chance.random() < 0.5:
        ground.plain(root)
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    if subprocess.call(["mount", "--bind", str(root), str(root)], stderr=subprocess.DEVNULL):
        raise HarmError("only root can mount a folder read-only")
    try:
        subprocess.check_call(["mount", "-o", "remount,bind,ro", str(root)])
        said, _ = (process := ground.start(root)).communicate()
    finally:
        subprocess.check_call(["umount", "--lazy", str(root)])
    if process.returncode == 0 or "Traceback" in said or len(said.splitlines()) > 5:
        raise HarmError(f"exit {process.returncode}: {said[-1500:]}")
    if before != sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")):
        raise HarmError("files changed")
    ground.recovers(root)


def restored(ground: Ground, chance: random.Random) -> None:
    """Backups while a run goes on; a random one of them replaces the store."""
    process = ground.start(root := ground.fresh())
    copies: list[Path] = []
    while process.poll() is None:
        file = root / f"copy-{len(copies)}.duckdb"
        said, _ = (backup := ground.start(root, "store", "backup", str(file))).communicate()
        if backup.returncode == 0:
            copies.append(file)
        elif "Traceback" in said:
            raise HarmError(said[-600:])
    process.communicate()
    shutil.copy2(chance.choice(copies), root / "data" / "agent_eval.duckdb")
    ground.recovers(root, spare=ground.n_calls)  # answers that came after the copy are gone


def all_at_once(ground: Ground, chance: random.Random) -> None:
    """Four runs, two imports, backups and a daemon; one of the runs is killed."""
    root = ground.fresh()
    with served(root, **ground.environment(root)):
        runs = [ground.start(root) for _ in range(4)]
        while not (root / "data" / "agent_eval.duckdb").exists():
            time.sleep(0.1)
        others = [ground.start(root, *IMPORT) for _ in range(2)]
        others += [ground.start(root, "store", "backup", str(root / f"copy-{i}.duckdb")) for i in range(3)]
        time.sleep(chance.uniform(1, 10))
        chance.choice(runs).kill()
        for process in (*runs, *others):
            said, _ = process.communicate(timeout=600)
            if process.returncode not in (0, -signal.SIGKILL):
                raise HarmError(f"{process.args!r} exits with {process.returncode}: {said[-600:]}")
    ground.plain(ground.calm, "run")  # the daemon makes all versions
    ground.recovers(root, "run", expected=shown(ground.calm))


KINDS: dict[Callable[[Ground, random.Random], None], int] = {
    killed_while_judging: 12,
    killed_while_writing: 10,
    killed_while_importing: 8,
    memory_killed: 12,
    memory_refused: 12,
    journal_full: 20,
    store_full: 14,
    event_log_full: 10,
    data_disk_full: 6,
    clock_set_back: 3,
    read_only: 2,
    restored: 3,
    all_at_once: 2,
}


def tried(
    ground: Ground, kind: Callable[[Ground, random.Random], None], seeds: Sequence[int]
) -> Iterator[str]:
    """What went wrong, one line for each seed with which something did."""
    for seed in seeds:
        ground.judge.reset(latency_ms=LATENCY_MS)
        try:
            kind(ground, random.Random(seed))
        except (HarmError, AssertionError, OSError, subprocess.SubprocessError) as harm:
            yield f"{kind.__name__}, seed {seed}: {harm}"


def main(names: Sequence[str]) -> None:
    """Try each kind as often as KINDS says.

    Raises:
        SystemExit: If a kind is not known or something went wrong.
    """
    if unknown := set(names) - {kind.__name__ for kind in KINDS}:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(k.__name__ for k in KINDS)}")
    held = total = 0
    with tempfile.TemporaryDirectory() as folder, mock_judge() as judge:
        ground = Ground(Path(folder), judge)
        for kind, n in KINDS.items():
            if names and kind.__name__ not in names:
                continue
            ground.n_repeated, started = 0, time.monotonic()
            harm = list(tried(ground, kind, range(n)))
            print(*harm, sep="\n", end="\n" * bool(harm))
            took = time.monotonic() - started
            print(
                f"{kind.__name__}: {n - len(harm)} of {n}, {ground.n_repeated} calls paid twice, {took:.0f} s",
                flush=True,
            )
            held, total = held + n - len(harm), total + n
    print(f"{held} of {total}")
    sys.exit(held < total)


def _when_asked(ground: Ground, process: subprocess.Popen[str], n: int) -> None:
    """Wait until the judge had so many calls, or the process ended."""
    while process.poll() is None and ground.judge.stats()["calls"] < n:
        time.sleep(0.02)


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait so long, or until the process ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _until_empty(group: Path) -> None:
    """Remove a control group when its last process has ended."""
    while (group / "cgroup.procs").read_text():
        time.sleep(0.1)
    group.rmdir()


def _limit(process: subprocess.Popen[str], n_bytes: int) -> None:
    """No file of the process may grow beyond that."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))


@contextlib.contextmanager
def _small_disk(folder: Path, n_bytes: int) -> Iterator[bool]:
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)]
    is_mounted = subprocess.call(mount, stderr=subprocess.DEVNULL) == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.check_call(["umount", "--lazy", str(folder)])


def _enlarge(folder: Path, *, is_mounted: bool) -> None:
    if is_mounted:
        subprocess.check_call(["mount", "-o", "remount,size=300m", str(folder)])


if __name__ == "__main__":
    main(sys.argv[1:])
