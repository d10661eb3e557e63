"""The local sandbox's own promises: who is killed and who is not, and what lies where."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from harness_durable.errors import BadInput, KeeperGone, SandboxUnavailable, StaleEpoch
from harness_durable.sandbox import FoundLife, LifeRef, LifeSpec, Link
from harness_durable.testing.sandboxes.bench import PATH, Watch
from harness_durable_sandboxes import local, processes
from harness_durable_sandboxes.launch import Isolation
from harness_durable_sandboxes.link import attach
from harness_durable_sandboxes.local import LocalSandbox, kill_life
from tests.sandboxes.keeper_kit import until

FAMILY = (
    'exec 9>"$0"; echo x >&9; setsid sh -c "echo y >&9; sleep 1000 & wait" & '
    "(setsid sh -c 'echo z >&9; exec sleep 1000' &) ; sleep 1000"
)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    one = Watch(tmp_path / "fifo", tmp_path / "fifo")
    yield one
    one.close()


def spec(life: str, *argv: str, cwd: str = "/", files: Mapping[str, bytes] | None = None) -> LifeSpec:
    env = {"PATH": PATH, "HOME": "@HOME@"}
    return LifeSpec(life, "session", argv, env, cwd, files or {}, "secret-token")


@asynccontextmanager
async def family(sandbox: LocalSandbox, watch: Watch, life: str = "life-1") -> AsyncGenerator[LifeRef]:
    ref, link = await sandbox.start(spec(life, "sh", "-c", FAMILY, watch.path), 1)
    try:
        await until(lambda: watch.held() and set(b"xyz") <= set(watch.seen))
        yield ref
    finally:
        await link.aclose()
        await sandbox.reap(ref)


def keepers(ref: LifeRef, guard: bool = False) -> list[int]:
    return processes.find(processes.keeper_of(Path(ref.run_dir) / "keeper", guard))


async def test_what_acts_in_a_life_is_known_by_its_pids_on_this_host(tmp_path: Path, watch: Watch) -> None:
    sandbox = LocalSandbox(tmp_path / "run")
    async with family(sandbox, watch) as ref:

        def sleeping() -> int:
            return sum(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in sandbox.acting(ref))

        await until(lambda: sleeping() == 3)
        assert os.getpid() not in sandbox.acting(ref)
        assert sandbox.acting(sandbox.locate("another")) == []
        assert not sandbox.acting(msgspec.structs.replace(ref, host="elsewhere"))
    assert sandbox.acting(ref) == []


async def test_a_life_is_private_to_its_user(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    ref, link = await sandbox.start(spec("one", "cat", files={"secret": b"x"}), 1)
    life = Path(ref.run_dir)
    for path, mode in (
        (tmp_path / "lives", 0o700),
        (life, 0o700),
        (life / "home", 0o700),
        (life / "keeper", 0o700),
        (life / "token", 0o600),
        (life / "home/secret", 0o600),
    ):
        assert path.stat().st_mode & 0o777 == mode, path
    assert not (life / "keeper/spec.json").exists()
    await link.shutdown()
    await sandbox.reap(ref)


async def test_the_keeper_has_nothing_of_the_worker_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-of-the-worker")
    sandbox = LocalSandbox(tmp_path / "lives")
    ref, link = await sandbox.start(spec("one", "cat"), 1)
    (pid,) = keepers(ref)
    environ = await anyio.Path(f"/proc/{pid}/environ").read_bytes()
    names = {entry.partition(b"=")[0] for entry in environ.split(b"\0") if entry}
    assert names == {b"HARNESS_DURABLE_LIFE", b"HARNESS_DURABLE_RUN"}
    await link.shutdown()
    await sandbox.reap(ref)


async def test_reaping_needs_neither_the_socket_nor_the_token(tmp_path: Path, watch: Watch) -> None:
    """The harness may have deleted both: they belong to its user."""
    sandbox = LocalSandbox(tmp_path / "lives")
    async with family(sandbox, watch) as ref:
        (Path(ref.run_dir) / "keeper/ctl.sock").unlink()
        (Path(ref.run_dir) / "token").unlink()
        assert not await sandbox.alive(ref)
        with pytest.raises(KeeperGone):
            await sandbox.attach(ref, 2)
        await sandbox.reap(ref)
        assert not watch.held()
        assert not keepers(ref)


async def test_reaping_finds_what_lost_its_keeper_and_guard_at_once(tmp_path: Path, watch: Watch) -> None:
    sandbox = LocalSandbox(tmp_path / "lives", isolation="guard")
    async with family(sandbox, watch) as ref:
        both = keepers(ref, guard=True) + keepers(ref)
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        for pid in both:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not keepers(ref) and not keepers(ref, guard=True))
        assert watch.held(), "this test needs a survivor"
        await sandbox.reap(ref)
        assert not watch.held()


@pytest.mark.parametrize("isolation", ["auto", "guard"])
async def test_reaping_kills_nobody_else(tmp_path: Path, watch: Watch, isolation: Isolation) -> None:
    """C077: only what has all the marks of the life."""
    sandbox = LocalSandbox(tmp_path / "lives", isolation)
    other = Watch(tmp_path / "other", tmp_path / "other")
    start, wait = subprocess.Popen[bytes], "import sys; sys.stdin.read()"
    async with family(sandbox, watch) as ref, family(sandbox, other, "life-10") as neighbour:
        run = str(Path(ref.run_dir) / "keeper")
        marks = processes.marks("life-1", Path(run))
        lookalikes = [
            start([sys.executable, "-c", wait, *argv], stdin=subprocess.PIPE, env=env)
            for argv, env in (
                ([run], {}),
                (["-I", run, "more"], {}),
                (["-I", run + "2"], {}),
                ([], {**marks, "HARNESS_DURABLE_LIFE": "life-10"}),
                ([], {**marks, "HARNESS_DURABLE_RUN": run + "2"}),
                ([], {"HARNESS_DURABLE_LIFE": "life-1"}),
                ([], {"OTHER": "\n".join(f"{k}={v}" for k, v in marks.items())}),
            )
        ]
        await sandbox.reap(ref)
        assert not watch.held()
        assert [one.poll() for one in lookalikes] == [None] * len(lookalikes)
        assert other.held()
        assert await sandbox.alive(neighbour)
        for one in lookalikes:
            one.communicate()
    other.close()


async def test_a_life_of_another_machine_is_not_declared_dead(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    ref = msgspec.structs.replace(sandbox.locate("one"), host="elsewhere/boot")
    assert not await sandbox.alive(ref)
    with pytest.raises(KeeperGone):
        await sandbox.attach(ref, 2)
    assert await sandbox.reap(ref) is False, "what cannot be reached is not said to be over"


async def test_a_life_of_a_machine_with_the_same_name_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    """As in containers that share a fixed name and a kernel; here they even share a life's path."""
    ours, theirs = LocalSandbox(tmp_path / "lives"), LocalSandbox(tmp_path / "theirs")
    ref, link = await theirs.start(spec("one", "cat"), 1)
    try:
        assert ref.host.split("/")[:2] == ours.locate("one").host.split("/")[:2]
        assert not await ours.alive(ref)
        with pytest.raises(KeeperGone):
            await ours.attach(ref, 2)
        assert await ours.reap(ref) is False
        assert await theirs.alive(ref), "it is not ours to end"
    finally:
        await link.aclose()
        assert await theirs.reap(ref) is True


