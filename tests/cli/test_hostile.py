"""Whatever an agent says, a terminal is not steered by it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import time

import pytest
from rich.cells import cell_len

from harness_durable import events as ev
from harness_durable.cli.common import one_line, visible
from tests.cli.kit import SCRIPT, Cli

TRICKS = {
    "colour": "\x1b[31mred",
    "link": "\x1b]8;;http://example.com\x07click\x1b]8;;\x07",
    "title": "\x1b]0;owned\x07",
    "one byte": "\x9b2J",
    "overwrite": "rm -rf /\rls      ",
    "backspace": "evil\b\b\b\bgood",
    "direction": "\u202etxt.exe",
    "isolate": "\u2066x\u2069",
    "separator": "one\u2028two",
    "invisible": "a\u200bb\ufeff\u2060",
    "tags": "\U000e0041",
    "half pair": "\ud83d",
    "nul": "a\x00b",
}


def dangerous(text: str) -> list[str]:
    """What is left that is not plain text, a line break or a tab."""
    kept = "\n\t\u200c\u200d"
    return [c for c in text if not (c.isprintable() or c in kept)]


@pytest.mark.parametrize("text", TRICKS.values(), ids=TRICKS)
def test_tricks_become_visible(text: str) -> None:
    assert dangerous(text)
    assert not dangerous(visible(text))
    assert not dangerous(one_line(text, 40))


def test_people_can_write_in_their_own_script_and_with_emoji() -> None:
    for text in ("naïve 日本語 ελληνικά", "שלום عالم", "👩\u200d🚒 👍🏽", "می\u200cخواهم", "a\tb\nc"):
        assert visible(text) == text


def test_a_line_of_ten_megabytes_is_shown_at_once() -> None:
    begun = time.process_time()
    assert len(one_line("\x1b" * 10_000_000, 80)) == 80
    assert len(visible("a\x1b" * 5_000_000)) == 25_000_000
    assert time.process_time() - begun < 30  # minutes, were it done character by character and by trial


@pytest.fixture
def hostile(cli: Cli) -> Cli:
    """A session in which everything that an agent may say is a trick."""
    text = " ".join(trick for name, trick in TRICKS.items() if name != "half pair")
    life = ev.LifeStarted("L1", "m-1", "local", "run", "here", text)
    happened = (ev.TurnStarted("m-1"), life, ev.LifeEnded("L1", text), ev.TurnNeedsInput("m-1", text))
    cli.log("s", happened, message=text, status="needs_input")
    return cli


LOOKS = [["trace", "s"], ["trace", "s", "--md"], ["sessions"], ["recover", "s", "--dry-run"]]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_no_command_passes_them_on(words: list[str], hostile: Cli) -> None:
    done = hostile(*words)
    assert done.returncode == 0, done.stderr
    assert not dangerous(done.stdout.decode() + done.stderr.decode())


def on_a_terminal(cli: Cli, *words: str, **env: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(theirs, "wb") as terminal:
            process = subprocess.Popen(
                [SCRIPT, *words], cwd=cli.folder, env={**cli.env, "TERM": "xterm", **env}, stdout=terminal
            )
        seen = b""
        with contextlib.suppress(OSError):  # how the end of a terminal looks
            while chunk := screen.read(65536):
                seen += chunk
        assert process.wait() == 0
    return seen.decode().replace("\r\n", "\n")


OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_terminal_gets_no_control_sequence_but_our_own_colours(words: list[str], hostile: Cli) -> None:
    assert not dangerous(OUR_COLOURS.sub("", on_a_terminal(hostile, *words)))


def test_colour_is_for_terminals_that_want_it(hostile: Cli) -> None:
    assert OUR_COLOURS.search(on_a_terminal(hostile, "trace", "s"))
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not OUR_COLOURS.search(on_a_terminal(hostile, "trace", "s", **unwanted))


@pytest.mark.parametrize("width", [60, 100])
def test_the_story_fits_the_terminal_and_what_a_person_must_do_is_not_cut(width: int, cli: Cli) -> None:
    reason = "nobody knows why, " * 10 + "so look"
    cli.log("s", (ev.TurnStarted("m-1"), ev.TurnNeedsInput("m-1", reason)), message="字 many words " * 20)
    lines = OUR_COLOURS.sub("", on_a_terminal(cli, "trace", "s", COLUMNS=str(width))).splitlines()
    *fitted, asked = lines
    assert [cell_len(line) <= width for line in fitted] == [True] * len(fitted)
    assert cell_len(next(line for line in fitted if "❯" in line)) >= width - 2
    assert asked.endswith(reason)
    whole = OUR_COLOURS.sub("", on_a_terminal(cli, "trace", "s", COLUMNS="300"))
    assert whole.splitlines()[1].startswith(next(line for line in fitted if "❯" in line)[:-2])


def test_a_name_given_on_the_command_line_is_shown_safely_in_the_error(cli: Cli) -> None:
    done = cli("trace", "\x1b[31mx")
    assert done.returncode == 2
    assert not dangerous(done.stderr.decode())


def test_markdown_of_an_agent_cannot_become_html_or_code(cli: Cli) -> None:
    cli.log("s", message="<script>alert(1)</script> `rm` ![x](http://a.example/x) [y](javascript:z)")
    said = cli("trace", "s").stdout.decode()
    assert "<script>" not in said
    assert "`" not in said
    assert "](" not in said
