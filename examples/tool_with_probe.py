"""A tool that can be asked whether it happened, so that nothing stays unknown after a crash.

python examples/tool_with_probe.py
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from _provider import calls, folder, kill_worker_after, model, says

from harness_durable import NOT_HAPPENED, Durable, TurnResult, tool

ORDERS = Path("orders")


def find_order(article: str) -> object:
    """The probe gets the same arguments. It returns the result, NOT_HAPPENED, or UNSURE."""
    found = ORDERS / article
    return f"order placed: {found.read_text()}" if found.exists() else NOT_HAPPENED


@tool(replay="never", probe=find_order)
def place_order(article: str) -> str:
    """Order an article. An order cannot be taken back."""
    ORDERS.mkdir(exist_ok=True)
    (ORDERS / article).write_text(f"1 {article}")
    if len(sys.argv) > 1:
        time.sleep(600)  # the order is placed; the worker will not live to tell
    return f"order placed: 1 {article}"


async def work() -> TurnResult:
    """What every worker runs."""
    async with Durable.open() as durable:
        agent = durable.agent("claude-code", tools=[place_order])
        session = await agent.session("shopping")
        turn = await session.send("Order one kettle.", message_id="m-1")
        return await turn.result()


def main() -> None:
    with (
        folder(),
        model(calls("mcp__durable__place_order", article="kettle"), says("The kettle is ordered.")),
    ):
        kill_worker_after(ORDERS / "kettle", __file__)
        print("The first worker was killed right after the order was placed.")

        result = asyncio.run(work())
        print(f"The same turn: {result.status}, {len(result.unknown)} call(s) unknown: the probe knew.")
        print(f"The agent: {result.text}")
        print(f"Orders: {[order.read_text() for order in ORDERS.iterdir()]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work())
    else:
        main()
