"""An image that the provider refuses, with the real binary: the turn goes on, and so does the session."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from harness_durable import events as ev
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.testing.provider import Reply, Text, ToolUse, say
from harness_durable.testing.provider.messages import parse
from harness_durable.testing.provider.policies import RefuseMedia
from harness_durable.testing.provider.policies.refusing import files
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION
from tests.harness.rigs import ClaudeRig, versions

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]


def png(side: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + end

    rows = (b"\0" + b"\x80" * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


async def test_c046_a_refused_image_does_not_brick_the_session(tmp_path: Path, version: str) -> None:
    """It is read by a tool and refused; the same turn goes on without it, and the next one passes."""
    picture = tmp_path / "work space" / "screen.png"
    read = Reply((Text("I look"), ToolUse("Read", {"file_path": str(picture)}, id="toolu_1")))
    policy = RefuseMedia(Script((read, say("I cannot see it"), say("still here"))))
    async with ClaudeRig.open(tmp_path, version, policy) as rig:
        picture.write_bytes(png(64))
        state = await rig.say("what is on the screen?")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "I cannot see it")
        assert [withheld.media.media_type for withheld in state.withheld.values()] == ["image/png"]

        state = await rig.say("go on", "m-2")
        turn = state.turns["m-2"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "still here")

        refused = [r for r in rig.requests if files(r)]
        assert len(refused) == 1, "what was refused is never sent again"
        assert "[Image withheld by harness-durable" in str(rig.requests[-1].body)
        reader = Reader(rig.world, SESSION)
        events = [entry.event async for entry in reader.entries()]
        [told] = [event for event in events if isinstance(event, ev.ModelWithheld)]
        kept = parse(await body_of(reader, state, told.call, "messages"))
        assert [digest for _, digest in files(kept)] == list(state.withheld), "the original is in the log"
