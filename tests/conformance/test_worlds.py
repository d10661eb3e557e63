"""Every World keeps every promise. One test for each check, so that a failure names what is broken; and no
check leaves anything in the store or beside it. Of a World that cannot be hurt nobody knows whether it keeps
W10 and W12, so that it fails here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness_durable.testing.worlds import PROMISES, Check, Untried, check_promise, run_check
from harness_durable.world import Record, RowUpdate
from harness_durable.worlds import open_world
from tests.worlds import subjects

CHECKS = [
    pytest.param(check, id=f"{promise.id}-{getattr(check, '__name__', '')}")
    for promise in PROMISES
    for check in promise.checks
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("world", subjects.WAYS)
async def test_a_world_keeps_its_promise(world: str, check: Check, tmp_path: Path) -> None:
    """C062 (W6, W7), C071 (W3)"""
    seen = await run_check(check, subjects.subject(world, tmp_path))
    assert seen
    assert not isinstance(seen, Untried), seen
    assert subjects.LEFT[world](tmp_path) == subjects.EMPTY[world]
    assert not [path for path in os.listdir(tmp_path) if "-check-" in path]  # noqa: PTH208


@pytest.mark.parametrize("world", subjects.WAYS)
async def test_to_hurt_a_world_hurts_no_app_that_uses_it(world: str, tmp_path: Path) -> None:
    subject = subjects.subject(world, tmp_path)
    mine = await open_world(subject.url, "mine")
    try:
        records = [Record(f"r{n}", "note", 1, b"note %d" % n) for n in range(8)]
        await mine.create("s", records[:4], RowUpdate("idle", None))
        for promise in PROMISES:
            if promise.id in ("W10", "W12"):
                result = await check_promise(promise, subject)
                assert (result.ok, result.tried) == (True, True), result.detail
        assert await mine.append("s", expected_head=4, epoch=0, records=records[4:]) == 8
    finally:
        await mine.aclose()
    again = await open_world(subject.url, "mine")
    try:
        assert [stored.id for stored in await again.read("s")] == [record.id for record in records]
    finally:
        await again.aclose()