async def test_all_workers_of_a_host_agree_which_one_it_is(tmp_path: Path) -> None:
    first, second = LocalSandbox(tmp_path / "lives"), LocalSandbox(tmp_path / "lives")
    assert first.locate("one") == second.locate("one")
    assert [path.name for path in (tmp_path / "lives").iterdir()] == [".id"]


async def test_a_life_that_an_earlier_version_began_is_found(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    ref, link = await sandbox.start(spec("one", "cat"), 1)
    await link.aclose()
    before = msgspec.structs.replace(ref, host=ref.host.rpartition("/")[0])
    assert await sandbox.alive(before)
    assert await sandbox.reap(before) is True
    assert not await sandbox.alive(ref)


async def test_a_life_whose_start_fails_is_not_ended_under_a_newer_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one has come between the start and the first attach."""
    sandbox = LocalSandbox(tmp_path / "lives")
    held: list[Link] = []

    async def beaten(run: Path, token: str, epoch: int) -> Link:
        held.append(await attach(run, token, 2))
        return await attach(run, token, epoch)

    monkeypatch.setattr(local, "attach", beaten)
    with pytest.raises(StaleEpoch):
        await sandbox.start(spec("one", "cat"), 1)
    ref = sandbox.locate("one")
    assert await sandbox.alive(ref)
    await held[0].aclose()
    assert await sandbox.reap(ref, 2)


async def test_a_life_of_an_earlier_boot_is_dead_and_tidied_up(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    ref = sandbox.locate("one")
    before = msgspec.structs.replace(ref, host=ref.host.partition("/")[0] + "/earlier-boot")
    left = Path(ref.run_dir) / "home" / "locked"
    left.mkdir(parents=True)
    (left / "file").write_bytes(b"x")
    left.chmod(0)
    assert not await sandbox.alive(before)
    assert await sandbox.reap(before) is True
    assert not await anyio.Path(ref.run_dir).exists()


@pytest.mark.parametrize("life", ["", ".", "..", "a/b", "a\0b", "a\nb", "x" * 129, "ü"])
async def test_a_life_id_that_is_no_directory_name_is_refused(tmp_path: Path, life: str) -> None:
    with pytest.raises(BadInput):
        LocalSandbox(tmp_path / "lives").locate(life)


@pytest.mark.parametrize("files", [{"a": b"", "./a": b""}, {"a": b"", "a/b": b""}, {"a/b": b"", "a": b""}])
async def test_files_that_collide_are_refused_and_leave_nothing(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    with pytest.raises(BadInput, match="collides"):
        await sandbox.start(spec("one", "cat", files=files), 1)
    assert not list((tmp_path / "lives").glob("[!.]*"))


async def test_a_root_that_is_gone_is_the_machinery_s_fault(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    shutil.rmtree(tmp_path / "lives")
    with pytest.raises(SandboxUnavailable, match="lives"):
        await sandbox.start(spec("one", "cat"), 1)
    with pytest.raises(SandboxUnavailable, match="lives"):
        await sandbox.exec(("true",), cwd=tmp_path, env={}, timeout=5)


async def test_a_missing_working_directory_is_not_a_missing_harness(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    with pytest.raises(SandboxUnavailable, match="working directory"):
        await sandbox.start(spec("one", "cat", cwd="/no/such/directory"), 1)
    with pytest.raises(SandboxUnavailable, match="no such directory"):
        await sandbox.exec(("true",), cwd=tmp_path / "missing", env={}, timeout=5)
    assert not list((tmp_path / "lives").glob("[!.]*"))


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, watch: Watch) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    ref = sandbox.locate("one")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.start, spec("one", "sh", "-c", FAMILY, watch.path), 1)
            await until(lambda: Path(ref.run_dir).exists())
            scope.cancel()
    assert not watch.held()
    assert not keepers(ref)
    assert not await anyio.Path(ref.run_dir).exists()


async def test_a_cancelled_command_is_killed_with_its_children(tmp_path: Path, watch: Watch) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def command() -> None:
                argv = ("sh", "-c", FAMILY, watch.path)
                await sandbox.exec(argv, cwd=tmp_path, env={"PATH": PATH}, timeout=1000)

            group.start_soon(command)
            await until(lambda: watch.held() and set(b"xyz") <= set(watch.seen))
            scope.cancel()
    assert not watch.held()


@pytest.mark.parametrize(("wanted", "firm"), [("auto", None), ("guard", False)])
async def test_a_sandbox_tells_how_firmly_it_holds_and_leaves_nothing(
    wanted: Isolation, firm: bool | None, tmp_path: Path
) -> None:
    found = await LocalSandbox(tmp_path / "lives", wanted).isolation()
    assert found.firm == (found.kind != "guard" if firm is None else firm)
    assert found.sentence
    assert not list((tmp_path / "lives").glob("[!.]*"))


async def test_lives_can_be_listed_with_whose_they_are_until_nothing_of_them_is_left(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "lives")
    assert await sandbox.list_lives() == []
    ref, link = await sandbox.start(msgspec.structs.replace(spec("one", "cat"), origin="world-1"), 1)
    (tmp_path / "lives/of-another-version").mkdir()
    (tmp_path / "lives/half-made").mkdir()
    (tmp_path / "lives/half-made/origin.json").write_text('{"session": ')
    try:
        another_worker = LocalSandbox(tmp_path / "lives")
        assert await another_worker.list_lives() == [FoundLife(ref, "session", "world-1")]
        await link.aclose()
        kill_life(ref)  # what is left on the disk is found all the same
        assert [found.ref for found in await another_worker.list_lives()] == [ref]
    finally:
        await link.aclose()
        await sandbox.reap(ref)
    assert await sandbox.list_lives() == []
