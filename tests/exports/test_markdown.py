"""A page that people send on: nothing that an agent said gets out of its place."""

from __future__ import annotations

import re

import pytest

from harness_durable import events as ev
from harness_durable.exports.markdown import LONGEST, escaped, fenced
from harness_durable.payload import pack_text
from tests.exports.kit import material, page
from tests.unit.log_kit import BEGIN, model, tool

TRICKS = [
    "```",
    "~~~",
    "````\n# no",
    "`" * 50,
    "\n```\n<script>x</script>\n```text",
    "a\r\n```\r\nb",
    "\u2028```",
]


def outside(text: str) -> str:
    """What a reader of markdown takes for more than the inside of a fence."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        begun = re.match(r"^ {0,3}(`{3,})[^`]*$", line)
        if not fence and begun is not None:
            fence = begun[1]
        elif fence and re.fullmatch(rf" {{0,3}}`{{{len(fence)},}} *", line):
            fence = ""
        elif not fence:
            kept.append(line)
    assert not fence
    return "\n".join(kept)


def told(text: str) -> str:
    """A page in which everything was said by this text."""
    said = pack_text(text).payload
    log: list[ev.AnyEvent] = [
        *BEGIN,
        ev.MessageAccepted("m-2", said),
        *model(),
        *tool("c1", name=text, released=True),
        ev.ToolFailed("c1", said, "hook"),
        ev.LifeEnded("L1", text),
        ev.TurnResumed("m-1", "L1", "continue", (text,)),
        ev.TurnFailed("m-1", text, text),
    ]
    return b"".join(page(material(*log))).decode()


@pytest.mark.parametrize("trick", TRICKS)
def test_a_fence_ends_where_it_ends(trick: str) -> None:
    text = f"before\n{trick}\nPWNED"
    assert "PWNED" not in outside(fenced(text, str))
    assert outside(fenced(text, str) + "after") == "after"


@pytest.mark.parametrize(
    "trick", [*TRICKS, "<img src=x onerror=y>", "[a](javascript:b)", "![a](http://b)", "# h", "| a |"]
)
def test_what_an_agent_said_is_no_markup_anywhere(trick: str) -> None:
    lines = outside(told(f"{trick} PWNED"))
    assert "<" not in lines
    assert not re.search(r"(?<!\\)[`\[\]~|]", lines)
    assert not re.search(r"^(# h|~~~|```)", lines, re.MULTILINE)
    assert "\n# no" not in lines


def test_control_characters_become_visible() -> None:
    text = told("\x1b]0;owned\x07 \u202etxt.exe \u2066x\u2069 \x9b2J a\u200bb \rover")
    assert [one for one in text if not (one.isprintable() or one == "\n")] == []


def test_escaped_text_reads_as_it_was() -> None:
    assert escaped("a_b *c* <d> & `e` #1") == "a\\_b \\*c\\* &lt;d&gt; &amp; \\`e\\` \\#1"


def test_what_is_very_long_is_cut_and_says_so() -> None:
    block = fenced("x" * (LONGEST + 7), str)
    assert "… 7 more characters" in block
    assert len(block) < LONGEST + 100


def test_the_page_tells_the_story_with_what_was_said() -> None:
    text = told("hello there")
    assert "# Session s" in text
    assert "## Lives" in text
    assert "### Turn m-1" in text
    assert text.count("hello there") >= 8
