"""Turns of real harnesses in containers: they survive what they survive elsewhere, and deaths of containers.

``HARNESS_DURABLE_CRASH=full``: every crash point with every death."""

from __future__ import annotations

import http.server
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_durable import events as ev
from harness_durable.crashpoints import DEATHS
from harness_durable.journal import Reader
from harness_durable.testing.provider.policies import Script
from harness_durable.testing.provider.reply import ToolUse, say
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import EFFECTS, FULL, SESSION, Scene, dies_at, goes_on_without_its_worker, wait_for
from tests.crash.test_adapters import LONG, does, happened
from tests.crash.test_adapters import shell as others_shell
from tests.crash.test_matrix import RECOVERY_POINTS, TURN_POINTS
from tests.docker.engine_kit import IMAGE, Engine, given, running

ADAPTERS = ("claude-code", "codex", "opencode", "pi")
SHORT = {"worker": "tool.released", "harness": "tool.effect_done", "machine": "model.completed"}
QUICK = ("claude-code", "codex")

CASES = [
    pytest.param(adapter, point, death, id=f"{adapter}-{point}-{death}")
    for number, adapter in enumerate(ADAPTERS)
    for death in (DEATHS if FULL or adapter in QUICK else (DEATHS[number % 2],))
    for point in ((*TURN_POINTS, *RECOVERY_POINTS) if FULL else (SHORT[death],))
]


@pytest.fixture(autouse=True)
def everything_in_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_DURABLE_SANDBOX", "docker")
    monkeypatch.setenv("HARNESS_DURABLE_SANDBOX_OPTIONS", f"image={IMAGE}")


class Boxed(Scene):
    """A container has nothing but its workspace to leave an effect in."""

    def _effects(self) -> Path:
        return self.workspace / EFFECTS


def scene_of(root: Path, adapter: str, policy: Script | None = None) -> Scene:
    """On a workspace of an ordinary user."""
    scene = Boxed(root, "sqlite", adapter=adapter, policy=policy)
    given(scene.workspace)
    return scene


def shell(adapter: str, token: str, nap: float = 0.0) -> ToolUse:
    """The effect, and a nap."""
    use = others_shell(adapter, token, nap)
    return ToolUse("Bash", use.input) if adapter == "claude-code" else use


async def ends(scene: Scene) -> list[ev.LifeEnded]:
    world = await scene.opened()
    try:
        reader = Reader(world, SESSION)
        return [e.event async for e in reader.entries() if isinstance(e.event, ev.LifeEnded)]
    finally:
        await world.aclose()


@pytest.mark.parametrize(("adapter", "point", "death"), CASES)
async def test_a_turn_survives(tmp_path: Path, engine: Engine, adapter: str, point: str, death: str) -> None:
    with scene_of(tmp_path, adapter) as scene:
        dies_at(scene, point, death)
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene)
        assert report.violations == [], scene.tail()
        assert report.status == "completed"


@pytest.mark.parametrize("adapter", ADAPTERS if FULL else QUICK[:1])
async def test_a_command_of_ten_seconds_survives_its_worker(
    tmp_path: Path, engine: Engine, adapter: str
) -> None:
    policy = Script((does(shell(adapter, "s0a", 10.0)), say("slept")))
    with scene_of(tmp_path, adapter, policy) as scene:
        goes_on_without_its_worker(scene)
        report = await examine(scene, Expectation(once=("s0a",)))
        assert (report.violations, report.lives, report.unknown) == ([], 1, 0), scene.tail()


TAKES = {"killed": "claude-code", "removed": "codex", "stopped": "claude-code"}
WAYS = {
    "killed": "its container was killed",
    "removed": "its container was removed by somebody",
    "stopped": "its container was stopped",
}


@pytest.mark.parametrize(
    ("way", "adapter"),
    [(way, adapter) for way in WAYS for adapter in (ADAPTERS if FULL else (TAKES[way],))],
)
async def test_the_end_of_a_container_in_mid_turn_is_told_as_it_was(
    tmp_path: Path, engine: Engine, adapter: str, way: str
) -> None:
    policy = Script((does(shell(adapter, "slow", LONG)), say("on I went")))
    with scene_of(tmp_path, adapter, policy) as scene:
        worker = scene.worker()
        happened(scene, "slow")
        [name] = engine.names()
        with engine.api() as api:
            if way == "killed":
                api.kill(name)
            elif way == "removed":
                api.remove_container(name, force=True)
            else:
                api.stop(name)
        assert worker.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("slow",)))
        assert (report.violations, report.lives, report.unknown) == ([], 2, 1), scene.tail()
        lost, settled = await ends(scene)
        assert lost.why in (way, "killed" if way == "removed" else way)  # the one is done by the other
        assert WAYS[lost.why] in lost.reason
        assert settled.reason == "the turn was settled"


