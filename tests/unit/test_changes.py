"""One comparison of files for the command line, the page and the file that is passed on."""

from __future__ import annotations

import hashlib

from harness_durable import events as ev
from harness_durable.changes import MOST_LINES, compared
from harness_durable.payload import compress


class Blobs:
    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def put(self, content: str) -> str:
        raw = content.encode()
        name = hashlib.sha256(raw).hexdigest()
        self.stored[name] = compress(raw)
        return name

    async def read(self, name: str) -> bytes:
        return self.stored[name]

    def change(self, old: str, new: str) -> ev.Change:
        return ev.Change("modified", "file", self.put(old), self.put(new))


async def test_no_line_is_taken_for_a_head_or_for_two() -> None:
    blobs = Blobs()
    change = blobs.change("-- a comment of SQL\nx\u2028y\x0cz\n", "++ i\nx\n")
    found = await compared(change, blobs.read)
    assert found.text.split("\n")[1:-1] == ["--- a comment of SQL", "-x\u2028y\x0cz", "+++ i", "+x"]


async def test_what_must_not_be_seen_is_gone_before_it_is_compared() -> None:
    blobs = Blobs()
    change = blobs.change("key=secret\n", "key=secret\nmore\n")
    found = await compared(change, blobs.read, lambda raw: raw.replace(b"secret", b"***"))
    assert "secret" not in found.text and "+more" in found.text
    link = ev.Change("modified", "link", "@/secret/a", "@b")
    assert (await compared(link, blobs.read, lambda raw: raw.replace(b"secret", b"***"))).note == (
        "a link: /***/a to b"
    )


async def test_what_would_take_too_long_is_told_and_not_compared() -> None:
    blobs = Blobs()
    found = await compared(blobs.change("x\n" * MOST_LINES, "y\n"), blobs.read)
    assert (found.text, found.note) == ("", "too many lines to compare")
