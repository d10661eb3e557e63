"""One task with companions, and one exception out of many."""

from __future__ import annotations

import anyio
import pytest

from harness_durable.errors import (
    HarnessDied,
    KeeperGone,
    StaleEpoch,
    StorageUnavailable,
    WriterFenced,
)
from harness_durable.runtime.groups import first_of, heaviest

FENCED = WriterFenced("s", 1, 2)
GONE = KeeperGone("its keeper is gone; recover the session")
DIED = HarnessDied(1, "")


async def test_the_answer_of_the_main_task_ends_its_companions() -> None:
    ended: list[str] = []

    async def main() -> str:
        await anyio.lowlevel.checkpoint()
        return "answer"

    async def companion() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("companion")

    assert await first_of(main, companion, companion) == "answer"
    assert ended == ["companion"] * 2


async def test_a_companion_that_ends_early_is_no_matter() -> None:
    returned = anyio.Event()

    async def companion() -> None:
        returned.set()

    async def main() -> str:
        await returned.wait()
        await anyio.lowlevel.checkpoint()
        return "answer"

    assert await first_of(main, companion) == "answer"


async def test_a_companion_that_fails_ends_the_main_task() -> None:
    async def main() -> str:
        await anyio.sleep_forever()
        return "never"

    async def companion() -> None:
        raise DIED

    with pytest.raises(HarnessDied) as failure:
        await first_of(main, companion)
    assert failure.value is DIED


async def test_a_keeper_that_leaves_when_all_was_said_does_not_take_the_answer() -> None:
    said = anyio.Event()

    async def main() -> str:
        said.set()
        return "answer"

    async def companion() -> None:
        await said.wait()
        raise GONE

    assert await first_of(main, companion) == "answer"


async def test_being_superseded_counts_even_when_all_was_said() -> None:
    said = anyio.Event()

    async def main() -> str:
        said.set()
        return "answer"

    async def companion() -> None:
        await said.wait()
        raise FENCED

    with pytest.raises(WriterFenced):
        await first_of(main, companion)


async def test_of_several_failures_one_comes_out_with_the_others_as_its_cause() -> None:
    both = anyio.Event()

    async def main() -> str:
        await both.wait()
        raise GONE

    async def companion() -> None:
        both.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise FENCED

    with pytest.raises(WriterFenced) as failure:
        await first_of(main, companion)
    assert isinstance(failure.value.__cause__, BaseExceptionGroup)


async def test_a_cancelled_caller_is_cancelled_and_nothing_goes_on() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("one")

    begun = anyio.Event()

    async def main() -> None:
        begun.set()
        await forever()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first_of, main, forever)
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught and ended == ["one"] * 2


@pytest.mark.parametrize(
    ("errors", "decides"),
    [
        ([DIED, GONE, FENCED], FENCED),
        ([GONE, StaleEpoch(1, 2)], None),
        ([DIED, StorageUnavailable("away; wait")], None),
        ([DIED, GONE], GONE),
        ([DIED], DIED),
    ],
)
def test_what_decides_what_happens_next(errors: list[Exception], decides: Exception | None) -> None:
    nested = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", errors[1:] or errors), errors[0]])
    assert heaviest(nested) is (decides or errors[-1])


def test_an_error_that_is_not_ours_comes_before_all() -> None:
    bug, stop = ZeroDivisionError(), KeyboardInterrupt()
    assert heaviest(BaseExceptionGroup("", [FENCED, bug])) is bug
    assert heaviest(BaseExceptionGroup("", [BaseExceptionGroup("", [DIED, stop])])) is stop
