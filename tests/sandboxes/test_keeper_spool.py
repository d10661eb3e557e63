"""The spool: nothing is lost when the disk is full, and half a frame is never said."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest

from harness_durable.errors import SandboxUnavailable
from harness_durable.testing.sandboxes.bench import Watch, everything, said_by
from harness_durable_sandboxes import processes
from harness_durable_sandboxes.client import connect, encode_line
from harness_durable_sandboxes.keeper import PROTOCOL
from tests.sandboxes.keeper_kit import TOKEN, Life, attached, life, until

LIMIT = 64 * 512
FULL_DISK = ("sh", "-c", 'ulimit -S -f 64; exec "$0" "$@"')


def make_room(one: Life) -> None:
    """The soft limit on file sizes stands for a full disk; lifting it, for room again."""
    for pid in processes.find(processes.keeper_of(one.run)):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


async def test_a_full_disk_stops_the_harness_and_loses_no_byte(tmp_path: Path) -> None:
    """C022: the same life goes on when there is room."""
    script = 'i=0; while [ $i -lt 40000 ]; do echo "line $i"; i=$((i+1)); done'
    want = b"".join(b"line %d\n" % n for n in range(40000))
    async with (
        life(tmp_path / "run", "sh", "-c", script, prefix=FULL_DISK) as one,
        attached(one) as link,
    ):
        await until(lambda: one.size("out.log") == LIMIT)
        assert (await link.status())["blocked"]
        make_room(one)
        assert await everything(link) == want
        assert not (await link.status())["blocked"]


async def test_the_end_is_told_after_the_output_is_stored(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "fifo", tmp_path / "fifo")
    script = f'exec 9>"$0"; echo x >&9; head -c {LIMIT + 1000} /dev/zero; exit 3'
    async with (
        life(tmp_path / "run", "sh", "-c", script, watch.path, prefix=FULL_DISK) as one,
        attached(one) as link,
    ):
        await until(lambda: not watch.held() and watch.seen and one.size("out.log") == LIMIT)
        assert (await link.status())["exit"] is None
        assert not (one.run / "exit.json").exists()
        make_room(one)
        assert len(await everything(link)) == LIMIT + 1000
        assert link.exit is not None and link.exit.code == 3
    watch.close()


async def test_a_frame_that_does_not_fit_on_the_disk_is_not_said_at_all(tmp_path: Path) -> None:
    async with (
        life(tmp_path / "run", "cat", prefix=FULL_DISK) as one,
        attached(one) as link,
    ):
        await link.write(b"first\n")
        with pytest.raises(SandboxUnavailable, match="try again"):
            await link.write(b"x" * 2 * LIMIT + b"\n")
        assert one.size("in.log") == link.stdin_offset == 6
        make_room(one)
        await link.write(b"second\n")
        _, seen = await said_by(link, b"second\n")
        assert seen == await link.said() == b"first\nsecond\n"


async def test_a_worker_that_dies_within_a_frame_leaves_none_of_it(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        stream = await connect(one.run)
        await stream.send(encode_line(v=PROTOCOL, token=TOKEN, op="attach", epoch=1))
        await stream.receive()
        await stream.send(encode_line(op="stdin", id=1, at=0, size=4000) + b"torn " * 100)
        await stream.aclose()
        async with attached(one, 2) as link:
            await link.write(b"whole\n")
            _, seen = await said_by(link, b"whole\n")
            assert seen == await link.said() == b"whole\n"


async def test_a_frame_for_another_offset_is_refused(tmp_path: Path) -> None:
    async with life(tmp_path / "run", "cat") as one:
        stream = await connect(one.run)
        await stream.send(encode_line(v=PROTOCOL, token=TOKEN, op="attach", epoch=1))
        await stream.receive()
        await stream.send(encode_line(op="stdin", id=1, at=7, size=3) + b"no\n")
        answers = b""
        while b'"re"' not in answers:
            answers += await stream.receive()
        answer = next(json.loads(line) for line in answers.splitlines() if b'"re"' in line)
        await stream.aclose()
        assert (answer["ok"], answer["error"], answer["in"]) == (False, "offset", 0)
        assert one.size("in.log") == 0


async def test_the_index_tells_when_output_came(tmp_path: Path) -> None:
    script = "echo one; read x; echo two; read x"
    async with life(tmp_path / "run", "sh", "-c", script) as one, attached(one) as link:
        await said_by(link, b"one\n")
        first = (one.run / "out.idx").read_bytes().split()
        # The next entry is made when a tenth of a second has passed: ask until it has.
        await until(lambda: _file_age(one.run / "out.log") > 0.2)
        await link.write(b"\n")
        await said_by(link, b"two\n")
        entries = [tuple(map(int, line.split())) for line in (one.run / "out.idx").read_text().splitlines()]
        assert [offset for offset, _ in entries] == [0, 4]
        assert entries[0][1] == int(first[1])
        assert entries[1][1] - entries[0][1] >= 100


async def test_acknowledged_output_gives_its_room_back(tmp_path: Path) -> None:
    script = "head -c 4000000 /dev/zero; echo end"
    async with life(tmp_path / "run", "sh", "-c", script) as one, attached(one) as link:
        assert len(await everything(link)) == 4_000_004
        before = (one.run / "out.log").stat().st_blocks
        await link.ack(4_000_000)
        assert (one.run / "out.log").stat().st_blocks < before / 10
        assert await everything(link, 4_000_000) == b"end\n"


def _file_age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
