"""One version of one thing that the page shows, and the signs for what became of it. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable import events as ev

Kind = Literal[
    "session",
    "message",
    "steer",
    "model",
    "replay",
    "tool",
    "settled",
    "life",
    "attached",
    "end",
    "resumed",
    "stop",
    "permission",
    "turn",
    "files",
    "withheld",
    "log",
]
"""What a row is about. ``end``: a life ended; ``attached``: its worker died and it did not; ``settled``:
recovery found out, or could not find out, what became of a call; ``replay``: a model answer came from the
log; ``log``: an event that only machines need."""

Tone = Literal["plain", "good", "bad", "warn", "life", "person", "quiet"]

MARKS: dict[str, tuple[str, Tone]] = {
    "tool requested": ("▹", "plain"),
    "tool released": ("▸", "plain"),
    "tool completed": ("✓", "good"),
    "tool failed": ("✗", "bad"),
    "tool cancelled": ("■", "warn"),
    "tool not_started": ("○", "warn"),
    "tool refused": ("⊘", "warn"),
    "tool unknown": ("▲", "warn"),
    "model requested": ("◌", "plain"),
    "model completed": ("●", "plain"),
    "model failed": ("✗", "bad"),
    "model lost": ("✗", "bad"),
    "replay completed": ("⟲", "good"),
    "turn completed": ("✔", "good"),
    "turn failed": ("✘", "bad"),
    "turn cancelled": ("■", "warn"),
    "turn needs_input": ("?", "warn"),
    "permission asked": ("?", "person"),
    "permission allowed": ("✓", "person"),
    "permission refused": ("⊘", "person"),
    "life running": ("┏", "life"),
    "life ended": ("┏", "life"),
    "attached attached": ("┣", "warn"),
    "end settled": ("┗", "life"),
    "end died": ("╳", "bad"),
    "end stopped": ("■", "warn"),
    "end gave_up": ("■", "warn"),
    "resumed resumed": ("↻", "warn"),
    "stop asked": ("■", "person"),
    "files committed": ("±", "plain"),
    "files skipped": ("▲", "warn"),
    "withheld withheld": ("▲", "warn"),
    "session created": ("◆", "quiet"),
    "session forked": ("◆", "quiet"),
    "session moved": ("◆", "quiet"),
    "session closed": ("◆", "quiet"),
}
"""By kind and state. A sign has a meaning of its own, so that nothing depends on colour."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """``item`` is the number of the event with which the thing began: its identity and its place. The version
    stands from the event ``seq`` on, until the same item has a later one. ``life`` is the number of the life
    that it belongs to, 0 for none. ``begun`` and ``over`` (ms; 0: not yet) are when it ran; a message starts
    no earlier than its ``begun``. ``word`` is the kind of event that made this version; empty: another row of
    the same event has it."""

    seq: int
    time: int
    item: int
    kind: Kind
    state: str
    mark: str
    tone: Tone
    life: int
    begun: int
    over: int
    title: str
    text: str
    badges: tuple[str, ...] = ()
    word: str = ""


def row(
    entry: ev.Entry,
    kind: Kind,
    state: str,
    title: str,
    text: str = "",
    *,
    word: str = "",
    item: int = 0,
    life: int = 0,
    begun: int = 0,
    over: int = 0,
    badges: tuple[str, ...] = (),
) -> Row:
    """``item`` of 0: the thing begins with this event."""
    mark, tone = MARKS.get(f"{kind} {state}", ("·", "quiet"))
    if kind in ("message", "steer"):
        mark, tone = "❯", "person"
    return Row(
        entry.seq,
        entry.time,
        item or entry.seq,
        kind,
        state,
        mark,
        tone,
        life,
        begun,
        over,
        title,
        text,
        badges,
        word,
    )
