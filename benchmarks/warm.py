"""Start `agent-eval` without its imports, which take three to six seconds: a waiting process forks for each command.

`command()` replaces `[sys.executable, "-m", "agent_eval"]` where a test needs a process of its own but not a fresh
import. The command runs in a fork with the caller's environment, folder, input and outputs; the caller sees a process
that ends with its exit code and passes SIGINT and SIGTERM on. Tests of kills, of imports and of time start Python.

Run as a file with a socket, this module is the client: it imports only what starts in milliseconds.
"""

import os
import signal
import socket
import sys

_SIZE = 8  # bytes of a number


def _client(path: str, arguments: list[str]) -> int:
    """Ask the waiting process for a command, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        environment = [f"{name}={value}" for name, value in os.environ.items()]
        parts = [os.getcwd(), str(len(arguments)), *arguments, *environment]  # noqa: PTH109
        asked = "\0".join(parts).encode("utf-8", "surrogateescape")
        socket.send_fds(connection, [len(asked).to_bytes(_SIZE, "big")], [0, 1, 2])
        connection.sendall(asked)
        pid = int.from_bytes(connection.recv(_SIZE), "big")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        code = int.from_bytes(connection.recv(_SIZE), "big", signed=True)
    if code < 0:  # ended by a signal
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__" and len(sys.argv) > 1:
    sys.exit(_client(sys.argv[1], sys.argv[2:]))


import atexit  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import pkgutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

_REPOSITORY = Path(__file__).parents[1]
_LIBRARIES = ("dagster", "litellm", "alembic.command", "sqlalchemy.dialects.sqlite", "scipy.stats")
_OF_A_PROJECT = ("agent_eval.defs", "agent_eval.definitions", "agent_eval.commands.ui", "agent_eval.__main__")
"""Modules that read a project when they are imported, or that import such modules."""


@functools.cache
def command() -> list[str]:
    """Return how to start `agent-eval` in a fork; the waiting process ends with this one."""
    folder = tempfile.mkdtemp()
    path = str(Path(folder, "socket"))
    started = [sys.executable, "-c", f"from benchmarks.warm import serve; serve({path!r})"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_EVAL_")}
    server = subprocess.Popen(started, cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"

    def stop() -> None:
        server.terminate()
        server.wait()

    atexit.register(stop)
    return [sys.executable, "-S", "-E", __file__, path]


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


def serve(path: str) -> None:
    """Import everything that does not depend on a project, then fork for each command."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    for name in _LIBRARIES:
        importlib.import_module(name)
    remember_revisions()
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
        while True:
            connection, _ = listener.accept()
            _reap()
            if os.fork() == 0:
                break
            connection.close()
    arguments = _become(connection)
    sys.argv = ["agent-eval", *arguments]
    _end_with(main)


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
    size, handed, _, _ = socket.recv_fds(connection, _SIZE, 3)
    asked = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    folder, n_arguments, *parts = asked.decode("utf-8", "surrogateescape").split("\0")
    pid = os.fork()
    if pid:
        connection.sendall(pid.to_bytes(_SIZE, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(_SIZE, "big", signed=True))
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
