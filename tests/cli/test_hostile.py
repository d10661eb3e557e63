"""Whatever an agent says, a terminal is not steered by it."""

from __future__ import annotations

import time

import pytest

from harness_durable import events as ev
from harness_durable.cli.common import one_line, visible
from tests.cli.kit import Cli

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


@pytest.mark.parametrize(
    "words", [["trace", "s"], ["trace", "s", "--md"], ["sessions"], ["recover", "s", "--dry-run"]]
)
@pytest.mark.parametrize("trick", TRICKS)
def test_no_command_passes_them_on(words: list[str], trick: str, cli: Cli) -> None:
    text = TRICKS[trick]
    if trick == "half pair":
        text = text.encode("utf-8", "replace").decode() + "\x1b"
    life = ev.LifeStarted("L1", "m-1", "local", "run", "here", text)
    happened = (ev.TurnStarted("m-1"), life, ev.LifeEnded("L1", text), ev.TurnNeedsInput("m-1", text))
    cli.log("s", happened, message=text + "x", status="needs_input")
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    assert not dangerous(done.stdout.decode() + done.stderr.decode())


def test_a_name_given_on_the_command_line_is_shown_safely_in_the_error(cli: Cli) -> None:
    done = cli("trace", "\x1b[31mx")
    assert done.returncode == 2
    assert not dangerous(done.stderr.decode())


def test_markdown_of_an_agent_cannot_become_html_or_code(cli: Cli) -> None:
    cli.log("s", message="<script>alert(1)</script> `rm`")
    said = cli("trace", "s").stdout.decode()
    assert "<script>" not in said
    assert "`" not in said
