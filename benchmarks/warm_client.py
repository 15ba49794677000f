"""Ask the waiting process of `benchmarks.warm` for a command; started as a file, so that it imports little."""

import os
import signal
import socket
import sys

SIZE = 8  # bytes of a number


def ask(path: str, arguments: list[str]) -> int:
    """Ask the waiting process for a command, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        environment = [f"{name}={value}" for name, value in os.environ.items()]
        parts = [os.getcwd(), str(len(arguments)), *arguments, *environment]  # noqa: PTH109
        asked = "\0".join(parts).encode("utf-8", "surrogateescape")
        socket.send_fds(connection, [len(asked).to_bytes(SIZE, "big")], [0, 1, 2])
        connection.sendall(asked)
        pid = int.from_bytes(connection.recv(SIZE), "big")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        code = int.from_bytes(connection.recv(SIZE), "big", signed=True)
    if code < 0:  # ended by a signal
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
