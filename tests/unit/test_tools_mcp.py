"""The MCP endpoint: the few methods that tools need, and ids that survive a second sending."""

from __future__ import annotations

import anyio
import pytest

from harness_durable.errors import StorageUnavailable
from harness_durable.tools import tool
from harness_durable.tools.mcp import McpEndpoint
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import asked, begun, host


class Rig:
    """A session with a tool that counts its runs, and one that waits until it is stopped."""

    def __init__(self) -> None:
        self.world, self.runs = MemoryWorld(), list[str]()

    async def start(self) -> McpEndpoint:
        @tool(replay="never")
        async def deploy(v: str) -> str:
            """Deploy it."""
            self.runs.append(v)
            if v == "bad":
                raise ValueError("no such version")
            return f"deployed {v}"

        @tool(replay="never")
        async def wait() -> str:
            await anyio.sleep_forever()
            return ""

        self.journal = await begun(self.world)
        await asked(
            self.journal, ("t1", "deploy", {"v": "1"}), ("t2", "deploy", {"v": "bad"}), ("t3", "wait", {})
        )
        return McpEndpoint(host(self.journal, [deploy, wait]), "dur", "0.1")


def call(id: int | str, name: str, arguments: object, call_id: str | None) -> dict[str, object]:  # noqa: A002
    meta: dict[str, object] = {"progressToken": 2}
    if call_id is not None:
        meta["claudecode/toolUseId"] = call_id
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def result(text: str, *, error: bool) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], "isError": error}


@pytest.mark.parametrize(("asked_for", "given"), [("2025-06-18", "2025-06-18"), ("2099-01-01", "2025-11-25")])
async def test_initialize_agrees_on_a_version(asked_for: str, given: str) -> None:
    answer = await (await Rig().start()).handle(request("initialize", protocolVersion=asked_for))
    assert answer == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {
            "protocolVersion": given,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "dur", "version": "0.1"},
        },
    }


async def test_ping_and_list() -> None:
    endpoint = await Rig().start()
    assert await endpoint.handle(request("ping")) == {"jsonrpc": "2.0", "id": 7, "result": {}}
    listed = await endpoint.handle(request("tools/list"))
    assert listed is not None
    tools = listed["result"]["tools"]  # type: ignore[index]  # pyright: ignore
    assert tools[0] == {  # pyright: ignore
        "name": "deploy",
        "description": "Deploy it.",
        "inputSchema": {
            "type": "object",
            "properties": {"v": {"type": "string"}},
            "required": ["v"],
            "additionalProperties": False,
        },
    }


async def test_a_call_that_is_sent_again_after_a_reconnect_runs_once() -> None:
    rig = Rig()
    endpoint = await rig.start()
    for id in (1, "again"):  # noqa: A001
        answer = await endpoint.handle(call(id, "deploy", {"v": "1"}, "t1"))
        assert answer == {"jsonrpc": "2.0", "id": id, "result": result("deployed 1", error=False)}
    assert rig.runs == ["1"]


async def test_a_tool_that_raises_is_an_error_result_and_no_rpc_error() -> None:
    answer = await (await Rig().start()).handle(call(1, "deploy", {"v": "bad"}, "t2"))
    assert answer is not None
    assert answer["result"] == result("ValueError: no such version", error=True)


async def test_a_call_without_its_id_does_not_run() -> None:
    rig = Rig()
    answer = await (await rig.start()).handle(call(1, "deploy", {"v": "1"}, None))
    assert answer is not None
    assert "claudecode/toolUseId" in str(answer["result"])
    assert rig.runs == []


async def test_another_harness_may_use_another_meta_key() -> None:
    rig = Rig()
    await rig.start()
    endpoint = McpEndpoint(host(rig.journal, []), "dur", "1", call_id_key="other/id")
    answer = await endpoint.handle(call(1, "deploy", {}, "t1"))
    assert answer is not None
    assert "error" in answer  # this host has no tools at all


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (request("server/discover"), -32601),
        (call(7, "nothing", {}, "t1"), -32602),
        ({"jsonrpc": "2.0", "id": 7}, -32600),
        (request("tools/call"), -32602),
    ],
)
async def test_what_is_not_understood_is_an_rpc_error(message: dict[str, object], code: int) -> None:
    answer = await (await Rig().start()).handle(message)
    assert answer is not None
    assert answer["error"]["code"] == code  # type: ignore[index]  # pyright: ignore


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
        {},
    ],
)
async def test_what_wants_no_answer_gets_none(message: dict[str, object]) -> None:
    assert await (await Rig().start()).handle(message) is None


async def test_a_cancelled_notification_stops_the_call() -> None:
    rig = Rig()
    endpoint = await rig.start()
    async with anyio.create_task_group() as group:
        group.start_soon(endpoint.handle, call(5, "wait", {}, "t3"))
        await anyio.wait_all_tasks_blocked()
        await endpoint.handle(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        )
    assert rig.journal.state.tool_calls["t3"].outcome == "cancelled"


async def test_trouble_with_the_log_is_raised_and_not_answered() -> None:
    rig = Rig()
    endpoint = await rig.start()
    rig.world.fail_next = 10_000
    with pytest.raises(StorageUnavailable):
        await endpoint.handle(call(1, "deploy", {"v": "1"}, "t1"))
    assert rig.runs == []
