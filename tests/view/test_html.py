"""A session as one file: the same page, without a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from harness_durable import events as ev
from harness_durable.exports import RedactedReader, Redaction
from harness_durable.payload import pack
from harness_durable.view.html import html_page
from harness_durable.view.shipped import shipped
from tests.unit.memory_world import MemoryWorld
from tests.view.conftest import Served, command
from tests.view.logs import HOSTILE, everything, hostile, text, write

pytestmark = pytest.mark.asyncio(loop_scope="session")

STATIC = Path(__file__).parents[2] / "harness_durable/view/static"
MODULES = sorted(path.name for path in STATIC.glob("*.js"))
ROWS = ".row:not([hidden])"


async def exported(log: list[ev.AnyEvent], blobs: dict[str, bytes] | None = None, **how: object) -> str:
    world = MemoryWorld()
    await write(world, "s", log, blobs)
    content = bool(how.get("content", True))
    redaction = Redaction([str(how["redact"])] if "redact" in how else (), content=content)
    return await html_page(RedactedReader(world, "s", redaction), "s", content=content)


async def test_the_file_opens_from_disk_and_is_the_whole_page(
    page: Page, tmp_path: Path, served: Served
) -> None:
    file = tmp_path / "story.html"
    done = command("export", "story", "--to", "html", "-o", str(file), "--world", served.world)
    assert done.returncode == 0, done.stderr
    await page.context.set_offline(True)
    try:
        await page.goto(file.as_uri())
        await page.locator(ROWS).first.wait_for()
        await expect(page.locator("#verdict")).to_contain_text("The agent died 2 times")
        await page.keyboard.press("]")
        await expect(page.locator("#detail")).to_contain_text("Life 1 died")
        await page.locator("#scrub").fill("20")
        await expect(page.locator("#verdict")).to_have_text("No crash so far.")
        await page.keyboard.press("/")
        await page.keyboard.type("1 failed")
        await page.keyboard.press("Enter")
        await expect(page.locator("#find-note")).to_have_text("1 of 1")
        await expect(page.locator("#detail")).to_contain_text("Output, as the model got it")
        await page.goto(f"{file.as_uri()}#/s/story/e/22")
        await expect(page.locator("#detail")).to_contain_text("Life 1 died")
        await expect(page.locator(ROWS).filter(has_text="I look first.")).to_have_count(1)
    finally:
        await page.context.set_offline(False)


async def test_the_recorded_crash_of_the_examples_opens_from_disk(page: Page) -> None:
    file = STATIC.parents[2] / "examples/recorded_crash.html"
    assert file.stat().st_size < 300_000
    await page.goto(file.as_uri())
    await expect(page.locator("#verdict")).to_contain_text(
        "The agent died once: life 1, lost with its worker"
    )
    await expect(page.locator("#verdict")).to_contain_text("One outcome is unknown: ▲ deploy")


async def test_a_hostile_agent_gets_nothing_but_text_in_the_file(page: Page, tmp_path: Path) -> None:
    log, blobs = hostile()
    content = await exported(log, blobs)
    assert len(content) < 400_000
    file = tmp_path / "hostile.html"
    file.write_text(content)
    await page.goto(file.as_uri())
    await page.locator(ROWS).first.wait_for()
    await page.keyboard.press("]")
    await expect(page.locator("#detail")).to_contain_text("<script>")
    assert await page.title() == "s · harness-durable"
    assert await page.locator("#session img, #session svg, #session script").count() == 0


async def test_nothing_but_our_own_script_can_run() -> None:
    content = await exported([*everything(), ev.MessageAccepted("m-9", text(HOSTILE))])
    assert re.findall(r"<(?:script|style)[^>]*>", content) == [
        "<style>",
        '<script type="application/json" id="data">',
        '<script type="module">',
    ]
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    assert len(policy) == 1
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/=]+'; style-src 'sha256-[\w+/=]+'; .*", policy[0]
    )
    assert "unsafe" not in policy[0]
    assert "onerror=" in content
    assert "<img" not in content


async def test_what_is_left_out_is_nowhere_in_the_file() -> None:
    content = await exported(everything(), content=False)
    for words in (
        "Fix the failing",
        "1 failed",
        "python -m unittest",
        "I run the tests",
        "1.4.2",
        "Be careful",
    ):
        assert words not in content, words
    assert "Life 1 died" in content
    assert "What was said is left out of this file." in content


async def test_what_is_redacted_is_nowhere_in_the_file() -> None:
    content = await exported(everything(), redact="deployed [0-9.]+")
    assert "deployed 1.4.2" not in content
    assert "[redacted]" in content


async def test_files_that_changed_are_in_the_file_line_by_line_and_redacted() -> None:
    old, new = b"price = 1\nkey = sk-0123456789abcdefghij\n", b"price = 2\nkey = sk-0123456789abcdefghij\n"
    before, after = pack(old, 0).blobs, pack(new, 0).blobs
    log = everything()
    place = next(at for at, event in enumerate(log) if isinstance(event, ev.WorkspaceCommitted))
    change = ev.Change("modified", "prices.py", old=min(before), new=min(after))
    log[place] = ev.WorkspaceCommitted("r2", "r1", "call", "t4", counts=ev.Counts(0, 1, 0), changes=(change,))
    world = MemoryWorld()
    await write(world, "s", log, before | after)
    reader = RedactedReader(world, "s", Redaction())
    page = await html_page(reader, "s", clean=Redaction().bytes)
    assert '"-price = 1","+price = 2"," key = [redacted]"' in page
    assert "sk-0123" not in page
    for without in (await html_page(reader, "s"), await html_page(reader, "s", content=False, clean=bytes)):
        assert "price = 1" not in without


async def test_modules_can_be_put_into_one() -> None:
    """They import only each other by name, and no two of them have a top-level name twice."""
    names: dict[str, str] = {}
    for module in MODULES:
        source = shipped(module).decode()
        imports = re.findall(r"^import .*$", source, re.MULTILINE)
        assert all(re.fullmatch(r'import \{[^}]*\} from "\./\w+\.js";', line) for line in imports), module
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", source, re.MULTILINE
        ):
            assert names.setdefault(name, module) == module, f"{name} is in {names[name]} and {module}"
    assert "import " not in re.sub(
        r"//.*",
        "",
        re.findall(r'<script type="module">(.*?)</script>', await exported(everything()[:4]), re.DOTALL)[0],
    )


@pytest.mark.parametrize("file", sorted(path.name for path in STATIC.iterdir()))
async def test_no_shipped_file_names_a_place_outside(file: str) -> None:
    content = shipped(file).decode().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"\b(?:https?|wss?|ftp)://|[\"'(]//[\w-]+\.\w|@import|url\(", content)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|\.on\w+ =", content
    )


async def test_the_page_is_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 120_000
