"""Two things at once, with each of the other adapters: a death together with a steer, a stop, a compaction, a
batch, a person who thinks, or a slow provider.

Each story decides from the conversation alone, so the replies also say what the model was able to know.
``HARNESS_DURABLE_CRASH=full``: every death, on every World, and OpenCode, which takes
seven seconds for a start, in every story.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import anyio
import msgspec
import pytest

from harness_durable.crashpoints import DEATHS
from harness_durable.journal import Reader
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.messages import Request, tool_calls
from harness_durable.testing.provider.policies import Script
from harness_durable.testing.provider.reply import Hang, Reply, Text, ToolUse, Usage, say
from tests.crash import scene as scenes
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import FULL, MESSAGE, SESSION, Scene, wait_for
from tests.crash.test_adapters import LONG, adapters, does, happened, shell
from tests.crash.test_people import asked


class Kind(msgspec.Struct, frozen=True):
    """What the stories need to know of an adapter. ``compacts``: settings with which a conversation is summed
    up once the provider says that ``full`` tokens were read."""

    full: int
    compacts: Mapping[str, str] = {}


_PI = '{"compaction": {"reserveTokens": 50000, "keepRecentTokens": 20}}'
KINDS = {
    "codex": Kind(250_000),
    "opencode": Kind(95_000, {"HARNESS_DURABLE_OPENCODE_CONTEXT": "100000"}),
    "pi": Kind(195_000, {"HARNESS_DURABLE_PI_SETTINGS": _PI}),
}
WORLDS = scenes.WORLDS if FULL else ("sqlite",)
SUMMARY = "SUMMARY of it all"
GO = "go"
"""A file in the workspace."""

pytestmark = pytest.mark.parametrize("world", WORLDS)


def deaths(short: str) -> pytest.MarkDecorator:
    """All of them, or the one that a short run has."""
    return pytest.mark.parametrize("death", DEATHS if FULL else (short,))


def held(adapter: str, token: str) -> ToolUse:
    """The effect, and no end before somebody says so, and a second has passed in which it may be heard of."""
    call = shell(adapter, token)
    rest = f"; while [ ! -e {GO} ]; do sleep 0.1; done; sleep 1"
    command = {name: f"{call.input[name]}{rest}" for name in ("cmd", "command") if name in call.input}
    return msgspec.structs.replace(call, input={**call.input, **command})


# ----------------------------------------------------------------------------------------- steers


LATE = [("codex", False), ("codex", True), ("opencode", False), ("pi", False), ("pi", True)]


@deaths("harness")
@pytest.mark.parametrize(("adapter", "late"), list(product(KINDS, (False, True))) if FULL else LATE)
async def test_a_steer_that_no_model_has_seen_is_given_after_a_death(
    tmp_path: Path, world: str, adapter: str, death: str, *, late: bool
) -> None:
    turn = (does(shell(adapter, "task", 4.0)), does(shell(adapter, "next", 1.0)), say("both are done"))
    with Scene(tmp_path, world, policy=Script(turn), adapter=adapter) as scene:
        worker = scene.worker()
        happened(scene, "task")
        if late:
            scene.die(worker, death)
        assert scene.client("steer", "one more thing").wait(timeout=60) == 0, scene.tail()
        if not late:
            scene.die(worker, death)
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("task", "next")))
        assert report.violations == [], scene.tail()
        assert (report.turns, report.steers, report.lost) == ({MESSAGE: "completed"}, 1, 0)
        assert report.text == "both are done"


@adapters("codex", "pi")
@deaths("machine")
async def test_a_steer_that_the_model_has_seen_is_not_given_again(
    tmp_path: Path, world: str, adapter: str, death: str
) -> None:
    turn = (does(held(adapter, "task")), does(shell(adapter, "steer", 4.0)), say("both are done"))
    with Scene(tmp_path, world, policy=Script(turn), adapter=adapter) as scene:
        worker = scene.worker()
        happened(scene, "task")
        assert scene.client("steer", "one more thing").wait(timeout=60) == 0, scene.tail()
        (scene.workspace / GO).touch()
        happened(scene, "steer")
        scene.die(worker, death)
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("task", "steer")))
        assert report.violations == [], scene.tail()
        assert (report.turns, report.steers, report.model_calls) == ({MESSAGE: "completed"}, 1, 3)


def question_under_way(scene: Scene, number: int) -> None:
    """The model was asked so often, and has not answered the last time."""
    wait_for(lambda: scene.ledger.exists() and Ledger.read(scene.ledger).open() == [number], "a question")


@adapters("codex", "pi")
@deaths("worker")
async def test_a_steer_at_the_last_answer_is_heard(
    tmp_path: Path, world: str, adapter: str, death: str
) -> None:
    """In its own part of the turn; whoever dies in there changes nothing."""
    last = Reply((Text("the task is done"),), start_delay=3.0)
    turn = (does(shell(adapter, "task")), last, does(shell(adapter, "steer", 3.0)), say("all is done"))
    with Scene(tmp_path, world, policy=Script(turn), adapter=adapter) as scene:
        worker = scene.worker()
        question_under_way(scene, 2)
        assert scene.client("steer", "one more thing").wait(timeout=60) == 0, scene.tail()
        happened(scene, "steer")
        scene.die(worker, death)
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("task", "steer")))
        assert report.violations == [], scene.tail()
        assert (report.turns, report.steers, report.text) == ({MESSAGE: "completed"}, 1, "all is done")


# ------------------------------------------------------------------------------------------ stops


@adapters("codex", "pi")
async def test_a_stop_between_two_workers_is_obeyed_by_the_one_that_attaches(
    tmp_path: Path, world: str, adapter: str
) -> None:
    turn = (does(shell(adapter, "slow", LONG)), say("this is not asked for"))
    with Scene(tmp_path, world, policy=Script(turn), adapter=adapter) as scene:
        worker = scene.worker()
        happened(scene, "slow")
        scene.die(worker, "worker")
        assert scene.client("stop").wait(timeout=60) == 0, scene.tail()
        assert scene.finish(wanted=1) == 1, scene.tail()
        report = await examine(scene, Expectation(once=("slow",), ends={MESSAGE: ("cancelled",)}))
        assert report.violations == [], scene.tail()
        assert (report.lives, report.model_calls) == (1, 1)


# ------------------------------------------------------------------------------------ compactions


def fills_its_window(adapter: str) -> str:
    return f"{__name__}:{adapter}_model"


def _model(adapter: str, request: Request) -> Reply:
    """Three calls, of which the last one is said to have filled the window; a summary; one more call."""
    if _sums_up(request):
        return say(SUMMARY)
    told, compacted = {str(call.input) for call in tool_calls(request)}, SUMMARY in str(request.body)
    if compacted and any("nine" in one for one in told):
        return say("the end")
    if compacted:
        return Reply((shell(adapter, "nine"),))
    number = len(told)
    if number > 3:
        return say("nobody sums this up")
    usage = Usage(KINDS[adapter].full if number > 1 else 1000, 10)
    return Reply((shell(adapter, f"c{number}"),), usage=usage)


def codex_model(request: Request) -> Reply:
    return _model("codex", request)


def opencode_model(request: Request) -> Reply:
    return _model("opencode", request)


def pi_model(request: Request) -> Reply:
    return _model("pi", request)


def _sums_up(request: Request) -> bool:
    """Codex offers its tools with the question for a summary, and says what it is."""
    about = str(request.body.get("client_metadata"))
    return not request.tools or '"request_kind":"compaction"' in about


# The fourth question is for the summary, the fifth is the first that begins with it.
AROUND = (
    "model.completed:3",
    "model.requested:4",
    "model.completed:4",
    "model.requested:5",
    "model.completed:5",
)
SUMMING = [
    *((adapter, "model.completed:4", "machine") for adapter in KINDS),
    *((adapter, "model.requested:5", "machine") for adapter in ("codex", "pi")),
    ("opencode", "model.requested:4", "worker"),  # a worker attaches while it sums up
]


@pytest.mark.parametrize(
    ("adapter", "point", "death"), list(product(KINDS, AROUND, DEATHS)) if FULL else SUMMING
)
async def test_a_compaction_in_a_turn_is_paid_once_whoever_dies_around_it(
    tmp_path: Path, world: str, adapter: str, point: str, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KINDS[adapter].compacts.items():
        monkeypatch.setenv(name, value)
    with Scene(tmp_path, world, policy=fills_its_window(adapter), adapter=adapter) as scene:
        crash = {"HARNESS_DURABLE_CRASH_AT": point, "HARNESS_DURABLE_CRASH_DEATH": death}
        assert scene.worker(**crash).wait(timeout=120) == -signal.SIGKILL, scene.tail()
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("c0", "c1", "c2", "nine")))
        assert [one for one in report.violations if "the message" not in one] == [], scene.tail()
        assert (report.text, report.unknown) == ("the end", 0)
        assert report.model_calls - report.lost == 6
        assert Ledger.read(scene.ledger).paid_twice() == {}


# ---------------------------------------------------------------------------------------- batches


@adapters("codex", "pi")
@deaths("worker")
async def test_a_batch_with_one_slow_call_keeps_what_ended_beside_it(
    tmp_path: Path, world: str, adapter: str, death: str
) -> None:
    """The slow one goes on if its harness does; else it is unknown. What had not begun is done once."""
    slow = shell(adapter, "slow", LONG if death != "worker" else 4.0)
    calls = [shell(adapter, "quick"), ToolUse("durable_effect", {"token": "own"}), slow]
    with Scene(tmp_path, world, policy=Script((does(*calls), say("all of it"))), adapter=adapter) as scene:
        worker = scene.worker()
        for token in ("quick", "own", "slow"):
            happened(scene, token)
        await ended(scene, 2)
        scene.die(worker, death)
        assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("quick", "own", "slow")))
        assert report.violations == [], scene.tail()
        cut = {"completed": 3} if death == "worker" else {"completed": 2, "unknown": 1}
        assert (report.outcomes, report.model_calls) == (cut, 2)


async def ended(scene: Scene, calls: int) -> None:
    """Wait until so many calls have their outcome in the log."""
    world = await scene.opened()
    try:
        with anyio.fail_after(60):
            async for _ in Reader(world, SESSION).follow():
                state = await Reader(world, SESSION).load()
                if sum(not call.open for call in state.tool_calls.values()) >= calls:
                    return
    finally:
        await world.aclose()


@adapters("codex", "pi")
@deaths("harness")
async def test_an_answer_that_comes_after_the_harness_died_is_paid_once(
    tmp_path: Path, world: str, adapter: str, death: str
) -> None:
    slow = Reply((Text("that took long"), shell(adapter, "two")), faults=(Hang(0, 3.0),))
    policy = Script((does(shell(adapter, "one")), slow, say("done")))
    with Scene(tmp_path, world, policy=policy, adapter=adapter) as scene:
        worker = scene.worker()
        question_under_way(scene, 2)
        if death == "harness":
            scene.kill_lives()
            assert worker.wait(timeout=120) == 0, scene.tail()
        else:
            scene.die(worker, death)
            assert scene.finish() == 0, scene.tail()
        report = await examine(scene, Expectation(once=("one", "two")))
        assert report.violations == [], scene.tail()
        assert report.model_calls - report.lost == 3, "an answer was paid again"
        assert report.lost <= (death != "harness"), scene.tail()
        assert death != "harness" or report.lives == 2, scene.tail()


# ----------------------------------------------------------------------------------------- people


@adapters("codex", "pi")
@deaths("machine")
@pytest.mark.parametrize("allow", [True, False], ids=["yes", "no"])
async def test_an_answer_given_by_its_id_while_nobody_works_is_used_by_the_next(
    tmp_path: Path, world: str, adapter: str, death: str, *, allow: bool
) -> None:
    turn = (does(shell(adapter, "asked")), say("somebody has decided"))
    with Scene(tmp_path, world, policy=Script(turn), adapter=adapter) as scene:
        crash = {"HARNESS_DURABLE_CRASH_AT": "permission.asked", "HARNESS_DURABLE_CRASH_DEATH": death}
        assert scene.worker(options=("--ask",), **crash).wait(timeout=120) == -signal.SIGKILL, scene.tail()
        request = await asked(scene)
        assert not scene.has_effects()
        verdict = ("--allow",) if allow else ("--deny", "--reason", "not today")
        assert scene.client("answer", request, *verdict).wait(timeout=60) == 0, scene.tail()
        assert scene.worker(options=("--ask",)).wait(timeout=120) == 0, scene.tail()
        assert await asked(scene) == request, "the request has kept its id, and there is no other"
        report = await examine(scene, Expectation(once=("asked",) if allow else ()))
        assert report.violations == [], scene.tail()
        assert report.outcomes == {"completed" if allow else "not_started": 1}
        assert report.model_calls == 2
