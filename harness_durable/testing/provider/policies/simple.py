"""The two policies that need no thought: the same text always, and a list to read from."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import Struct, convert

from harness_durable.testing.provider.messages import Request, assistant_turns
from harness_durable.testing.provider.reply import Reply, say


class Echo(Struct, frozen=True):
    """Answers everything with ``text``."""

    text: str = "ok"

    def __call__(self, request: Request) -> Reply:
        return say(self.text)


class Script(Struct, frozen=True):
    """The k-th reply for a conversation with k assistant messages; ``after`` when they run out.

    The place is taken from the conversation, never from a count of requests, so a repeated request
    gets the same reply.
    """

    replies: tuple[Reply, ...] = ()
    after: str = "the script has ended"

    def __call__(self, request: Request) -> Reply:
        turn = assistant_turns(request)
        return self.replies[turn] if turn < len(self.replies) else say(self.after)


def read_script(path: Path) -> Script:
    """A script from a JSON file: a list of replies, blocks and faults by their ``type``.

    Raises OSError, ValueError or ``msgspec.ValidationError`` with the place in the file.
    """
    # Not msgspec's decoder: it refuses half surrogate pairs, which scripts are there to try out.
    return Script(convert(json.loads(path.read_text(encoding="utf-8")), tuple[Reply, ...]))
