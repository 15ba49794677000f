"""Collect the commands of `agent-eval`, run one, and convert errors to one line and an exit code."""

import _thread
import contextlib
import gc
import logging
import os
import sys
import threading
from typing import Annotated, NoReturn

import typer

from agent_eval.commands.declared import judges, operate, results, start
from agent_eval.commands.declared.common import GROUPS
from agent_eval.errors import PLATFORMS, AgentEvalError

app = typer.Typer(
    name="agent-eval",
    help="Turn agent transcripts into leaderboards you can defend.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _part in (start, results, judges, operate):
    app.registered_commands += _part.app.registered_commands
for _name, (_group, _panel) in GROUPS.items():
    app.add_typer(_group, name=_name, rich_help_panel=_panel)

INTERRUPTED = 130  # typer's exit code for Ctrl-C
NEW_OBJECTS = 50_000
"""New objects between two garbage collections. With Python's default (700 or 2,000), collections take a tenth of the
CPU time of a small run: Dagster and litellm create many objects at import, which live until the process ends."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from agent_eval import __version__

        typer.echo(f"agent-eval {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the release and exit."),
    ] = False,
) -> None:
    """Turn agent transcripts into leaderboards you can defend."""


def keep_interrupts_quiet() -> None:
    """Make Ctrl-C end the process without a traceback wherever it arrives.

    Libraries log the interrupt that meets them while they close a connection, and Python drops one that meets a
    finalizer: the first is not printed, the second is raised again.
    """
    printer, drop = logging.lastResort, sys.unraisablehook

    def is_no_interrupt(record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or issubclass(kind, Exception)

    def raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            drop(unraisable)
            return
        with contextlib.suppress(RuntimeError):  # the process is about to end
            threading.Timer(0.01, _thread.interrupt_main).start()  # not here: it would be dropped again

    if printer is not None:
        printer.addFilter(is_no_interrupt)
    sys.unraisablehook = raise_again


def main() -> None:
    """Run a command.

    Errors that the user can fix are reported in one line on stderr with exit code 2. Ctrl-C results in exit code 130.
    Files that a command creates (store, event log, journal, report) are readable only by their owner.
    """
    if sys.platform == "win32":
        sys.stderr.write(f"Error: {PLATFORMS}\n")
        raise SystemExit(2)
    os.umask(0o077)
    gc.set_threshold(NEW_OBJECTS)
    keep_interrupts_quiet()
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            sys.stderr.write("Interrupted. Finished work is stored; run the same command to resume.\n")
        raise SystemExit(code)
    except AgentEvalError as error:
        _end(str(error), error)
    except OSError as error:
        _end(f"{error.strerror or error}: {error.filename or 'unknown file'}", error)
    except Exception as error:
        # a usage error, whose class is defined by click or by typer, depending on typer's version
        if type(error).__name__ == "Abort":  # a question that standard input did not answer
            sys.stderr.write("Nothing was changed: the question was not answered.\n")
            raise SystemExit(1) from error
        if (sentence := getattr(error, "format_message", None)) is None:
            raise
        if not sys.argv[1:] or type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            raise SystemExit(2) from error
        _end(f"{sentence()} Help: agent-eval --help", error)


def _end(sentence: str, error: Exception) -> NoReturn:
    from agent_eval.formats.plain_text import one_line

    sys.stderr.write(f"Error: {one_line(sentence)}\n")
    raise SystemExit(2) from error