async def test_a_harness_that_is_killed_for_want_of_memory_is_told_so(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small commands fill the memory, so that the harness is the largest that can be killed."""
    monkeypatch.setenv("HARNESS_DURABLE_SANDBOX_OPTIONS", f"image={IMAGE};memory=500m")
    fill = shell("claude-code", "full")
    hold = "python3 -c 'x = b\"1\" * (60 << 20); import time; time.sleep(30)' &"
    fill.input["command"] = f"{fill.input['command']}; for i in 1 2 3 4 5 6 7 8; do {hold} done; wait"
    with scene_of(tmp_path, "claude-code", Script((does(fill), say("on I went")))) as scene:
        assert scene.worker().wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("full",)))
        assert (report.violations, report.lives, report.unknown) == ([], 2, 1), scene.tail()
        lost = (await ends(scene))[0]
        assert (lost.why, lost.code) == ("oom", -signal.SIGKILL), lost
        assert lost.oom_kills > 0
        assert "memory of its sandbox was used up" in lost.reason


FETCH = "import urllib.request as web; print(web.urlopen('http://localhost:{}/').read().decode())"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"fetched")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody wants to know."""


@pytest.fixture
def page() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("adapter", ADAPTERS if FULL else QUICK[:1])
async def test_a_command_reaches_what_its_session_allows_and_the_harness_its_model(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, page: int, adapter: str
) -> None:
    """The harness has the same proxy in its environment, and must not ask it for its model."""
    monkeypatch.setenv("HARNESS_DURABLE_SANDBOX_OPTIONS", f"image={IMAGE};allow_private=localhost:{page}")
    fetch = shell(adapter, "got")
    key = "cmd" if adapter == "codex" else "command"
    fetch.input[key] = (
        f'{fetch.input[key]}; env -u no_proxy -u NO_PROXY python3 -c "{FETCH.format(page)}" > page'
    )
    with scene_of(tmp_path, adapter, Script((does(fetch), say("fetched")))) as scene:
        assert scene.worker().wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("got",)))
        assert (report.violations, report.unknown) == ([], 0), scene.tail()
        assert (scene.workspace / "page").read_text() == "fetched\n"


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine for one test, which may restart it."""
    with running() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        yield engine


async def test_a_turn_goes_on_when_the_engine_is_back(tmp_path: Path, other: Engine) -> None:
    """While it is away nothing can be said or done; no tool gets that for its result."""
    policy = Script((does(shell("claude-code", "slow", LONG)), say("on I went")))
    with scene_of(tmp_path, "claude-code", policy) as scene:
        worker = scene.worker()
        happened(scene, "slow")
        other.stop()
        wait_for(lambda: scene.said("cannot be reached"), "the worker to find that the engine is away")
        assert worker.poll() is None, scene.tail()
        other.start()
        assert worker.wait(timeout=120) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("slow",)))
        assert (report.violations, report.lives, report.unknown) == ([], 2, 1), scene.tail()
        lost = (await ends(scene))[0]
        assert lost.why == "engine_restarted"
        assert other.names() == []


async def test_files_that_are_made_anew_belong_to_the_harness(tmp_path: Path, engine: Engine) -> None:
    """And so does an empty folder that we make for a session."""
    write = shell("claude-code", "one")
    write.input["command"] = f"{write.input['command']}; mkdir -p a; echo x > a/made"
    append = shell("claude-code", "two")
    append.input["command"] = f"{append.input['command']}; echo y >> a/made"
    turns = (does(write), say("made"), does(append), say("appended"))
    with scene_of(tmp_path, "claude-code", Script(turns)) as scene:
        assert scene.worker().wait(timeout=120) == 0, scene.tail()
        shutil.rmtree(scene.workspace)
        assert scene.finish("next") == 0, scene.tail()
        assert (scene.workspace / "a/made").read_text() == "x\ny\n"
        assert {path.stat().st_uid for path in scene.workspace.rglob("*")} == {1000}
        report = await examine(scene, Expectation(once=("one", "two")))
        assert report.violations == [], scene.tail()
