"""LangGraph's savers, without a graph around them: put a checkpoint, get it back. 16 connections."""

# pyright: basic, reportMissingImports=false
# It runs in the environment of the peer, which ours does not have.

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import Any

from common import STEPS, Work, repeated, result_of, serve
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6


async def saver(stack: AsyncExitStack, store: str) -> Any:
    kind, _, place = store.partition(":")
    if kind == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(place))
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = AsyncConnectionPool(store, min_size=16, max_size=16, kwargs=options, open=False)
    return AsyncPostgresSaver(await stack.enter_async_context(pool))


async def opened(stack: AsyncExitStack, store: str, size: int) -> dict[str, Work]:
    kept = await saver(stack, store)
    await kept.setup()
    result = result_of(size)
    threads: dict[int, tuple[Any, int]] = {}

    async def step(number: int) -> None:
        config, done = threads.get(number, (None, STEPS))
        if done >= STEPS:
            config, done = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}, 0
        done += 1
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=done))
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"log": result}, {"log": str(done)}
        written = await kept.aput(config, checkpoint, {"source": "loop", "step": done}, {"log": str(done)})
        found = await kept.aget_tuple(written)
        assert found.checkpoint["channel_values"]["log"] == result
        threads[number] = written, done

    return {"step": repeated(step)}


if __name__ == "__main__":
    serve(opened)
