"""What real Claude Code does when the provider or the way to it fails: it waits, gives up, goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from harness_durable.gateway.connection import Connection, HungUp
from harness_durable.runtime.progress import shown
from harness_durable.state import Session
from harness_durable.testing.provider import HttpError, Reply, Request, Text, ToolUse, say
from harness_durable.testing.provider.policies.simple import Script
from tests.harness.rig import SESSION, Rig
from tests.harness.rigs import ClaudeRig, versions

pytestmark = [pytest.mark.slow, versions(ClaudeRig)]

QUOTA = HttpError(429, kind="insufficient_quota", message="no more today")
TOMORROW = HttpError(429, message="come back tomorrow", headers={"retry-after": "3600"})
BUSY = HttpError(529, message="busy just now")


@pytest.fixture(autouse=True)
def _gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its second try, so that nobody waits for the sixteenth."""
    monkeypatch.setenv("CLAUDE_CODE_MAX_RETRIES", "1")


def fails(times: int, fault: HttpError) -> Callable[[Request], Reply]:
    """A provider that fails so often before it answers."""
    left = [fault] * times
    return lambda _: Reply(faults=(left.pop(),)) if left else say("after all")


@pytest.mark.parametrize("fault", [TOMORROW, QUOTA], ids=["retry-after", "quota"])
async def test_c145_a_limit_that_is_used_up_fails_the_turn_at_once(
    tmp_path: Path, version: str, fault: HttpError
) -> None:
    async with ClaudeRig.open(tmp_path, version, fails(99, fault)) as rig:
        state = await rig.say("go")
        turn = state.turns["m-1"]
        assert (turn.status, turn.code) == ("failed", "api_429")
        assert (len(turn.model_calls), len(turn.lives)) == (1, 1)
        assert fault.message in state.model_calls[turn.model_calls[0]].reason


async def test_c145_a_wait_of_the_harness_is_seen_while_it_lasts(tmp_path: Path, version: str) -> None:
    seen = list[str]()
    brief = HttpError(429, headers={"retry-after": "2"})
    async with ClaudeRig.open(tmp_path, version, fails(1, brief)) as rig:

        async def watch() -> None:
            while True:
                seen.append(shown(await rig.world.progress(SESSION)).text)
                await anyio.sleep(0.02)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await rig.say("go")
            tasks.cancel_scope.cancel()
        assert (await rig.state()).turns["m-1"].status == "completed"
        assert [text for text in seen if "before attempt 2 of 2: 429 rate_limit" in text]
        assert shown(await rig.world.progress(SESSION)).text == ""


async def test_c151_a_turn_goes_on_by_itself_after_the_harness_gave_up(tmp_path: Path, version: str) -> None:
    async with ClaudeRig.open(tmp_path, version, fails(2, BUSY)) as rig:
        state = await rig.say("go")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "after all")
        assert [state.lives[life].rung for life in turn.lives] == ["start", "continue"]
        assert "529" in state.lives[turn.lives[0]].reason
        assert "API Error" not in str(rig.requests[-1].body), "its own words are no part of the conversation"
        assert str(rig.requests[-1].body).count("'go") == 1, "nothing was said twice, and nothing made up"


async def test_c151_a_provider_that_stays_down_fails_the_turn(tmp_path: Path, version: str) -> None:
    async with ClaudeRig.open(tmp_path, version, fails(99, BUSY)) as rig:
        state = await rig.say("go")
        turn = state.turns["m-1"]
        assert (turn.status, turn.code, len(turn.lives)) == ("failed", "api_529", 2)
        state = await rig.say("again?", "m-2")
        assert state.turns["m-2"].code == "api_529"


async def cut(rig: Rig, monkeypatch: pytest.MonkeyPatch, *marks: bytes) -> Session:
    """Do a turn in whose first life each answer that holds the next mark breaks off behind it, on its way to
    the harness; those with the last mark do so as often as they are sent."""
    left, whole = [*marks, *[marks[-1]] * 99], Connection.send

    async def send(self: Connection, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        if not left or left[0] not in body:
            await whole(self, status, headers, body)
            return
        mark = left.pop(0)
        part = body[: body.index(mark) + len(mark)]
        stream = self._stream  # pyright: ignore[reportPrivateUsage]
        await stream.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), part)
        )
        raise HungUp

    async def mend() -> None:
        await rig.until(lambda state: len(state.lives) > 1)
        left.clear()

    monkeypatch.setattr(Connection, "send", send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mend)
        await rig.say("go")
    return await rig.state()


async def test_c151_an_answer_that_broke_off_on_its_way_is_given_again_and_not_paid_again(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to the same life nor to the next one."""
    async with ClaudeRig.open(tmp_path, version, Script((say("half and half"),))) as rig:
        state = await cut(rig, monkeypatch, b"half")
        turn = state.turns["m-1"]
        assert (turn.status, turn.text and turn.text.text) == ("completed", "half and half")
        assert len(turn.lives) == 2
        assert (rig.paid(), len(turn.model_calls)) == (1, 1)
        assert set(state.model_calls[turn.model_calls[0]].replays) == set(turn.lives)


async def test_c151_what_ran_before_the_connection_broke_stays_and_the_rest_is_said_truly(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first answer a part arrived, with its call, and the harness went on with that."""
    command = ToolUse("Bash", {"command": "echo ran >> ran; echo out", "description": "t"}, id="toolu_1")
    first = Reply((Text("I look"), command, Text("and then")))
    async with ClaudeRig.open(tmp_path, version, Script((first, say("half and half"), say("end")))) as rig:
        state = await cut(rig, monkeypatch, b'"index":2', b"half")
        turn = state.turns["m-1"]
        assert (turn.status, len(turn.lives)) == ("completed", 2)
        assert (rig.workspace / "ran").read_text() == "ran\n"
        assert state.tool_calls["toolu_1"].outcome == "completed"
        assert rig.seen("toolu_1") == "out"
        assert "API Error" not in str(rig.requests[-1].body)
        assert state.lives[turn.lives[0]].reason.startswith("API Error: Connection")
