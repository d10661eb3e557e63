"""How lives end, under each kind of isolation.

C098, C100: no process of a life is left, whoever dies, in a tree of four generations."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from harness_durable.errors import KeeperGone
from harness_durable.testing.sandboxes.bench import Watch, everything
from harness_durable_sandboxes import processes
from harness_durable_sandboxes.launch import KEEPER
from tests.sandboxes.keeper_kit import Life, attached, launch, life, until

NOBODY = 65534
FAMILY = (
    'exec 9>"$0"; echo x >&9; setsid sh -c "echo y >&9; sh -c \'sleep 1000 & wait\' & wait" & '
    "(setsid sh -c 'echo z >&9; exec sleep 1000' &) ; sleep 1000"
)
NO_NAMESPACES = (
    "unshare",
    "-r",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_pid_namespaces && exec "$0" "$@"',
)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    one = Watch(tmp_path / "fifo", tmp_path / "fifo")
    yield one
    one.close()


@asynccontextmanager
async def family(run: Path, watch: Watch, **more: object) -> AsyncGenerator[Life]:
    """A harness with an orphan and a child, both in sessions of their own; the child's child has a child."""
    async with life(run, "sh", "-c", FAMILY, watch.path, **more) as one:
        await until(lambda: watch.held() and set(b"xyz") <= set(watch.seen))
        yield one


def keeper(one: Life, guard: bool = False) -> int:
    (pid,) = processes.find(processes.keeper_of(one.run, guard))
    return pid


async def keeper_left(one: Life) -> None:
    await until(lambda: not processes.find(processes.keeper_of(one.run)))
    await until(lambda: not processes.find(processes.keeper_of(one.run, guard=True)))


@pytest.mark.parametrize("isolation", ["auto", "guard"])
async def test_sigterm_ends_the_life_in_order(tmp_path: Path, watch: Watch, isolation: str) -> None:
    async with family(tmp_path / "run", watch, isolation=isolation) as one:
        os.kill(keeper(one), signal.SIGTERM)
        await keeper_left(one)
        assert not watch.held()
        assert one.exit()["code"] == -9
        assert one.exit()["why"] == "sigterm"
        assert not (one.run / "ctl.sock").exists()
        with pytest.raises(KeeperGone):
            await one.attach()


async def test_sigterm_to_the_guard_does_the_same(tmp_path: Path, watch: Watch) -> None:
    async with family(tmp_path / "run", watch, isolation="guard") as one:
        os.kill(keeper(one, guard=True), signal.SIGTERM)
        await keeper_left(one)
        assert not watch.held()
        assert one.exit()["why"] == "sigterm"


@pytest.mark.parametrize("isolation", ["auto", "guard"])
async def test_a_killed_keeper_leaves_no_process(tmp_path: Path, watch: Watch, isolation: str) -> None:
    async with family(tmp_path / "run", watch, isolation=isolation) as one, attached(one) as link:
        os.kill(keeper(one), signal.SIGKILL)
        await until(lambda: not watch.held())
        with pytest.raises(KeeperGone):
            await link.write(b"anybody?\n")
        await keeper_left(one)


async def test_a_killed_guard_leaves_no_process(tmp_path: Path, watch: Watch) -> None:
    async with family(tmp_path / "run", watch, isolation="guard") as one:
        os.kill(keeper(one, guard=True), signal.SIGKILL)
        await until(lambda: not watch.held())
        await keeper_left(one)
        assert one.exit()["code"] == -9


async def test_without_namespaces_the_keeper_falls_back_to_a_guard(tmp_path: Path, watch: Watch) -> None:
    async with family(tmp_path / "run", watch, prefix=NO_NAMESPACES) as one:
        assert one.about["isolation"] == "guard"
        os.kill(keeper(one), signal.SIGKILL)
        await until(lambda: not watch.held())
        await keeper_left(one)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """pytest's own directories are private to the user who runs the tests."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o755)
        shutil.copytree(KEEPER, path / "keeper", ignore=shutil.ignore_patterns("__pycache__"))
        yield path


async def test_an_unprivileged_user_gets_a_namespace_too(open_to_all: Path) -> None:
    watch = Watch(open_to_all / "fifo", open_to_all / "fifo")
    run = open_to_all / "run"
    more: dict[str, object] = {"keeper": open_to_all / "keeper"}
    if os.getuid() == 0:
        run.mkdir()
        shutil.chown(run, NOBODY, NOBODY)
        user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        more |= {"prefix": user, "python": "/usr/bin/python3"}
    async with family(run, watch, **more) as one, attached(one) as link:
        assert one.about["isolation"] == "userns"
        environ = await anyio.Path(f"/proc/{keeper(one)}/environ").stat()
        assert environ.st_uid == 0, "the keeper's memory can be read by the harness's user"
        os.kill(keeper(one), signal.SIGKILL)
        await until(lambda: not watch.held())
        with pytest.raises(KeeperGone):
            await link.status()
    watch.close()


async def test_kill_leaves_the_keeper_to_tell(tmp_path: Path, watch: Watch) -> None:
    async with family(tmp_path / "run", watch) as one, attached(one) as link:
        await link.kill()
        assert not watch.held()
        assert await everything(link) == b""
        assert link.exit is not None
        assert (link.exit.code, link.exit.why) == (-9, "kill")


async def test_a_signal_reaches_the_harness(tmp_path: Path) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done"
    async with life(tmp_path / "run", "sh", "-c", script) as one, attached(one) as link:
        await until(lambda: one.size("out.log") > 0)
        await link.signal(signal.SIGINT)
        assert await everything(link) == b"ready\ncaught\n"
        assert link.exit is not None
        assert (link.exit.code, link.exit.why) == (5, "exit")


async def test_a_command_that_keeps_the_output_open_does_not_hide_the_end(tmp_path: Path) -> None:
    script = "echo said; sleep 1000 & exit 4"
    async with life(tmp_path / "run", "sh", "-c", script) as one, attached(one) as link:
        assert await everything(link) == b"said\n"
        assert link.exit is not None and link.exit.code == 4


async def test_a_program_that_cannot_start_leaves_only_its_reason(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert await launch(run, "no-such-program") == 1
    assert (run / "failed.json").exists()
    assert not (run / "keeper.json").exists()
    assert not processes.find(processes.keeper_of(run))


async def test_no_secret_is_left_where_others_can_read(tmp_path: Path) -> None:
    run, secret = tmp_path / "run", "secret-of-this-test"
    async with life(run, "sleep", "1000", token=secret, env={"PATH": "/bin", "K": secret}) as one:
        for path in run.iterdir():
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path.name
        process = Path(f"/proc/{keeper(one)}")
        assert secret.encode() not in (process / "cmdline").read_bytes()
        assert secret.encode() not in (process / "environ").read_bytes()
        assert (run / "ctl.sock").stat().st_mode & 0o777 == 0o600
        for name in ("in.log", "out.log", "err.log"):
            assert (run / name).stat().st_mode & 0o777 == 0o600
