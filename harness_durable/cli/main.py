"""The command line. A command's module is imported when it is called, so that ``--help`` is quick."""

from __future__ import annotations

import sys
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
    "sessions": ("sessions:sessions", "List sessions."),
    "trace": ("trace:trace", "Show what happened in a session, every life of it."),
    "recover": ("recover:recover", "Continue a session that was cut off, or say how it would be."),
    "worker": ("worker:worker", "Drive whatever is due, until it is told to stop."),
    "export": ("transfer:export", "Write a session to a file."),
    "import": ("transfer:import_", "Read a session from a file into a World."),
    "worlds": ("worlds:worlds", "Check a World against its promises."),
    "install": ("install:install", "Fetch a tested version of a harness."),
    "doctor": ("doctor:doctor", "Check this machine, and show every setting and where it came from."),
    "demo": ("demo:demo", "A death and a return in one minute, without key or network."),
}

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 usage, 3 needs a person, 4 another writer holds the session, "
    "130 interrupted."
)


class _Commands(click.Group):
    """Looks commands up in COMMANDS and imports them on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return cast(click.Command, getattr(import_module(f"harness_durable.cli.{module}"), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness-durable")
def group() -> None:
    """Coding agents that outlive their process, their container and their machine."""


def main() -> None:
    """Run a command; an error of ours is one sentence on stderr and its own exit code."""
    try:
        group(standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; `harness-durable recover` continues where it stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except HarnessDurableError as error:
        from harness_durable.cli.common import visible

        click.echo(f"error: {visible(str(error))}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
