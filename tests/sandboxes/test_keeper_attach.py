"""Who may attach: epochs, tokens, protocol versions, and nobody from inside."""

from __future__ import annotations

import errno
import json
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from harness_durable.errors import KeeperGone, KeeperIncompatible, SandboxUnavailable, StaleEpoch
from harness_durable.testing.sandboxes.bench import everything, said_by
from harness_durable_sandboxes import client
from harness_durable_sandboxes.client import connect, dial, encode_line
from harness_durable_sandboxes.keeper import CHUNK, PROTOCOL
from harness_durable_sandboxes.link import attach
from tests.sandboxes.keeper_kit import TOKEN, attached, life, taken, until


async def test_a_higher_epoch_cuts_all_connections_of_the_old_one(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as old:
        relay = (await old.status())["port"]
        streams = [await old.dial(relay) for _ in range(2)]
        async with attached(one, 2) as new:
            for stream in streams:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
                await stream.aclose()
            with pytest.raises(StaleEpoch) as stale:
                await old.write(b"ghost\n")
            assert (stale.value.epoch, stale.value.current) == (1, 2)
            with pytest.raises(StaleEpoch):
                await old.dial(1)
            with pytest.raises(StaleEpoch):
                await old.shutdown()
            await new.write(b"real\n")
            _, seen = await said_by(new, b"real\n")
            assert seen == b"real\n"


async def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        with pytest.raises(SandboxUnavailable, match="token"):
            await attach(one.run, "wrong", 9)
        with pytest.raises(SandboxUnavailable, match="token"):
            await dial(one.run, "wrong", op="shutdown")
        async with attached(one) as link:
            assert await link.pid() > 0


async def test_another_protocol_is_refused_by_the_keeper(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        stream = await connect(one.run)
        await stream.send(encode_line(v=PROTOCOL + 1, token=TOKEN, op="attach", epoch=1))
        answer = json.loads(await stream.receive())
        await stream.aclose()
        assert answer == {"ok": False, "v": PROTOCOL, "error": "version"}


async def test_another_protocol_is_refused_by_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with life(tmp_path / "run", "cat") as one:
        monkeypatch.setattr(client, "PROTOCOL", PROTOCOL + 1)
        with pytest.raises(KeeperIncompatible, match=f"speaks protocol {PROTOCOL}"):
            await one.attach()


@pytest.mark.parametrize("hello", [b"\n", b"no json\n", b"[]\n", b'{"v":1}\n', b"\0\xff\n", b""])
async def test_nonsense_at_the_door_harms_nobody(tmp_path: Path, hello: bytes) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        stream = await connect(one.run)
        if hello:
            await stream.send(hello)
            assert b'"ok": false' in await stream.receive()
        await stream.aclose()
        await link.write(b"fine\n")
        await said_by(link, b"fine\n")


async def test_a_command_that_cannot_be_done_harms_nobody(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        await link.signal(99999)
        await link.write(b"fine\n")
        await said_by(link, b"fine\n")


async def test_the_harness_cannot_attach_to_its_own_keeper(tmp_path: Path) -> None:
    code = (
        "import socket,sys,json\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        "try:\n s.sendall(sys.argv[2].encode())\n print(s.recv(100))\nexcept OSError: print(b'')"
    )
    hello = encode_line(v=PROTOCOL, token=TOKEN, op="attach", epoch=99).decode()
    run = tmp_path / "run"
    async with life(run, sys.executable, "-c", code, str(run / "ctl.sock"), hello) as one:
        assert one.about["isolation"] != "guard", "without a namespace this cannot be refused"
        async with attached(one) as link:
            assert await everything(link) == b"b''\n"


async def test_a_run_directory_may_have_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80) / ("e" * 80)
    deep.mkdir(parents=True)
    async with life(deep / "run", "cat") as one, attached(one) as link:
        await link.write(b"fine\n")
        await said_by(link, b"fine\n")


async def test_a_keeper_that_left_is_gone(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        link = await one.attach()
        await link.shutdown()
        with pytest.raises(KeeperGone):
            await one.attach(2)


async def test_a_cancelled_wait_hands_over_to_the_next(tmp_path: Path) -> None:
    """Two wait on one link; the one that reads for both is cancelled."""
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        seen: list[bytes] = []

        async def listen() -> None:
            seen.append((await said_by(link, b"now\n"))[1])

        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def give_up() -> None:
                with scope:
                    await taken(link)

            group.start_soon(give_up)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            await link.write(b"now\n")
        assert seen == [b"now\n"]


async def test_dial_reaches_a_server_of_the_harness(tmp_path: Path) -> None:
    code = (
        "import socket\ns=socket.socket()\ns.bind(('127.0.0.1',0))\ns.listen()\n"
        "print(s.getsockname()[1], flush=True)\nc,_=s.accept()\n"
        "d=b''\nwhile x:=c.recv(65536): d+=x\n"
        "c.sendall(b'%d '%len(d)+d[-3:])\nc.close()\n"
    )
    async with life(tmp_path / "run", sys.executable, "-c", code) as one, attached(one) as link:
        _, port = await said_by(link, b"\n")
        stream = await link.dial(int(port))
        await stream.send(b"x" * 5_000_000 + b"end")
        await stream.send_eof()
        got = b""
        with pytest.raises(anyio.EndOfStream):
            while True:
                got += await stream.receive()
        await stream.aclose()
        assert got == b"5000003 end"


async def test_dialling_a_port_where_nobody_listens_ends_at_once(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one, attached(one) as link:
        stream = await link.dial(1)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()
        await until(link.pid)


async def test_a_worker_without_descriptors_does_not_take_a_keeper_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(path: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with life(tmp_path / "run", "cat") as one:
        monkeypatch.setattr(anyio, "connect_unix", none_left)
        with pytest.raises(SandboxUnavailable, match="ulimit -n"):
            await connect(one.run)
        monkeypatch.undo()


async def test_who_never_ends_a_line_in_a_keepers_place_does_not_fill_the_memory(tmp_path: Path) -> None:
    sent = 0

    async def pose(stream: SocketStream) -> None:
        nonlocal sent
        async with stream:
            await stream.receive()
            hello = {"v": PROTOCOL, "ok": True, "epoch": 1, "pid": 1, "in": 0, "out": 0, "exit": None}
            await stream.send(encode_line(**hello))
            with suppress(anyio.BrokenResourceError):
                while True:
                    await stream.send(b" " * CHUNK)
                    sent += CHUNK

    (tmp_path / "out.log").touch()
    door = await anyio.create_unix_listener(tmp_path / "ctl.sock")
    async with door, anyio.create_task_group() as tasks:
        tasks.start_soon(door.serve, pose)
        link = await attach(tmp_path, TOKEN, 1)
        with anyio.fail_after(20), pytest.raises(KeeperIncompatible, match="not its keeper"):
            await everything(link)
        await link.aclose()
        tasks.cancel_scope.cancel()
    assert sent < 8 << 20
