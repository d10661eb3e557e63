"""Messages to OpenCode: what it has is not said again, and is told to the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from harness_durable.adapter import LifeContext
from harness_durable.journal import Inbox, Journal
from harness_durable_adapters.opencode.conversation import Said
from harness_durable_adapters.opencode.delivery import Delivery
from harness_durable_adapters.opencode.mirror import Mirror
from harness_durable_adapters.opencode.naming import mark, marked_id
from harness_durable_adapters.opencode.server import Server
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun

NATIVE = "ses_main"


class Harness:
    """Notes what it is told. ``busy``: by its own account it works."""

    def __init__(self, *, busy: bool) -> None:
        self.busy, self.told = busy, list[str]()

    async def working(self) -> dict[str, object]:
        return {NATIVE: {"type": "busy"}} if self.busy else {}

    async def call(self, method: str, path: str, body: object = None) -> bytes:
        self.told.append(f"{method} {path}")
        return b""


def delivery(journal: Journal, harness: Harness, *messages: str) -> Delivery:
    """In a life whose mirrored conversation shows these."""
    numbers = [marked_id(1, mark(journal.state.native_id, message)) for message in messages]
    shown = {number: Said({"id": number, "role": "user"}, {}) for number in numbers}
    conversation = SimpleNamespace(messages=shown, last_user=next(iter(shown.values()), None))
    turn, agent = journal.state.turn, journal.state.agent
    assert turn is not None
    ctx = cast(LifeContext, SimpleNamespace(journal=journal, turn=turn.id, life="L1", agent=agent))
    mirror = cast(Mirror, SimpleNamespace(session=NATIVE, conversation=conversation))
    return Delivery(ctx, cast(Server, harness), mirror)


@pytest.mark.parametrize("busy", [True, False])
async def test_a_harness_that_works_is_not_told_to_go_on(*, busy: bool) -> None:
    journal, harness = await begun(MemoryWorld()), Harness(busy=busy)
    await delivery(journal, harness, "m-1").opened(journal.state.messages["m-1"])
    assert harness.told == ([] if busy else [f"POST /session/{NATIVE}/prompt_async"])


async def test_a_steer_in_the_conversation_is_delivered_whoever_took_it_in() -> None:
    """Our gate mirrors what is new, too, and may see a steer first."""
    world = MemoryWorld()
    journal = await begun(world)
    await (await Inbox.open(world, SESSION)).accept("steer", "look here", when_busy="steer")
    await journal.still_ours()  # reads what others wrote
    await delivery(journal, Harness(busy=True), "m-1", "steer").seen()
    assert journal.state.messages["steer"].status == "delivered"
