"""``harness-durable view`` as a command: a file, a session that grows, what is missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import IO, cast

import httpx
import pytest
from playwright.async_api import Page, expect

from harness_durable.worlds import open_world
from tests.view.conftest import Served, command, demo, ended, python, view
from tests.view.logs import everything, records, write

pytestmark = pytest.mark.asyncio(loop_scope="session")


def address(process: subprocess.Popen[str]) -> str:
    return cast(IO[str], process.stdout).readline().strip()


async def test_an_exported_file_is_shown_without_a_world(page: Page, tmp_path: Path, served: Served) -> None:
    file = tmp_path / "story.jsonl"
    assert command("export", "story", "-o", str(file), "--world", served.world).returncode == 0
    process = view(str(file), "--world", f"sqlite:{tmp_path / 'none.db'}")
    try:
        await page.goto(address(process))
        await expect(page.locator("#verdict")).to_contain_text("The agent died 2 times")
        await page.keyboard.press("]")
        await expect(page.locator("#detail")).to_contain_text("lost with its worker")
    finally:
        ended(process)
    assert not (tmp_path / "none.db").exists()


async def test_a_file_that_was_altered_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"line":"session","version":1,"session":"s","status":"idle"}\n')
    process = view(str(file))
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "cut short" in said


async def test_a_real_crash_is_followed_as_it_happens(page: Page, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'world.db'}"
    world = await open_world(url)
    await write(world, "other", everything()[:3])
    await world.aclose()
    process = view("--world", url)
    running = demo(url, tmp_path / "kept")
    try:
        base = address(process)
        async with httpx.AsyncClient(base_url=base) as client:
            while (await client.get("/api/s/demo/rows")).status_code != 200:
                assert running.poll() is None
        await page.goto(f"{base}#/s/demo")
        await page.locator(".row").first.wait_for()
        begun = await page.evaluate("performance.timeOrigin")
        verdict = page.locator("#verdict")
        await expect(verdict).to_contain_text("The agent died once", timeout=60_000)
        await expect(verdict).to_contain_text("The turn was completed", timeout=60_000)
        await expect(page.locator("#status")).to_have_text("completed")
        assert await page.evaluate("performance.timeOrigin") == begun
        assert await page.evaluate("harnessDurable.list.atEnd")
        await page.get_by_role("button", name="unknown ›").click()
        await expect(page.locator("#detail h2")).to_contain_text("deploy")
        await expect(page.locator("#detail")).to_contain_text("outcome_unknown")
    finally:
        running.wait(60)
        ended(process)
    assert running.returncode == 0


async def test_who_ends_it_while_a_page_follows_sees_no_traceback(page: Page, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'world.db'}"
    world = await open_world(url)
    await write(world, "s", everything())
    await world.aclose()
    process = view("s", "--world", url)
    try:
        await page.goto(address(process))
        await page.locator(".row").first.wait_for()
        await expect(page.locator("#place")).to_contain_text("event")
        async with page.expect_response(re.compile("/live")):
            await page.reload()
    finally:
        said = ended(process)
    assert said.splitlines()[0] == "Ctrl-C ends it."
    assert "Traceback" not in said
    assert "ERROR" not in said


async def test_new_events_keep_the_place_and_the_choice(page: Page, tmp_path: Path) -> None:
    url, log = f"sqlite:{tmp_path / 'world.db'}", everything()
    world = await open_world(url)
    process = None
    try:
        await write(world, "s", log[:40])
        process = view("s", "--world", url)
        await page.set_viewport_size({"width": 1280, "height": 500})
        await page.goto(address(process))
        await page.locator(".row").first.wait_for()
        await page.evaluate("harnessDurable.goTo(2)")
        await expect(page.locator("#detail h2")).to_contain_text("You")
        top = await page.evaluate("document.getElementById('list').scrollTop")
        await world.append("s", expected_head=40, epoch=0, records=records(log)[40:])
        await expect(page.locator("#place")).to_have_text(f"event {len(log)} of {len(log)}")
        assert await page.evaluate("document.getElementById('list').scrollTop") == top
        await expect(page.locator("#detail h2")).to_contain_text("You")
        await page.get_by_role("button", name="Follow").click()
        assert await page.evaluate("harnessDurable.list.atEnd")
    finally:
        await world.aclose()
        if process is not None:
            ended(process)


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--token",)], ids=["open", "asked for"])
async def test_a_token_is_printed_once_and_nobody_gets_in_without(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    url = f"sqlite:{tmp_path / 'world.db'}"
    await (await open_world(url)).aclose()
    process = view(*words, "--world", url)
    link = address(process)
    token = link.partition("?token=")[2]
    try:
        assert len(token) >= 24
        base = link.partition("?")[0].replace("0.0.0.0", "127.0.0.1")
        async with httpx.AsyncClient() as client:
            assert (await client.get(base)).status_code == 401
            assert (await client.get(f"{base}?token={token}", follow_redirects=True)).status_code == 200
            assert (await client.get(f"{base}?token=wrong{token}")).status_code == 200
    finally:
        said = ended(process)
    assert token not in said


async def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    hide = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['harness-durable', 'view'];"
        "from harness_durable.cli.main import main; main()"
    )
    done = python(hide, tmp_path)
    assert done.returncode == 2
    assert "python -m pip install 'harness-durable[view]'" in done.stderr


async def test_help_and_export_do_not_pay_for_the_server(tmp_path: Path) -> None:
    look = (
        "import sys; import harness_durable.cli.view, harness_durable.view.html;"
        "print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    )
    done = python(look, tmp_path)
    assert done.stdout.strip() == "[]"
