"""The command line. A command's module is imported when it is called, so that ``--help`` is quick.

What surprises: stdout and stderr are told to escape what their encoding cannot carry, since a log may hold
any character, and a terminal of another century must not end a run."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import warnings
from importlib import import_module
from typing import cast

import click

from harness_durable import __version__
from harness_durable.errors import HarnessDurableError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run:run", "Send a message and drive the session here until its turn is settled."),
    "send": ("send:send", "Send a message to a session; whoever drives it takes it."),
    "steer": ("send:steer", "Say something to the running turn of a session."),
    "stop": ("send:stop", "Ask for a session's running turn to be stopped."),
    "answer": ("send:answer", "Answer a permission request by its id."),
    "sessions": ("sessions:sessions", "List sessions, those that need a person first."),
    "trace": ("trace:trace", "Show what happened in a session, every life of it."),
    "view": ("view:view", "Look at sessions in a browser, live or again from the start."),
    "recover": ("recover:recover", "Continue what was cut off, or say how it would be."),
    "worker": ("worker:worker", "Drive whatever is due, until told to stop."),
    "diff": ("diff:diff", "Show what a session changed in its files."),
    "checkout": ("checkout:checkout", "Write a session's files, as they were at some event, to a folder."),
    "fork": ("fork:fork", "Begin another session with the same past, and files of its own."),
    "export": ("transfer:export", "Write a session to a file."),
    "import": ("transfer:import_", "Read a session from a file into a World."),
    "worlds": ("worlds:worlds", "List the kinds of World; check or migrate one; copy sessions."),
    "install": ("install:install", "Fetch a tested version of a harness."),
    "doctor": ("doctor:doctor", "Check this machine; show every setting and its origin."),
    "demo": ("demo:demo", "A death and a return in one minute, without a key."),
}

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 needs a person, 4 another worker holds the session, "
    "130 interrupted."
)

CONTINUABLE = ("run", "recover", "worker")
"""Commands that drive: what Ctrl-C interrupts there can be continued."""


class _NobodyReads(Exception):
    """Whoever read our output has gone. Its own class, since click ends a BrokenPipeError with 1."""


class _Commands(click.Group):
    """Looks commands up in COMMANDS and imports them on use."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _NobodyReads from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return cast(click.Command, getattr(import_module(f"harness_durable.cli.{module}"), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness-durable")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Coding agents that outlive their process, their container and their machine."""
    # Unset, click decides: colour on a terminal only. A state is always also a word.
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False
    elif os.environ.get("FORCE_COLOR"):
        ctx.color = True


def main() -> None:
    """Run a command; an error of ours is one sentence on stderr and its own exit code."""
    for stream in (sys.stdout, sys.stderr):
        cast(io.TextIOWrapper, stream).reconfigure(errors="backslashreplace")
    warnings.showwarning = _warn
    atexit.register(gc.freeze)  # what is left goes with the process: to look for cycles in it takes long
    try:
        group(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        sys.exit(2)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except (_NobodyReads, BrokenPipeError):
        _nobody_reads()
    except HarnessDurableError as error:
        _error(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        _error(f"{error}; see to it and try again, nothing in the log is lost")
        sys.exit(1)
    except Exception:
        import traceback

        traceback.print_exc()
        _error("this is a bug in harness-durable, please report it with the lines above; the log is intact")
        sys.exit(1)


def _error(sentence: str) -> None:
    from harness_durable.cli.common import visible

    click.echo(f"error: {visible(sentence)}", err=True)


_warned: set[str] = set()


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    from harness_durable.cli.common import visible

    if str(message) not in _warned:
        _warned.add(str(message))
        click.echo(f"warning: {visible(str(message))}", err=True)


def _interrupted() -> None:
    command = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    hint = "; `harness-durable recover` continues where it stopped" if command in CONTINUABLE else ""
    click.echo(f"interrupted{hint}", err=True)
    sys.exit(130)


def _nobody_reads() -> None:
    """A closed pipe is no error. Python would complain of it once more when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    sys.exit(0)


if __name__ == "__main__":
    main()
