"""The judge is judged: a sound experiment passes, and each way of spoiling it is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness_durable import clock
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.state import Session
from harness_durable.testing.provider.policies import Steps
from tests.crash import invariants
from tests.crash.invariants import Expectation, examine
from tests.crash.scene import KEY, MESSAGE, Scene, wait_for
from tests.crash.waits import EVERY, Waits

STEER = "one more thing"

SPOILED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "lost": (lambda body: body.replace(STEER.encode(), b"-"), "is in the conversation 0 times"),
    "told twice": (lambda body: body.replace(STEER.encode(), f"{STEER} {STEER}".encode()), "2 times"),
    "unanswered": (lambda body: body.replace(b'"tool_use_id":"', b'"tool_use_id":"x', 1), "have the results"),
    "too early": (
        lambda body: body.replace(STEER.encode(), b"-").replace(
            b"do the steps", f"{STEER} do the steps".encode()
        ),
        "is not in its place",
    ),
    "other effort": (lambda body: body.replace(b'"max_tokens":', b'"max_tokens":1'), "I12"),
    "other tools": (lambda body: body.replace(b'"name":"Edit"', b'"name":"Eddy"'), "I12"),
}


async def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scene(tmp_path, "sqlite", policy=Steps(steps=2, pair_every=0, nap=1.0)) as scene:
        worker = scene.worker()
        wait_for(scene.has_effects, "the first effect")
        assert scene.client("steer", STEER).wait(timeout=60) == 0, scene.tail()
        assert worker.wait(timeout=120) == 0, scene.tail()
        assert (await examine(scene)).violations == [], scene.tail()

        for name, (spoil, sentence) in SPOILED.items():
            _spoil_the_last_request(monkeypatch, spoil)
            found = (await examine(scene)).violations
            assert any(sentence in line for line in found), (name, found)
        monkeypatch.undo()

        found = (await examine(scene, Expectation(once=("s0a",)))).violations
        assert found == ["I1: the effect s1a happened 1 times"]
        found = (await examine(scene, Expectation(ends={MESSAGE: ("cancelled",)}))).violations
        assert [line[:2] for line in found] == ["I8"]
        (scene.workspace / "note").write_text(KEY)
        found = (await examine(scene)).violations
        assert [line[:3] for line in found] == ["I13", "I11"] and "path='note'" in found[0]
        assert found[1] == "I11: the provider's key is in work/note"


def test_a_wait_ends_with_an_owner_that_is_alive_and_holds_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now, alive = 0.0, {1, 2}
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    waits = Waits(Path("nowhere"), 0, "nobody", "crash", "app", lambda: alive)
    looks: list[tuple[list[tuple[object, ...]], set[int]]] = [
        ([("a", 1, True), ("b", None, False)], {1, 2}),
        ([("a", 1, False), ("b", 7, True)], {1, 2}),  # a lease that ended; a process that is dead
        ([("a", 2, True)], {2}),
        ([("a", 2, True), ("c", None, False)], {2}),
        ([("a", 2, True), ("c", None, False)], {2}),
    ]
    for rows, registered in looks:
        now += 10.0
        waits.seen(rows, registered)
    assert waits.all() == [(20.0 + EVERY, "b"), (10.0 + EVERY, "c"), (10.0 + EVERY, "a")]
    assert (waits.due, waits.busy, waits.most, waits.looks) == ({"a", "c"}, {2}, 1, 5)

    alive.clear()  # and what is started in their place takes its time to come up
    for owner in (2, None):
        now += 10.0
        waits.seen([("c", owner, owner == 2)], {2})
    alive.add(3)
    now += 10.0
    waits.seen([("c", None, False)], {3})
    assert waits.all()[0] == (20.0 + EVERY, "c")
    assert waits.nobody == 20.0


def _spoil_the_last_request(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]) -> None:
    """Only the last one, so that a change of the agent shows, too."""

    async def spoiled(reader: Reader, state: Session, call: str, field: str) -> bytes:
        body = await body_of(reader, state, call, field)
        return spoil(body) if call == list(state.model_calls)[-1] else body

    monkeypatch.setattr(invariants, "body_of", spoiled)
