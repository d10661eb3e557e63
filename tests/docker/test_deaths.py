"""Deaths of a life in a container, and what is said of each."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from harness_durable.errors import KeeperGone, SandboxUnavailable
from harness_durable.sandbox import Ending, LifeRef
from harness_durable.testing.sandboxes.bench import PATH, everything, said_by
from harness_durable_sandboxes.docker import DockerSandbox
from harness_durable_sandboxes.docker import engine as engines
from harness_durable_sandboxes.docker import life as life_module
from harness_durable_sandboxes.docker.ending import by_whom, ending
from harness_durable_sandboxes.docker.engine import Refused
from harness_durable_sandboxes.docker.life import remove
from harness_durable_sandboxes.link import KeeperLink
from harness_durable_sandboxes.lives import run_of
from tests.docker.engine_kit import IMAGE, Engine, given, running
from tests.docker.life_kit import container, life, reaped, spec
from tests.sandboxes.keeper_kit import until

EAT = "x = b''\nwhile True: x += bytes(1 << 22)"
SMALL = {"memory": "96m"}
KILLED, RAN_OUT = "its container was killed", "had run out in it before"


async def gone(sandbox: DockerSandbox, ref: LifeRef, link: KeeperLink) -> None:
    """Until the worker has heard all, and knows."""
    with anyio.fail_after(60):
        with suppress(KeeperGone):
            await everything(link)
        await until(partial(_is_gone, sandbox, ref))


async def _is_gone(sandbox: DockerSandbox, ref: LifeRef) -> bool:
    return not await sandbox.alive(ref)


async def test_a_life_that_goes_on_has_no_ending(sandbox: DockerSandbox, workspace: Path) -> None:
    async with life(sandbox, spec(workspace, "cat")) as (ref, _):
        assert await sandbox.ending(ref) is None


async def test_a_keeper_that_still_answers_may_have_said_why_it_goes(
    sandbox: DockerSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears that the harness was ended asks at once."""
    monkeypatch.setattr(life_module, "_NOTICE_SECONDS", 0.0)
    async with life(sandbox, spec(workspace, "cat")) as (ref, _):
        (run_of(ref) / "exit.json").write_text('{"why": "sigterm", "oom_kill": 0}')
        found = await sandbox.ending(ref)
        assert found is not None
        assert found.why == "stopped"


async def test_a_harness_that_ends_is_not_the_end_of_its_life(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    async with life(sandbox, spec(workspace, "sh", "-c", "exit 3")) as (ref, link):
        await everything(link)
        assert link.exit is not None
        assert (link.exit.code, link.exit.why) == (3, "exit")
        assert await sandbox.alive(ref)
        assert await sandbox.ending(ref) is None


@pytest.mark.parametrize("way", ["killed", "removed", "stopped"])
async def test_what_happened_to_its_container_is_told(
    sandbox: DockerSandbox, workspace: Path, engine: Engine, way: str
) -> None:
    async with life(sandbox, spec(workspace, "cat")) as (ref, link):
        name = container(engine, ref)
        with engine.api() as api:
            if way == "killed":
                api.kill(name)
            elif way == "removed":
                api.remove_container(name, force=True)
            else:
                api.stop(name, timeout=20)
        await gone(sandbox, ref, link)
        found = await sandbox.ending(ref)
        assert found is not None
        assert found.why == way
        assert not await sandbox.alive(ref)


async def test_a_harness_that_takes_all_the_memory_is_told_from_one_that_was_killed(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    wanted = spec(workspace, "python3", "-c", EAT, options=SMALL)
    async with life(sandbox, wanted) as (ref, link):
        await everything(link)
        assert link.exit is not None
        assert (link.exit.code, link.exit.why, link.exit.oom_kills) == (-signal.SIGKILL, "oom", 1)
        assert await sandbox.alive(ref), "its keeper is not what was killed"
    async with life(sandbox, spec(workspace, "sh", "-c", "kill -9 $$", options=SMALL)) as (_, link):
        await everything(link)
        assert link.exit is not None
        assert (link.exit.why, link.exit.oom_kills) == ("signal", 0)


async def test_a_command_that_takes_all_the_memory_does_not_take_its_harness_along(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    """And if the container is killed later, memory is not what ended it, whatever the engine says."""
    script = f'python3 -c "{EAT}"; echo "command $?"; cat'
    async with life(sandbox, spec(workspace, "sh", "-c", script, options=SMALL)) as (ref, link):
        await said_by(link, b"command 137\n")
        assert await sandbox.alive(ref)
        with engine.api() as api:
            api.kill(container(engine, ref))
            assert api.wait(container(engine, ref))["StatusCode"] == 137
        await gone(sandbox, ref, link)
        found = await sandbox.ending(ref)
        assert found is not None
        assert found.why == "killed"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"ExitCode": 137, "OOMKilled": True}, Ending("killed", f"{KILLED}; memory {RAN_OUT}")),
        ({"ExitCode": 137, "OOMKilled": False}, Ending("killed", KILLED)),
        ({"ExitCode": 255, "Error": "odd"}, Ending("ended", "its container ended with exit code 255 (odd)")),
        (None, Ending("removed", "its container was removed by somebody")),
    ],
)  # fmt: skip
def test_without_a_record_of_its_keeper_the_engine_is_believed_but_for_its_flag(
    state: dict[str, object] | None, told: Ending, tmp_path: Path
) -> None:
    (tmp_path / "keeper.json").touch()
    (tmp_path / "exit.json").write_text('{"why": 1')
    assert ending(tmp_path, {**state, "Running": False} if state is not None else None) == told


