"""How soon the viewer shows a long session: ``python -m bench.viewer [--events 100000] [--rounds 15]``.

Time counts from the navigation to the frame after the first rows, in a headless Chromium on this machine. The
first visit finds a server that has read nothing of the log, and a browser that has nothing of the page. Some
tool outputs have several megabytes, so that a page which fetched bodies would be found out."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, cast

import anyio
from playwright.async_api import BrowserContext, async_playwright

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.payload import pack
from harness_durable.worlds import open_world
from tests.view.logs import entries, long, write

HUGE = 4 << 20
"""Bytes of every thousandth tool output."""

WATCH = """
new MutationObserver((_, watcher) => {
  if (!document.querySelector('.row:not([hidden])')) return;
  watcher.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.shown = performance.now(); }, 0));
}).observe(document, { childList: true, subtree: true });
"""

EMPTY = """
addEventListener('DOMContentLoaded', () =>
  requestAnimationFrame(() => setTimeout(() => { window.shown = performance.now(); }, 0)));
"""

SHOWN = """() => new Promise(done => {
  const look = () => window.shown ? done(window.shown) : setTimeout(look, 5);
  look();
})"""


async def fill(url: str, count: int) -> None:
    """A session of ``count`` events, and the snapshot that whoever drove it left when its last turn ended."""
    log, blobs = long(count), dict[str, bytes]()
    outputs = [place for place, event in enumerate(log) if isinstance(event, ev.ToolCompleted)]
    for number, place in enumerate(outputs[::1000]):
        huge = pack(f"{number} ".encode() * (HUGE // 4))
        blobs |= huge.blobs
        done = cast(ev.ToolCompleted, log[place])
        log[place] = ev.ToolCompleted(done.call, huge.payload, done.source)
    world = await open_world(url)
    try:
        await write(world, "long", log, blobs)
        state = fold.fold(entries(log))
        settled = max(turn.ended_seq for turn in state.turns.values())
        await world.put_snapshot("long", settled, fold.dump(fold.fold(entries(log[:settled]))))
    finally:
        await world.aclose()


async def visit(browser: BrowserContext, address: str) -> tuple[float, int]:
    """Milliseconds to the first rows, and elements on the page once all is loaded."""
    page = await browser.new_page()
    try:
        await page.add_init_script(WATCH)
        await page.goto(f"{address}#/s/long")
        await page.locator(".row").first.wait_for(timeout=60_000)
        shown = await page.evaluate(SHOWN)
        await page.evaluate("() => harnessDurable.rest")
        return float(shown), int(await page.evaluate("document.querySelectorAll('*').length"))
    finally:
        await page.close()


async def nothing(browser: BrowserContext, address: str) -> float:
    """Milliseconds to a page without anything, from the same server: what the machine takes just now."""
    page = await browser.new_page()
    try:
        await page.add_init_script(EMPTY)
        await page.goto(f"{address}api/start")
        return float(await page.evaluate(SHOWN))
    finally:
        await page.close()


async def scrub(browser: BrowserContext, address: str, rounds: int) -> list[float]:
    """Milliseconds that a move of the scrubber takes, all over a session that is loaded."""
    page = await browser.new_page()
    try:
        await page.goto(f"{address}#/s/long")
        await page.locator(".row").first.wait_for(timeout=60_000)
        await page.evaluate("() => harnessDurable.rest")
        move = """place => { const from = performance.now();
          harnessDurable.lookAt(Math.max(1, Math.floor(place * harnessDurable.trace.head)));
          return performance.now() - from }"""
        return [float(await page.evaluate(move, (place + 1) / (rounds + 1))) for place in range(rounds)]
    finally:
        await page.close()


def serve(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness_durable.cli.main", "view", "--no-open", "--port", "0"]
    return subprocess.Popen(
        [*command, "--world", url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


async def measure(url: str, rounds: int) -> None:
    binary = os.environ.get("HARNESS_DURABLE_CHROMIUM") or shutil.which("chromium")
    server = serve(url)
    try:
        address = cast(IO[str], server.stdout).readline().strip()
        async with async_playwright() as started:
            chromium = await started.chromium.launch(executable_path=binary, args=["--no-sandbox"])
            browser = await chromium.new_context(viewport={"width": 1280, "height": 800})
            first, _ = await visit(browser, address)
            both = [(await visit(browser, address), await nothing(browser, address)) for _ in range(rounds)]
            visits, empty = zip(*both, strict=True)
            times, nodes = zip(*visits, strict=True)
            moves = await scrub(browser, address, rounds)
            await chromium.close()
    finally:
        server.terminate()
        server.communicate()
    told = (
        ("first visit, log unread", f"{first:.0f} ms"),
        ("first rows, median", f"{statistics.median(times):.0f} ms (worst {max(times):.0f}, wanted < 300)"),
        ("a page without anything", f"{statistics.median(empty):.0f} ms (worst {max(empty):.0f})"),
        ("elements on the page", f"{max(nodes)} (wanted < 1000)"),
        ("move of the scrubber", f"{statistics.median(moves):.0f} ms (worst {max(moves):.0f})"),
        ("load of the machine", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"),
    )
    for label, value in told:
        print(f"{label:26}{value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hd-bench-view-") as folder:
        url = f"sqlite:{Path(folder) / 'world.db'}"
        anyio.run(fill, url, options.events)
        anyio.run(measure, url, options.rounds)


if __name__ == "__main__":
    main()
