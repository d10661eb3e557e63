"""One server and one browser for all tests of the page. A browser that is missing is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

import anyio
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from harness_durable.worlds import open_world
from tests.view.logs import everything, hostile, long, worker_lost, write

LONG = 6_000
"""Events of the long session."""


class Served(NamedTuple):
    world: str
    address: str


async def _fill(url: str) -> None:
    world = await open_world(url)
    try:
        await write(world, "story", everything())
        await write(world, "long", long(LONG))
        await write(world, "worker", worker_lost())
        log, blobs = hostile()
        await write(world, "hostile", log, blobs)
    finally:
        await world.aclose()


def view(*words: str) -> subprocess.Popen[str]:
    """The command, as a person starts it."""
    whole = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "harness_durable.cli.main",
        "view",
        "--no-open",
        "--port",
        "0",
    ]
    return subprocess.Popen([*whole, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def command(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Any other command, to its end."""
    whole = [sys.executable, "-W", "error", "-m", "harness_durable.cli.main", *words]
    return subprocess.run(whole, capture_output=True, text=True, cwd=cwd, timeout=60)


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=60)


def demo(world: str, folder: Path) -> subprocess.Popen[bytes]:
    """A real agent that is killed, and comes back."""
    words = ["demo", "--world", world, "--keep", str(folder)]
    whole = [sys.executable, "-m", "harness_durable.cli.main", *words]
    return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ended(process: subprocess.Popen[str]) -> str:
    """Stops it as Ctrl-C does; what it said besides its address."""
    process.send_signal(2)
    _, said = process.communicate(timeout=20)
    return said


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = f"sqlite:{tmp_path_factory.mktemp('view') / 'world.db'}"
    anyio.run(_fill, world)
    process = view("--world", world)
    try:
        address = cast(IO[str], process.stdout).readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.communicate()[1]
        yield Served(world, address)
    finally:
        said = ended(process)
    assert "Ctrl-C ends it." in said
    assert "Traceback" not in said


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    binary = (
        os.environ.get("HARNESS_DURABLE_CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("google-chrome")
    )
    assert binary, "no Chromium; install it as scripts/system-packages says, or set HARNESS_DURABLE_CHROMIUM"
    async with async_playwright() as started:
        found = await started.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        yield found
        await found.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that must neither complain nor ask anybody but this machine."""
    found = await browser.new_page(viewport={"width": 1280, "height": 800})
    trouble: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        ours = (
            "Failed to load resource" not in message.text
        )  # a page outlives its server, and is told of a 404
        if message.type in ("error", "warning") and ours:
            trouble.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "file:", "data:")):
            trouble.append(f"asked {request.url}")

    found.on("console", heard)
    found.on("request", asked)
    found.on("pageerror", lambda error: trouble.append(str(error)))
    found.set_default_timeout(15_000)
    yield found
    await found.close()
    assert trouble == []
