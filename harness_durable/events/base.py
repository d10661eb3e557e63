"""What all kinds share: the format's number, words with a few values, and the struct to derive from."""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT = 1
"""Version of the log's format. A reader refuses a larger one; every older one must fold for ever. A new kind
needs no new number, as who does not know it refuses the log; a new field that changes what an old kind means
does, as readers skip the fields that they do not know."""

ReplayPolicy = Literal["safe", "idempotent", "never"]
"""What may be done with a released call that has no outcome: see ``policy``."""

Rung = Literal["start", "attach", "continue", "retell"]
"""How a life came into a turn: see ``recovery``."""

ToolOrigin = Literal["builtin", "custom"]
Source = Literal["hook", "transcript", "host", "probe", "recovery", "stop"]
"""Who knew an outcome first."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Base of all kinds."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one response, as the provider counted them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
