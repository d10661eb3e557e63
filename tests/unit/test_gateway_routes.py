"""What an adapter answers over the relay: held until it is there, and only for who has the life's token."""

from __future__ import annotations

import anyio

from harness_durable.errors import StorageUnavailable
from harness_durable.gateway import Routes
from tests.unit.gateway_kit import gateway


async def _echo(body: bytes) -> bytes:
    return b'{"echo":' + body + b"}"


async def test_a_question_waits_until_the_adapter_has_opened_its_routes() -> None:
    routes = Routes()
    async with gateway("http://127.0.0.1:9", routes=routes, ready=False) as rig:
        sent = await rig.start({"a": 1}, path="/durable/echo")
        await anyio.wait_all_tasks_blocked()
        routes.open({"echo": _echo})
        got = await sent.response()
        assert (got.status, got.body) == (200, b'{"echo":{"a": 1}}')
        assert sent.request.finished


async def test_routes_that_nobody_opened_and_strangers_get_no_answer() -> None:
    routes = Routes()
    routes.open({"echo": _echo})
    async with gateway("http://127.0.0.1:9", routes=routes) as rig:
        assert (await rig.ask({}, path="/durable/other")).status == 404
        assert (await rig.ask({}, path="/durable/echo", headers={"x-api-key": "wrong"})).status == 401
    async with gateway("http://127.0.0.1:9") as rig:
        assert (await rig.ask({}, path="/durable/echo")).status == 404


async def test_an_answer_that_cannot_be_recorded_is_not_given() -> None:
    async def fail(_: bytes) -> bytes:
        raise StorageUnavailable("the disk is full; make room")

    routes = Routes()
    routes.open({"fail": fail})
    async with gateway("http://127.0.0.1:9", routes=routes) as rig:
        got = await rig.ask({}, path="/durable/fail")
        await rig.ended.wait()
        assert (got.status, got.raw) == (0, b"")
        assert isinstance(rig.failure, StorageUnavailable)
