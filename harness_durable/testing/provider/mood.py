"""Nastiness for all replies that do not say their own, from a seed. Pure.

The dice are thrown from (seed, match key, how often that key came before): the same run gives the
same nastiness whatever the order of requests, and a repeated request may fare better. After
``most_faults`` tries a key is always answered well, so that every campaign can end.
"""

from __future__ import annotations

import random

from msgspec import Struct

from harness_durable.errors import UnknownName
from harness_durable.testing.provider.reply import Cut, Fault, Hang, HttpError, StreamError, Style


class Mood(Struct, frozen=True):
    """``mess`` and ``faults`` are chances from 0 to 1: of each oddity, and of a fault per request.

    ``delay`` is the longest pause after an event, ``hang`` the longest silence, in seconds.
    """

    seed: int = 0
    mess: float = 0.0
    faults: float = 0.0
    most_faults: int = 2
    delay: float = 0.0
    hang: float = 0.0

    def style(self, key: str, before: int) -> Style:
        """How this reply looks."""
        dice = random.Random(f"style {self.seed} {key} {before}")

        def odd() -> bool:
            return dice.random() < self.mess

        return Style(
            seed=dice.randrange(1 << 30),
            pretty=odd(),
            escape=odd(),
            split_text=dice.randint(1, 9) if odd() else 0,
            split_input=dice.randint(1, 5) if odd() else 0,
            split_bytes=dice.randint(1, 40) if odd() else 0,
            pings=odd(),
            comments=odd(),
            padding=odd(),
            crlf=odd(),
            gzip=odd(),
            event_delay=dice.uniform(0, self.delay) if self.delay and odd() else 0.0,
        )

    def fault(self, key: str, before: int) -> tuple[Fault, ...]:
        """What goes wrong with this reply; usually nothing."""
        dice = random.Random(f"fault {self.seed} {key} {before}")
        if before >= self.most_faults or dice.random() >= self.faults:
            return ()
        place = dice.randint(0, 12)
        choices: list[Fault] = [
            Cut(place, "close", dice.randint(0, 60)),
            Cut(place, "reset"),
            Cut(place, "end"),
            StreamError(place),
            HttpError(529),
            HttpError(429, headers={"retry-after": "1"}),
            HttpError(500),
        ]
        if self.hang:
            choices.append(Hang(place, dice.uniform(0, self.hang)))
        return (dice.choice(choices),)


MOODS = {
    "calm": Mood(),
    "messy": Mood(mess=0.5, delay=0.005),
    "rude": Mood(mess=0.5, delay=0.005, faults=0.4, hang=0.5),
}


def named(name: str, seed: int) -> Mood:
    """A shipped mood with this seed; raises :class:`UnknownName`."""
    if name not in MOODS:
        raise UnknownName("mood", name, sorted(MOODS))
    mood = MOODS[name]
    return Mood(seed, mood.mess, mood.faults, mood.most_faults, mood.delay, mood.hang)
