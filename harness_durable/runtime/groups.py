"""Running one task with companions, and getting one exception out of it instead of a group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from harness_durable.errors import (
    HarnessDurableError,
    KeeperGone,
    StaleEpoch,
    StorageError,
    WriterFenced,
)

T = TypeVar("T")

_WEIGHT: tuple[type[BaseException], ...] = (
    WriterFenced,
    StaleEpoch,
    StorageError,
    KeeperGone,
    HarnessDurableError,
)
"""The heaviest first: a worker that was superseded must know that, whatever else went wrong meanwhile."""


async def first_of(
    main: Callable[[], Coroutine[Any, Any, T]], *companions: Callable[[], Coroutine[Any, Any, object]]
) -> T:
    """Run ``main`` to its end, with ``companions`` beside it; they are cancelled when it is done, and it is
    cancelled when one of them fails. One that returns early is no matter."""
    answer: list[T] = []

    async def run(scope: anyio.CancelScope) -> None:
        answer.append(await main())
        scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for companion in companions:
                tasks.start_soon(companion)
            tasks.start_soon(run, tasks.cancel_scope)
    except BaseExceptionGroup as group:
        error = heaviest(group)
        if not (answer and isinstance(error, KeeperGone)):  # gone once all was said: no matter
            raise error from group
    return answer[0]


@asynccontextmanager
async def beside() -> AsyncGenerator[TaskGroup]:
    """Tasks beside a body, cancelled when it ends. What the body raises comes out as it was raised, even if
    it is a group; if a task fails, the body is cancelled and the heaviest failure comes out."""
    raised: list[BaseException] = []
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except BaseException as error:
                raised.append(error)
                raise
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if raised and not isinstance(raised[0], anyio.get_cancelled_exc_class()):
            raise raised[0] from None
        raise heaviest(group) from group


def heaviest(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception of a group that decides what happens next; any that is not ours comes before all."""
    flat = _flat(group)
    for error in flat:
        if not isinstance(error, HarnessDurableError):
            return error
    return min(flat, key=_rank)


def _rank(error: BaseException) -> int:
    return next((place for place, kind in enumerate(_WEIGHT) if isinstance(error, kind)), len(_WEIGHT))


def _flat(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found.extend(_flat(cast(BaseExceptionGroup[BaseException], error)))
        else:
            found.append(error)
    return found
