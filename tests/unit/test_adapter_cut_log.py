"""A log that was cut right behind a model's response: it names calls that no event tells of."""

from __future__ import annotations

import msgspec
import pytest

from harness_durable.journal import Journal
from harness_durable_adapters.claude_code import evidence as claude_code
from harness_durable_adapters.codex import gate
from harness_durable_adapters.codex import history as codex
from harness_durable_adapters.common.shapes import Json
from harness_durable_adapters.opencode import evidence as opencode
from tests.unit.memory_world import OWNER, MemoryWorld
from tests.unit.session_kit import SESSION, asked, begun, taken
from tests.unit.test_claude_drive import context
from tests.unit.test_opencode_rebuild import conversation


@pytest.fixture(params=[1, 2])
async def cut(request: pytest.FixtureRequest) -> Journal:
    """So many of two calls are not in the log."""
    world = MemoryWorld()
    await asked(await begun(world), ("call_1", "deploy", {}), ("call_2", "deploy", {}))
    there = world.stored[SESSION]
    del there.records[-request.param :]
    return await taken(world, msgspec.structs.replace(OWNER, worker="another"))


async def test_claude_code_takes_such_a_call_for_one_that_never_began(cut: Journal) -> None:
    (response,) = (await claude_code.gather(context(cut), [], [])).responses
    assert (response.open, response.began) == (True, False)


async def test_opencode_takes_such_a_call_for_one_that_never_began(cut: Journal) -> None:
    said = conversation([])
    (response,) = (await opencode.gather(context(cut), said)).responses
    assert (response.open, response.began) == (True, False)
    assert opencode.left_over(context(cut), None, said) == []


async def test_codex_takes_such_a_call_for_one_that_never_began(cut: Journal) -> None:
    assert (await codex.gather(cut, [])).cut == "m1"


async def test_codex_is_answered_about_a_call_beside_such_a_one() -> None:
    journal = await begun(world := MemoryWorld())
    await asked(journal, ("call_1", "exec_command", {}), ("call_2", "exec_command", {}), origin="builtin")
    del world.stored[SESSION].records[-1:]
    journal = await taken(world, msgspec.structs.replace(OWNER, worker="another"))

    async def explain(call: str, text: str) -> None:
        raise AssertionError(text)

    question: Json = {"id": 1, "method": "item/commandExecution/requestApproval"}
    answer = await gate.reply(context(journal), {**question, "params": {"itemId": "call_1"}}, explain)
    assert b"accept" in answer
