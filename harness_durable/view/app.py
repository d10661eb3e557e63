"""The routes of the page. All of them only read, and answer JSON or a file that is shipped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from harness_durable.errors import HarnessDurableError, NotFound, UsageError
from harness_durable.view import live
from harness_durable.view.changes import changes
from harness_durable.view.detail import body, detail, said_of
from harness_durable.view.find import find
from harness_durable.view.hall import Hall
from harness_durable.view.network import Door, Guard
from harness_durable.view.shipped import shipped, stamp
from harness_durable.view.tail import tail

MOST = 20_000
"""Events of one answer with rows."""

PATIENCE = 0.5
"""Seconds after which a page is told how far the reading of a log is."""

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

_KEEP = {"cache-control": "private, max-age=31536000, immutable"}

_Handler = Callable[[Request], Awaitable[Response]]


def application(hall: Hall, door: Door, *, first: str = "") -> Guard:
    """``first``: the session that the page opens with; empty: the list."""
    pages = _Pages(hall, first)
    routes = [
        Route("/", pages.index),
        Route("/static/{stamp}/{name}", pages.static),
        Route("/api/start", _json(pages.start)),
        Route("/api/sessions", _json(pages.sessions)),
        Route("/api/s/{session}/rows", _json(pages.rows)),
        Route("/api/s/{session}/detail/{item:int}", _json(pages.detail)),
        Route("/api/s/{session}/said", _json(pages.said)),
        Route("/api/s/{session}/body/{seq:int}/{name}", _json(pages.body)),
        Route("/api/s/{session}/changes/{seq:int}/{number:int}", _json(pages.changes)),
        Route("/api/s/{session}/find", _json(pages.find)),
        Route("/api/s/{session}/live", pages.live),
    ]
    return Guard(Starlette(routes=routes), door)


def _json(answer: Callable[[Request], Awaitable[object]]) -> _Handler:
    """An error of ours is one sentence, which the page shows."""

    async def handle(request: Request) -> Response:
        try:
            content, status = await answer(request), 200
        except NotFound as missing:
            content, status = {"error": str(missing)}, 404
        except HarnessDurableError as error:
            content, status = {"error": str(error)}, 400 if isinstance(error, UsageError) else 503
        return Response(msgspec.json.encode(content), status, media_type="application/json")

    return handle


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 16 else default


class _Pages:
    def __init__(self, hall: Hall, first: str) -> None:
        self._hall, self._first = hall, first

    async def index(self, _: Request) -> Response:
        """The files of another version have other addresses, so a browser may keep them for ever."""
        page = shipped("index.html").replace(b'"static/', f'"static/{stamp()}/'.encode())
        return Response(page, media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            content = shipped(name)
        except NotFound as missing:
            return Response(str(missing), 404, media_type="text/plain")
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        keep = _KEEP if request.path_params["stamp"] == stamp() else {}
        return Response(content, media_type=kind, headers=keep)

    async def start(self, _: Request) -> object:
        return {"session": self._first, "lost": self._hall.lost}

    async def sessions(self, request: Request) -> object:
        return await self._hall.sessions(_number(request, "offset", 0))

    async def rows(self, request: Request) -> object:
        """The versions of ``limit`` events before ``before`` (0: the newest ones). What was read before is
        given at once: the stream, which every page opens next, has what came since. Of a long log that was
        not read yet the newest ones come first if that is possible (``tail``); otherwise the answer is how
        far the reading is, and the page asks again."""
        sheet = await self._hall.begun(request.path_params["session"])
        before, limit = _number(request, "before", 0), min(_number(request, "limit", 1000), MOST)
        if not sheet.read and not before and not request.query_params.get("again"):
            last = await tail(sheet.reader, limit)
            if last is not None:
                return {
                    "rows": last.rows,
                    "after": last.after,
                    "upto": last.head,
                    "head": last.head,
                    "damage": "",
                }
        if not sheet.read:
            await sheet.refresh(PATIENCE)
        if not sheet.read:
            return {"reading": sheet.head, "of": (await self._hall.world.session(sheet.reader.session)).head}
        upto = before - 1 if before else sheet.head
        after = max(0, upto - limit)
        return {
            "rows": sheet.between(after, upto),
            "after": after,
            "upto": upto,
            "head": sheet.head,
            "damage": sheet.damage,
        }

    async def detail(self, request: Request) -> object:
        sheet = await self._hall.sheet(request.path_params["session"])
        return await detail(sheet, request.path_params["item"])

    async def said(self, request: Request) -> object:
        """What models said, by the items of the calls."""
        sheet = await self._hall.sheet(request.path_params["session"])
        items = [int(one) for one in request.query_params.get("items", "").split(",") if one.isdecimal()]
        return await said_of(sheet, items[:200])

    async def body(self, request: Request) -> object:
        sheet = await self._hall.sheet(request.path_params["session"])
        at = _number(request, "at", 0)
        return await body(sheet, request.path_params["seq"], request.path_params["name"], at)

    async def changes(self, request: Request) -> object:
        sheet = await self._hall.sheet(request.path_params["session"])
        return await changes(sheet, request.path_params["seq"], request.path_params["number"])

    async def find(self, request: Request) -> object:
        sheet = await self._hall.sheet(request.path_params["session"])
        words = request.query_params.get("q", "")
        return await find(sheet, words, _number(request, "before", 0) or sheet.head + 1)

    async def live(self, request: Request) -> Response:
        session = request.path_params["session"]
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isdecimal() else _number(request, "after", 0)
        sheet = await self._hall.sheet(session)
        told = live.stream(sheet, after, over=lambda: self._hall.over)
        return StreamingResponse(told, media_type="text/event-stream")
