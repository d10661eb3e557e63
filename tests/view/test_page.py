"""The page in a real browser, as a person uses it."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from playwright.async_api import Page, Route, expect

from harness_durable.journal import Reader
from harness_durable.view.row import Row
from harness_durable.view.sheet import Sheet
from harness_durable.worlds import open_world
from tests.view.conftest import LONG, Served
from tests.view.logs import everything

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODES = "document.querySelectorAll('*').length"
ROWS = ".row:not([hidden])"


async def chosen(page: Page) -> str:
    return await page.locator(".row[aria-selected=true]").inner_text()


async def opened(page: Page, served: Served, path: str) -> None:
    await page.goto(f"{served.address}#/s/{path}")
    await page.locator(ROWS).first.wait_for()


async def all_loaded(page: Page) -> None:
    await page.evaluate("() => harnessDurable.rest")
    assert await page.evaluate("harnessDurable.trace.whole")


async def test_the_list_leads_to_a_session(page: Page, served: Served) -> None:
    await page.goto(served.address)
    await page.get_by_role("link", name="story").click()
    await expect(page.locator("#name")).to_have_text("story")
    await expect(page.locator("#verdict")).to_contain_text("The agent died 2 times")
    await page.get_by_role("link", name="Sessions").click()
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


async def test_who_never_read_a_word_is_told_what_died_and_what_is_unknown(
    page: Page, served: Served
) -> None:
    await opened(page, served, "story/at/31")
    verdict = page.locator("#verdict")
    await expect(verdict).to_contain_text("The agent died once: life 1, lost with its worker")
    await expect(verdict).to_contain_text("while deploy, order ran")
    await expect(verdict).to_contain_text("One outcome is unknown: ▲ deploy")
    await verdict.get_by_role("link", name="deploy").last.click()
    await expect(page.locator("#detail")).to_contain_text("What the model was told in place of an output")


async def test_what_became_of_the_unknown_call_is_told(page: Page, served: Served) -> None:
    await opened(page, served, "story")
    verdict = page.locator("#verdict")
    await expect(verdict).to_contain_text("the model was told so, and a repeat was refused once.")
    await expect(verdict).to_contain_text("✓ order: its probe found out.")
    await expect(verdict).to_contain_text("1 call that may be repeated ran again: Bash.")


async def test_a_worker_that_died_alone_is_no_silence(page: Page, served: Served) -> None:
    await opened(page, served, "worker")
    verdict = page.locator("#verdict")
    await expect(verdict).to_contain_text("The worker was lost once, and the agent lived on: in life 1")
    await expect(verdict).to_contain_text(
        "while deploy ran; another one came 250 ms later. One outcome is unknown"
    )
    await expect(verdict).to_contain_text(
        "the model was told so, then it chose to run it again: ✓ completed."
    )
    lives = page.get_by_role("list", name="Lives").get_by_role("listitem")
    await expect(lives).to_contain_text(["its worker was lost after"])
    await page.keyboard.press("]")
    await expect(page.locator("#detail")).to_contain_text("another worker came")
    await expect(page.locator(ROWS).filter(has_text="no call was cut off")).to_have_count(0)


async def test_who_is_asked_is_told_so_until_it_is_answered(page: Page, served: Served) -> None:
    await opened(page, served, "story/at/10")
    await expect(page.locator("#verdict")).to_contain_text(
        "It asks a person: ? May it run? Bash: python -m unittest"
    )
    await expect(page.locator("#status")).to_have_text("asks you")
    await page.locator("#scrub").fill("11")
    await expect(page.locator("#verdict")).not_to_contain_text("asks a person")
    await expect(page.locator("#status")).to_have_text("running")


async def test_the_list_can_be_narrowed_to_a_tool_or_a_life(page: Page, served: Served) -> None:
    await opened(page, served, "story/e/17")
    await page.get_by_role("button", name="Only deploy").click()
    await expect(page.locator(ROWS)).to_have_count(2)
    await page.get_by_role("button", name="Only life 1").click()
    assert set(await page.evaluate("harnessDurable.list.entries.map(row => row.life)")) == {1}
    await page.evaluate("harnessDurable.goTo(1)")  # what is hidden and is gone to is shown
    await expect(page.locator("#only")).to_be_hidden()


async def test_what_is_known_can_be_taken_along_as_markdown(page: Page, served: Served) -> None:
    await page.context.grant_permissions(
        ["clipboard-read", "clipboard-write"], origin=served.address.rstrip("/")
    )
    await opened(page, served, "hostile/e/7")
    await page.evaluate("harnessDurable.goTo(2)")
    await page.get_by_role("button", name="Copy as Markdown").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = str(await page.evaluate("navigator.clipboard.readText()"))
    assert "- message id: m-1" in copied.replace("\\", "")
    assert "```text\n<script>" in copied
    assert "\x1b" not in copied


async def test_a_link_to_an_event_chooses_it(page: Page, served: Served) -> None:
    await opened(page, served, "story/e/22")
    await expect(page.locator("#detail")).to_contain_text("Life 1 died")
    assert "Life 1 died" in await chosen(page)


async def test_a_link_reaches_an_event_that_is_not_loaded_first(page: Page, served: Served) -> None:
    await opened(page, served, "long/e/3")
    await expect(page.locator("#detail")).to_contain_text("event 3")


async def test_the_keys_of_the_list(page: Page, served: Served) -> None:
    await opened(page, served, "story/e/2")
    await expect(page.locator("#detail h2")).to_contain_text("You")
    for key, words in (
        ("j", "Life 1 begins"),
        ("k", "You"),
        ("]", "Life 1 died"),
        ("]", "The worker of life 2 was lost"),
        ("]", "Life 2 died"),
        ("[", "The worker of life 2 was lost"),
        ("[", "Life 1 died"),
        ("J", "And now?"),
        ("K", "Fix the failing test"),
    ):
        await page.keyboard.press(key)
        assert words in (await chosen(page)).replace("\n", " "), key
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()


async def test_the_first_key_chooses_from_the_end_that_it_names(page: Page, served: Served) -> None:
    for key, words in (("Home", "Session created"), ("End", "Life 5 ended"), ("j", "Session created")):
        await opened(page, served, "story")
        await page.reload()
        await page.locator(ROWS).first.wait_for()
        await page.locator("#list").focus()
        await page.keyboard.press(key)
        assert words in (await chosen(page)).replace("\n", " "), key


async def test_each_jump_finds_its_kind(page: Page, served: Served) -> None:
    await opened(page, served, "story/e/1")
    for what, words in (
        ("crash", "Life 1 died"),
        ("unknown", "deploy"),
        ("failure", "Bash"),
        ("prompt", "And now?"),
    ):
        await page.evaluate("harnessDurable.choose(1)")
        await page.get_by_role("button", name=f"{what} ›").click()
        found = await chosen(page) if what != "prompt" else "And now?"
        assert words in found, what


async def _picked(url: str, upto: int) -> list[list[object]]:
    """What the page must show: the last versions of all things, from the fold of the prefix in Python."""
    world = await open_world(url, create=False)
    try:
        sheet = Sheet(Reader(world, "story"))
        await sheet.refresh()
        last: dict[int, Row] = {}
        for one in sheet.between(0, upto):
            last[one.item] = one
        return [[one.item, one.state, one.title, one.life] for _, one in sorted(last.items())]
    finally:
        await world.aclose()


async def test_the_page_at_any_place_is_the_fold_of_that_prefix(page: Page, served: Served) -> None:
    await opened(page, served, "story")
    look = "upto => [...harnessDurable.trace.at(upto)].map(r => [r.item, r.state, r.title, r.life])"
    for upto in range(1, len(everything()) + 1, 4):
        assert await page.evaluate(look, upto) == await _picked(served.world, upto), upto


async def test_scrubbing_shows_only_what_was_known_then(page: Page, served: Served) -> None:
    await opened(page, served, "story")
    await page.locator("#scrub").fill("20")
    await expect(page.locator("#place")).to_have_text(f"event 20 of {len(everything())}")
    await expect(page.locator("#verdict")).to_have_text("No crash so far.")
    await expect(page.locator(ROWS).filter(has_text="deploy")).to_contain_text(["running"])
    await page.get_by_role("button", name="Back to the end").click()
    await expect(page.locator("#verdict")).to_contain_text("died 2 times")


async def test_replay_runs_through_to_the_end(page: Page, served: Served) -> None:
    await opened(page, served, "story")
    await page.locator("#speed").select_option("10")
    await page.locator("#scrub").fill("60")
    await page.keyboard.press("p")
    await expect(page.locator("#play")).to_have_text("❚❚ Pause")
    await expect(page.locator("#play")).to_have_text("▶ Replay", timeout=15_000)
    await expect(page.locator("#now")).to_be_hidden()


async def test_find_asks_the_server_and_goes_from_place_to_place(page: Page, served: Served) -> None:
    await opened(page, served, "long")
    await page.keyboard.press("/")
    await page.keyboard.type("for job 7, step 3.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#find-note")).to_have_text("1 of 1")
    await expect(page.locator("#detail")).to_contain_text("Ran 1 test for job 7, step 3. OK")
    await page.locator("#find").fill("no such words anywhere")
    await page.keyboard.press("Enter")
    await expect(page.locator("#find-note")).to_have_text("nowhere")


async def test_a_long_session_keeps_the_page_small_and_shows_its_end_first(
    page: Page, served: Served
) -> None:
    await opened(page, served, "long")
    assert await page.evaluate("Math.max(...harnessDurable.list.entries.map(row => row.seq))") == LONG
    await all_loaded(page)
    assert await page.evaluate(NODES) < 1000
    for part in (0.0, 0.3, 0.7, 1.0):
        await page.evaluate(f"(l => l.scrollTop = l.scrollHeight * {part})(document.getElementById('list'))")
        await page.locator(ROWS).first.wait_for()
        assert await page.evaluate(NODES) < 1000
    await page.keyboard.press("]")
    assert await page.evaluate(NODES) < 1000


async def test_who_waits_for_a_long_log_sees_how_far_it_is(page: Page, served: Served) -> None:
    answers = [{"reading": 42, "of": 100}, None]

    async def slowly(route: Route) -> None:
        answer = answers.pop(0) if answers else None
        if answer is None:
            await expect(page.locator("#loading")).to_have_text("Reading the log … 42 %")
            await route.continue_()
        else:
            await route.fulfill(json=answer)

    await page.route("**/rows?*", slowly)
    await opened(page, served, "story")
    await expect(page.locator("#loading")).to_be_hidden()


async def test_what_is_loaded_before_does_not_move_what_is_looked_at(page: Page, served: Served) -> None:
    await opened(page, served, "long")
    await page.evaluate("harnessDurable.follow(false); document.getElementById('list').scrollTop -= 400")
    top = """() => { const l = harnessDurable.list;
        return l.entries.find((_, n) => l.tops[n] >= l.box.scrollTop).item }"""
    before = await page.evaluate(top)
    await all_loaded(page)
    assert await page.evaluate(top) == before


async def test_a_hostile_agent_gets_nothing_but_text(page: Page, served: Served) -> None:
    await opened(page, served, "hostile")
    for seq in (2, 5, 7, 10, 12):
        await page.evaluate(f"harnessDurable.goTo({seq})")
        await expect(page.locator("#detail")).to_contain_text("Raw")
    await page.get_by_role("radio", name="All events").click()
    inside = page.locator("#session, #help")
    for tag in ("script", "img", "svg", "iframe", "object", "b"):
        assert await inside.locator(tag).count() == 0, tag
    assert await page.title() == "hostile · harness-durable"
    shown = await page.locator("#list").inner_text()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "<script>" in shown
    assert [
        link
        for link in cast("list[str]", await page.evaluate("[...document.links].map(a => a.href)"))
        if "javascript" in link
    ] == []


async def test_ten_megabytes_in_a_line_are_shown_in_pages(page: Page, served: Served) -> None:
    await opened(page, served, "hostile/e/7")
    await page.evaluate("harnessDurable.goTo(9)")
    more = page.get_by_role("button", name="Show more")
    await expect(more).to_contain_text("10.4 M characters left")
    await more.click()
    await expect(page.locator("#detail pre").filter(has_text=re.compile("^A{1000}"))).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_words_can_be_read_in_both_schemes(page: Page, served: Served, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    await opened(page, served, "story/e/22")
    contrast = """() => { const lum = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(Number)
        .map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };
      const back = lum(getComputedStyle(document.body).backgroundColor);
      return [...document.querySelectorAll('.row:not([hidden]) span, #verdict *, #facts, button')]
        .filter(e => e.textContent).map(e => lum(getComputedStyle(e).color))
        .map(f => (Math.max(f, back) + .05) / (Math.min(f, back) + .05)) }"""
    assert min(cast("list[float]", await page.evaluate(contrast))) >= 4.5


async def test_a_narrow_window_has_everything_and_nothing_sticks_out(page: Page, served: Served) -> None:
    await page.set_viewport_size({"width": 380, "height": 800})
    await opened(page, served, "story/e/22")
    await expect(page.locator("#detail")).to_contain_text("Life 1 died")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 380
    await expect(page.locator(ROWS).first).to_be_visible()


async def test_who_cannot_see_the_picture_gets_a_list_of_lives(page: Page, served: Served) -> None:
    await opened(page, served, "story")
    lives = page.get_by_role("list", name="Lives").get_by_role("listitem")
    await expect(lives).to_have_count(5)
    await expect(lives.first).to_contain_text("died after")
    rows = page.get_by_role("listbox").get_by_role("option")
    assert int(await rows.first.get_attribute("aria-setsize") or 0) > 20
    await page.keyboard.press("]")
    assert await page.locator("#list").get_attribute("aria-activedescendant") == "row-22"


async def test_a_session_that_is_not_there_is_said(page: Page, served: Served) -> None:
    await page.goto(f"{served.address}#/s/nobody")
    await expect(page.get_by_role("alert")).to_contain_text("nobody")