@pytest.mark.parametrize(
    "left", ["[" * 4096, '{"why": "sigterm", "oom_kill": Infinity}', '{"oom_kill": {}}', "", "\udcff"]
)
def test_what_a_harness_writes_in_place_of_the_record_is_no_record(left: str, tmp_path: Path) -> None:
    (tmp_path / "keeper.json").touch()
    (tmp_path / "exit.json").write_text(left, errors="surrogateescape")
    found = ending(tmp_path, {"ExitCode": 137, "Running": False})
    assert found is not None
    assert found.why == "killed"


def test_a_record_that_no_log_could_hold_is_cut_down(tmp_path: Path) -> None:
    (tmp_path / "keeper.json").touch()
    (tmp_path / "exit.json").write_text('{"why": "ttl", "oom_kill": ' + "9" * 100 + "}")
    found = ending(tmp_path, None)
    assert found is not None
    assert found.oom_kills == 1 << 31


async def test_a_command_whose_container_is_killed_is_the_machinery_s_fault(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    async def runs() -> bool:
        return (workspace / "begun").exists()

    async def kill() -> None:
        await until(runs)
        with engine.api() as api:
            api.kill(engine.names()[0])

    command = ("sh", "-c", "touch begun; sleep 60")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        with pytest.raises(SandboxUnavailable, match="container of the command is gone"):
            await sandbox.exec(command, cwd=workspace, env={"PATH": PATH}, timeout=60)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["hd-x"], "stopped"),
        (["another"], "engine_restarted"),
        ([], "engine_restarted"),
        (["another"] * 256, "stopped"),
    ],
)
async def test_a_restart_is_told_only_by_an_engine_that_would_remember(
    names: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Remembers:
        def events(self, **_: object) -> list[dict[str, object]]:
            told: list[dict[str, object]] = [{"Actor": {"Attributes": {"name": name}}} for name in names]
            return [{"Type": "builder"}, {"Actor": {"Attributes": None}}, *told]  # not all have a name

    engine = engines.Engine()
    monkeypatch.setattr(engine, "ask", lambda ask: ask(Remembers()))  # pyright: ignore
    assert (await by_whom(engine, "hd-x", Ending("stopped", "it was"))).why == why
    killed = Ending("killed", "it was")
    assert await by_whom(engine, "hd-x", killed) is killed


def test_of_a_life_that_never_began_nothing_is_told(tmp_path: Path) -> None:
    assert ending(tmp_path, None) is None


@contextmanager
def own_engine(monkeypatch: pytest.MonkeyPatch) -> Generator[Engine]:
    with running() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        yield engine


async def test_an_engine_that_goes_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away, it is nobody's fault and nothing is over; back, it has stopped what ran, or not noticed."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    given(workspace)
    with own_engine(monkeypatch) as engine:
        sandbox = DockerSandbox(tmp_path / "run", {"image": IMAGE})
        ref, link = await sandbox.start(spec(workspace, "cat"), 1)
        assert isinstance(link, KeeperLink)
        engine.stop()
        await gone(sandbox, ref, link)
        await link.aclose()
        for ask in (sandbox.ending(ref), sandbox.list_lives(), sandbox.reap(ref)):
            with pytest.raises(SandboxUnavailable, match="start it"):
                await ask
        with pytest.raises(SandboxUnavailable, match="start it") as away:
            await sandbox.start(spec(workspace, "cat", life="other"), 1)
        assert away.value.why == "unreachable"
        assert Path(ref.run_dir).exists(), "it is not forgotten"  # noqa: ASYNC240
        engine.start("--live-restore")
        found = await sandbox.ending(ref)
        assert found is not None
        assert found.why == "engine_restarted"
        await reaped(sandbox, ref)
        assert [one.ref.life for one in await sandbox.list_lives()] == ["other"]
        await sandbox.reap(sandbox.locate("other"))

        ref, link = await sandbox.start(spec(workspace, "cat"), 1)
        assert isinstance(link, KeeperLink)
        engine.stop(signal.SIGKILL)
        await link.write(b"heard all the same\n")
        await said_by(link, b"heard all the same\n")
        engine.start("--live-restore")
        assert await sandbox.ending(ref) is None
        await link.aclose()
        await sandbox.reap(ref)
        assert engine.names() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_full_disk_is_the_machinery_s_fault(
    engine: Engine, workspace: Path, small_disk: Path
) -> None:
    sandbox = DockerSandbox(small_disk, {"image": IMAGE})
    with pytest.raises(SandboxUnavailable, match="No space left") as full:
        await sandbox.start(spec(workspace, "cat", files={"large": os.urandom(1 << 20)}), 1)
    assert full.value.why == "disk_full"
    assert await sandbox.list_lives() == []


class Meanwhile(engines.Engine):
    """The container ends by itself between the engine's look at it and its signal; once."""

    def __init__(self, *refusals: Refused) -> None:
        super().__init__()
        self.refusals = list(refusals)

    async def call(self, work: object) -> None:  # pyright: ignore
        if self.refusals:
            raise self.refusals.pop(0)


async def test_a_container_that_ends_while_it_is_removed_is_removed() -> None:
    dying = "Could not kill running container a0406e, cannot remove - Container a0406e is not running"
    engine = Meanwhile(Refused(500, dying), Refused(409, "removal is already in progress"))
    await remove(engine, "hd-x")
    assert engine.refusals == []
    with pytest.raises(Refused):
        await remove(Meanwhile(Refused(500, "the disk is full")), "hd-x")
