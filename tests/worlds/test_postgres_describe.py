"""What ``doctor`` is told of a server, without one."""

from __future__ import annotations

import pytest

from harness_durable import clock
from harness_durable_worlds._postgres_clock import ServerClock
from harness_durable_worlds._postgres_describe import describe
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_url import target_of

SAFE = ("18.1", "on", "on", "on", False)


def warnings(row: tuple[str | bool, ...] = SAFE, *, notified: bool = True, ahead: float = 0.0) -> str:
    store = Store(target_of("postgresql://me:secret@db/agents", {}), {})
    found = describe(store, row, notified=notified, ahead=ahead)
    assert "secret" not in repr(found)
    return "\n".join(found.warnings)


def test_a_server_that_keeps_what_it_says_is_no_reason_to_warn() -> None:
    assert warnings(ahead=1.9) == ""


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (("18.1", "off", "on", "on", False), "synchronous_commit is off"),
        (("18.1", "on", "off", "on", False), "fsync is off"),
        (("18.1", "on", "on", "off", False), "full_page_writes is off"),
        (("18.1", "on", "on", "on", True), "is a standby"),
    ],
)
def test_each_thing_that_a_server_does_not_promise_is_told(row: tuple[str | bool, ...], word: str) -> None:
    assert word in warnings(row)


@pytest.mark.parametrize(("ahead", "words"), [(7.26, "7.3 s ahead of"), (-90.0, "90.0 s behind")])
def test_clocks_that_are_apart_are_told_with_their_distance(ahead: float, words: str) -> None:
    assert f"the server's clock is {words} this host's" in warnings(ahead=ahead)


def test_how_far_the_servers_clock_is_ahead_is_known_from_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, now = ServerClock(), [1_000_000, 50.0]
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])
    monkeypatch.setattr(clock, "monotonic", lambda: now[1])
    assert found.ahead() == 0.0
    found.met(1_004_000)
    now[:] = [1_010_000, 60.0]
    assert found.ahead() == pytest.approx(4.0)
    assert found.translate(5_000) == 9_000
