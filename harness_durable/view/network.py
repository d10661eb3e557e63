"""Who may look: the guard in front of every request.

A page of a stranger that is open in the same browser must not read a session. So the name by which we are
called is checked (a stranger's name can be made to point here: DNS rebinding), and where a request comes
from. What surprises: an IP address as the name is always fine, since only names can be rebound. Whoever binds
to another address than loopback needs the token, which goes from the link into a cookie."""

from __future__ import annotations

import hmac
import ipaddress
import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "harness-durable-view"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d+)?")

_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-accel-buffering": "no",
    "cache-control": "no-store, no-transform",
}


class Door(msgspec.Struct, frozen=True):
    """``token`` of empty: none is needed. ``names``: by which we may be called, besides IP addresses and
    localhost."""

    loopback: bool
    token: str = ""
    names: frozenset[str] = frozenset()


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach an address or name."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The name in a ``Host`` header, without its port and in lower case; empty for what is none."""
    found = _HOST.fullmatch(header.strip().lower())
    return found[1] if found is not None else ""


class Guard:
    """Lets a request pass, or answers it. Around the whole application."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        answer = self._refusal(scope, headers) or self._welcome(scope, headers)
        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page only shows; nothing can be sent to it", 405)
        host = headers.get("host", "")
        if not self._named(host_of(host)):
            return PlainTextResponse(
                "this name does not stand for the viewer; use the address that it printed at its start, "
                "or name this one with --allow-host",
                421,
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.strip().lower():
            return PlainTextResponse("another site may not read sessions; open the viewer itself", 403)
        if headers.get("sec-fetch-site", "none") == "cross-site" and scope["path"] != "/":
            return PlainTextResponse("another site may not read sessions; open the viewer itself", 403)
        return None

    def _named(self, host: str) -> bool:
        if host == "localhost" or host in self._door.names:
            return True
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or not self._door.loopback

    def _welcome(self, scope: Scope, headers: Headers) -> PlainTextResponse | RedirectResponse | None:
        """None if the request may go on: no token is needed, or the cookie has it."""
        token = self._door.token
        name = f"{COOKIE}-{scope['server'][1]}"  # browsers share cookies between the ports of a host
        if not token or _same(_cookie(headers, name), token):
            return None
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if _same(query.get("token", [""])[0], token):
            answer = RedirectResponse(scope["path"], 303)
            # "strict" would keep it back where the link was followed from another site, such as a chat.
            answer.set_cookie(name, token, httponly=True, samesite="lax")
            return answer
        return PlainTextResponse(
            "open the whole link that `harness-durable view` printed, with its token", 401
        )


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
