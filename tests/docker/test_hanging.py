"""An engine that takes questions and gives no answer: nobody who has to stop waits for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from harness_durable.errors import SandboxUnavailable
from harness_durable_sandboxes.docker import DockerSandbox
from harness_durable_sandboxes.docker import engine as engines
from harness_durable_sandboxes.docker import sandbox as sandboxes
from tests.docker.engine_kit import IMAGE, given
from tests.docker.life_kit import spec
from tests.runtime.kit import until


class Hanging:
    """``asked``: how many connections it has. ``answers`` is given to each, if it is set."""

    def __init__(self, path: Path) -> None:
        self.asked, self.answers = 0, threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self._held.append(self._listener.accept()[0])
            except OSError:
                return
            self.asked += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in self._held:
            one.close()


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    engine = Hanging(tmp_path / "s")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    monkeypatch.setattr(engines, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(sandboxes, "TIDY_SECONDS", 0.1)
    yield engine
    engine.close()
    for thread in [one for one in threading.enumerate() if one.name == "docker"]:
        assert thread.daemon, "the end of the process would wait for it"
        thread.join(20)


async def cancelled(hanging: Hanging, work: Callable[[], Awaitable[object]]) -> None:
    """As soon as it has asked. Fails if it does not come back then."""
    asked = hanging.asked

    async def has_asked() -> bool:
        return hanging.asked > asked + 1  # it knocks first

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def do() -> None:
                await work()

            tasks.start_soon(do)
            await until(has_asked)
            tasks.cancel_scope.cancel()


async def test_who_has_to_stop_does_not_wait_for_it(tmp_path: Path, hanging: Hanging) -> None:
    sandbox = DockerSandbox(tmp_path / "run", {"image": IMAGE})
    await cancelled(hanging, sandbox.list_lives)
    await cancelled(hanging, lambda: sandbox.reap(sandbox.locate("L1")))


async def test_a_start_that_is_given_up_leaves_what_a_later_worker_finds(
    tmp_path: Path, hanging: Hanging
) -> None:
    sandbox, workspace = DockerSandbox(tmp_path / "run", {"image": IMAGE}), tmp_path / "work"
    workspace.mkdir()
    await cancelled(hanging, lambda: sandbox.start(spec(given(workspace), "cat", life="L1"), 1))
    assert (tmp_path / "run/docker/L1/origin.json").exists()


async def test_a_leave_that_has_its_time_is_over_when_that_is(tmp_path: Path, hanging: Hanging) -> None:
    sandbox = DockerSandbox(tmp_path / "run", {"image": IMAGE})
    with anyio.fail_after(20):
        with anyio.move_on_after(0.1, shield=True) as limit:
            await sandbox.reap(sandbox.locate("L1"))
    assert limit.cancelled_caught


async def test_an_engine_that_is_slow_finishes_what_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a container that is being made is there to be removed."""
    monkeypatch.setattr(engines, "GRACE_SECONDS", 20.0)
    engine, begun, enough, done = engines.Engine(), threading.Event(), threading.Event(), list[str]()

    def slow(_: object) -> None:
        begun.set()
        enough.wait(20)
        done.append("made")

    monkeypatch.setattr(engine, "ask", slow)

    async def has_begun() -> bool:
        return begun.is_set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.call, slow)
        await until(has_begun)
        tasks.cancel_scope.cancel()
        enough.set()
    assert done == ["made"]


async def test_an_answer_and_an_error_reach_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines.Engine()

    def answers(_: object) -> str:
        return "an answer"

    monkeypatch.setattr(engine, "ask", answers)
    assert await engine.call(answers) == "an answer"
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    with pytest.raises(SandboxUnavailable, match="cannot be reached"):
        await engines.Engine().call(lambda api: api.info())
