"""A clock in the test's hands, and a front door behind which everything is ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from harness_durable import clock, registry
from harness_durable.runtime.api import Durable
from tests.runtime.kit import HandClock, Harness, Place, Store

Front = Callable[..., AbstractAsyncContextManager[Durable]]
"""``front(store, harness, place, **settings)``: what ``Durable.open`` gives, with these behind it."""


@pytest.fixture
def hands() -> Generator[HandClock]:
    """The only clock, which moves only when told to."""
    found = HandClock()
    with clock.use(found):
        yield found


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    @asynccontextmanager
    async def opened(
        store: Store, harness: Harness | None = None, place: Place | None = None, **settings: Any
    ) -> AsyncGenerator[Durable]:
        harness, place = harness or Harness(), place or Place()

        async def open_world(url: str, app: str) -> Store:
            return store

        def load(room: registry.Room, name: str) -> Any:
            known: dict[str, Any] = {
                "world": open_world,
                "adapter": lambda: harness,
                "sandbox": lambda run_dir: place,  # pyright: ignore[reportUnknownLambdaType]
            }
            return known[room]

        monkeypatch.setattr(registry, "load", load)
        flags: dict[str, Any] = {"upstream_url": "http://127.0.0.1:9", "files": "kept", **settings}
        async with Durable.open("memory:", **flags) as durable:
            yield durable

    return opened
