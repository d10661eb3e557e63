"""What adapters share of giving messages to a harness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import anyio

from harness_durable.adapter import LifeContext
from harness_durable.journal import Inbox
from harness_durable.state import Message
from harness_durable_adapters.common.delivery import Delivery
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import SESSION, begun


class Noted(Delivery):
    """Numbers messages by their ids, and notes what it says."""

    def number(self, message: str) -> str:
        return message

    async def write(self, message: Message, text: str, number: str) -> None:
        said.append(text)


said: list[str] = []


async def test_a_steer_that_an_earlier_life_took_is_told_to_the_log_and_not_said_again() -> None:
    """Its worker died before it could."""
    world = MemoryWorld()
    journal = await begun(world)
    await (await Inbox.open(world, SESSION)).accept("taken", "look here", when_busy="steer")
    await journal.still_ours()  # reads what others wrote
    turn = journal.state.turn
    assert turn is not None
    ctx = cast(LifeContext, SimpleNamespace(journal=journal, turn=turn.id, life="L2"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Noted(ctx, {turn.id, "taken"}, set()).run)
        with anyio.fail_after(10):
            await journal.until(lambda state: state.messages["taken"].status == "delivered")
        tasks.cancel_scope.cancel()
    assert said == []
