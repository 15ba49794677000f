"""Start `agent-eval` without its imports, which take three to six seconds: a waiting process forks for each command.

`command()` replaces `[sys.executable, "-m", "agent_eval"]` where a test needs a process of its own but not a fresh
import. The command runs in a fork with the caller's environment, folder, input and outputs; the caller sees a process
that ends with its exit code and passes SIGINT and SIGTERM on. Tests of kills, of imports and of time start Python.
"""

import atexit
import fcntl
import functools
import gc
import importlib
import os
import pkgutil
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

from benchmarks import warm_client
from benchmarks.warm_client import SIZE

_REPOSITORY = Path(__file__).parents[1]
_LIBRARIES = (
    "dagster",
    "dagster._core.execution.execute_in_process",
    "dagster._core.executor.in_process",
    "dagster._core.instance.runs.run_domain",
    "dagster._core.storage.local_compute_log_manager",
    "dagster._core.storage.noop_compute_log_manager",
    "litellm",
    "alembic.command",
    "sqlalchemy.dialects.sqlite",
    "scipy.stats",
    "pyarrow",
    "jsonschema",
)
_WITHOUT_PROJECT = (
    "agent_eval.defs.checks",
    "agent_eval.defs.event_log",
    "agent_eval.defs.instance",
    "agent_eval.defs.purge",
)
"""Modules of `agent_eval.defs` that do not read a project."""
_OF_A_PROJECT = ("agent_eval.defs", "agent_eval.definitions", "agent_eval.commands.ui", "agent_eval.__main__")
"""Modules that read a project when they are imported, or that import such modules."""


@functools.cache
def command() -> list[str]:
    """Return how to start `agent-eval` in a fork; the waiting process ends with this one.

    The workers of one run of pytest share a waiting process; the one that started it ends it after the others ended.
    """
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = Path(tempfile.gettempdir(), f"warm-{test_run}") if test_run else Path(tempfile.mkdtemp())
    folder.mkdir(mode=0o700, exist_ok=True)
    path, uses = folder / "socket", (folder / "uses").open("w")
    _USES.append(uses)  # open as long as this process lives
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(uses, fcntl.LOCK_SH)
        if not path.exists():
            server = _start(path, lives_with=os.getppid() if test_run else os.getpid())
            atexit.register(_stop, server, folder, uses)
    return [sys.executable, "-S", "-E", warm_client.__file__, str(path)]


_USES: list[TextIO] = []


def _start(path: Path, *, lives_with: int) -> "subprocess.Popen[str]":
    """Start the waiting process, and wait until it has imported everything."""
    started = [sys.executable, "-c", f"from benchmarks.warm import serve; serve({str(path)!r}, {lives_with})"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_EVAL_")}
    server = subprocess.Popen(started, cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server


def _stop(server: "subprocess.Popen[str]", folder: Path, uses: TextIO) -> None:
    """End the waiting process once no other process uses it, so that its time counts as that of this one."""
    fcntl.flock(uses, fcntl.LOCK_EX)
    server.kill()
    server.wait()
    shutil.rmtree(folder)


def agent_eval(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `environment` is added to that of this process."""
    return subprocess.run(
        [*command(), *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def home_of(root: Path) -> dict[str, str]:
    """Return the variables with which a command works on the project at a root."""
    return {"AGENT_EVAL_HOME": str(root), "DAGSTER_HOME": str(root / ".dagster")}


def on_path(folder: Path) -> Path:
    """Write a program `agent-eval` into a folder, for scripts that find it on their PATH; return the folder."""
    folder.mkdir(exist_ok=True)
    program = folder / "agent-eval"
    program.write_text(f'#!/bin/sh\nexec {" ".join(command())} "$@"\n')
    program.chmod(0o755)
    return folder


def remember_revisions() -> None:
    """Make Alembic read its revision files once per process rather than for each database of Dagster."""
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def from_config(config: object) -> ScriptDirectory:
        place = config.get_main_option("script_location")  # type: ignore[attr-defined]
        if place not in known:
            known[place] = read(config)  # type: ignore[arg-type]
        return known[place]

    ScriptDirectory.from_config = staticmethod(from_config)  # type: ignore[method-assign]


def _open_instance() -> None:
    """Open an instance with the settings of a project and read from it: Dagster imports its storages then."""
    from dagster import DagsterInstance

    import agent_eval.defs

    with tempfile.TemporaryDirectory() as home:
        shutil.copy(Path(agent_eval.defs.__file__).with_name("dagster.yaml"), home)
        with DagsterInstance.from_config(home) as instance:
            instance.all_logs("run")  # creates the file of a run, of which later ones are copies


def serve(path: str, lives_with: int) -> None:
    """Import everything that does not depend on a project, then fork for each command, as long as that process lives."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    for name in (*_LIBRARIES, *_WITHOUT_PROJECT):
        importlib.import_module(name)
    remember_revisions()
    _open_instance()
    import agent_eval

    for module in pkgutil.iter_modules(agent_eval.__path__, "agent_eval."):
        rooms = pkgutil.walk_packages([f"{_REPOSITORY}/{module.name.replace('.', '/')}"], f"{module.name}.")
        for name in (module.name, *(room.name for room in rooms)) if module.name not in _OF_A_PROJECT else ():
            if name not in _OF_A_PROJECT:
                importlib.import_module(name)
    from agent_eval.cli import main

    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        listener.settimeout(10)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if not _lives(lives_with):
                    shutil.rmtree(Path(path).parent, ignore_errors=True)
                    return
                continue
            _reap()
            if os.fork() == 0:
                break
            connection.close()
    connection.setblocking(True)
    arguments = _become(connection)
    sys.argv = ["agent-eval", *arguments]
    _end_with(main)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end_with(main: Callable[[], object]) -> NoReturn:
    """Run `main` and end as Python does, but without taking the imported modules apart, which takes two seconds."""
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _reap() -> None:
    """Collect ended children, so that their time counts as that of this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become(connection: socket.socket) -> list[str]:
    """Read what is asked; fork once more, and return the arguments in the child. The parent waits and reports."""
    size, handed, _, _ = socket.recv_fds(connection, SIZE, 3)
    asked = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    folder, n_arguments, *parts = asked.decode("utf-8", "surrogateescape").split("\0")
    pid = os.fork()
    if pid:
        connection.sendall(pid.to_bytes(SIZE, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(SIZE, "big", signed=True))
        os._exit(0)
    connection.close()
    for number, descriptor in enumerate(handed):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    for part in parts[int(n_arguments) :]:
        name, _, value = part.partition("=")
        os.environ[name] = value
    return parts[: int(n_arguments)]
