"""Who may look. A page of a stranger in the same browser must not read a session."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from harness_durable.errors import BadSetting
from harness_durable.view.app import application
from harness_durable.view.hall import Hall
from harness_durable.view.network import COOKIE, Door, is_loopback
from harness_durable.view.server import door, listen
from tests.unit.memory_world import MemoryWorld
from tests.view.logs import everything, write

LOCAL = Door(loopback=True)
OPEN = Door(loopback=False, token="a-long-token", names=frozenset({"traces.example"}))


async def client(who: Door) -> AsyncIterator[httpx.AsyncClient]:
    world = MemoryWorld()
    await write(world, "s", everything())
    transport = httpx.ASGITransport(application(Hall(world), who))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7337") as found:
        yield found


@pytest.fixture
async def local() -> AsyncIterator[httpx.AsyncClient]:
    async for found in client(LOCAL):
        yield found


@pytest.fixture
async def remote() -> AsyncIterator[httpx.AsyncClient]:
    async for found in client(OPEN):
        yield found


@pytest.mark.parametrize("host", ["127.0.0.1:7337", "localhost:7337", "LOCALHOST", "[::1]:7337", "127.9.9.9"])
async def test_a_name_of_this_machine_is_let_in(local: httpx.AsyncClient, host: str) -> None:
    assert (await local.get("/api/sessions", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7337", "127.0.0.1.evil.example", "10.0.0.5", "", "[::1"]
)
async def test_a_name_that_was_rebound_is_refused(local: httpx.AsyncClient, host: str) -> None:
    assert (await local.get("/api/sessions", headers={"host": host})).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "null", ""])
async def test_another_site_is_refused(local: httpx.AsyncClient, origin: str) -> None:
    assert (await local.get("/api/sessions", headers={"origin": origin})).status_code == 403
    own = await local.get("/api/sessions", headers={"origin": "http://127.0.0.1:7337"})
    assert own.status_code == 200


async def test_a_link_elsewhere_may_open_the_page_and_not_read_its_data(local: httpx.AsyncClient) -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert (await local.get("/", headers=cross)).status_code == 200
    assert (await local.get("/api/s/s/rows", headers=cross)).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_can_be_sent(local: httpx.AsyncClient, method: str) -> None:
    assert (await local.request(method, "/api/s/s/rows")).status_code == 405


async def test_every_answer_has_the_policy(local: httpx.AsyncClient) -> None:
    for path in ("/", "/static/x/app.js", "/api/sessions", "/nowhere", "/static/x/nothing.js"):
        headers = (await local.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"].startswith("no-store")
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", ".hidden", "index.html/"])
async def test_only_shipped_files_are_served(local: httpx.AsyncClient, name: str) -> None:
    assert (await local.get(f"/static/x/{name}")).status_code in (404, 307)


async def test_without_the_token_nobody_gets_in(remote: httpx.AsyncClient) -> None:
    for path in ("/", "/api/sessions", "/static/x/app.js", "/?token=wrong", "/?token="):
        assert (await remote.get(path)).status_code == 401
    wrong = await remote.get("/api/sessions", headers={"cookie": f"{COOKIE}=wrong"})
    assert wrong.status_code == 401


async def test_the_token_goes_from_the_link_into_a_cookie(remote: httpx.AsyncClient) -> None:
    entry = await remote.get("/?token=a-long-token")
    assert (entry.status_code, entry.headers["location"]) == (303, "/")
    cookie = entry.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie  # with "strict" a link in a chat would not work
    assert cookie.startswith(f"{COOKIE}-7337=")  # one for each viewer of a host
    assert (await remote.get("/api/sessions", headers={"host": "10.0.0.5:7337"})).status_code == 200


async def test_a_name_must_be_allowed_even_with_the_token(remote: httpx.AsyncClient) -> None:
    await remote.get("/?token=a-long-token")
    cookie = {"cookie": f"{COOKIE}-7337=a-long-token"}
    assert (await remote.get("/api/sessions", headers=cookie | {"host": "evil.example"})).status_code == 421
    assert (await remote.get("/api/sessions", headers=cookie | {"host": "Traces.Example"})).status_code == 200


async def test_what_is_not_there_is_one_sentence(local: httpx.AsyncClient) -> None:
    for path in (
        "/api/s/nobody/rows",
        "/api/s/s/detail/9999",
        "/api/s/s/body/2/nothing",
        "/api/s/s/changes/2/0",
    ):
        answer = await local.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]


async def test_odd_numbers_in_a_request_are_no_trouble(local: httpx.AsyncClient) -> None:
    for query in (
        "before=-1",
        "before=x",
        "before=99999999999999999999",
        "limit=0",
        "limit=99999999",
        "before=²",
    ):
        assert (await local.get(f"/api/s/s/rows?{query}")).status_code == 200


async def test_a_browser_keeps_files_of_this_version_only(local: httpx.AsyncClient) -> None:
    page = (await local.get("/")).text
    files = re.findall(r'(?:href|src)="(static/[^"]+)"', page)
    assert len(files) > 10
    for file in files:
        answer = await local.get(f"/{file}")
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True), file
    assert "no-store" in (await local.get("/static/another/app.js")).headers["cache-control"]


def test_only_another_address_gets_a_token() -> None:
    assert door("127.0.0.1", ()).token == ""
    assert door("::1", ()).token == ""
    assert len(door("0.0.0.0", ()).token) >= 24
    assert door("0.0.0.0", ()).token != door("0.0.0.0", ()).token
    assert not is_loopback("example.org")


def test_who_shares_the_machine_can_ask_for_a_token() -> None:
    guarded = door("127.0.0.1", (), token=True)
    assert (guarded.loopback, len(guarded.token) >= 24) == (True, True)


def test_a_port_that_is_taken_is_said_with_what_to_do() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(BadSetting, match="--port"):
        listen("127.0.0.1", int(taken.getsockname()[1]))
