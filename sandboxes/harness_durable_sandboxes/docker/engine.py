"""The Docker engine: the one place that imports its package, and what its failures mean.

What surprises: each call has a client of its own, in a thread of its own. A client that is kept would hold
connections to an engine that was restarted meanwhile, and is not made for several threads; and for a thread
of a pool the process would wait at its end, as long as the engine does not answer."""

from __future__ import annotations

import asyncio
import importlib
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import anyio

from harness_durable.errors import BadSetting, SandboxUnavailable

T = TypeVar("T")

Json = dict[str, Any]  # as the engine's API gives it

_docker: Any = importlib.import_module("docker")  # it has no types
_errors: Any = importlib.import_module("docker.errors")
_requests: Any = importlib.import_module("requests.exceptions")

_CALL_SECONDS = 60
GRACE_SECONDS = 2.0
"""How long one who is cancelled waits for an answer that is under way: what an engine that is well has begun
is then finished. One that hangs is left."""
_AT_ONCE = 8
_FIRST = "1.41"  # of the API: to ask for the engine's
_LOCAL = ("unix", "http+unix")
DEFAULT = "unix:///var/run/docker.sock"


class Api(Protocol):
    """What we use of ``docker.APIClient``."""

    def version(self, api_version: bool) -> Json: ...
    def info(self) -> Json: ...
    def create_host_config(self, **config: object) -> Json: ...
    def create_container_from_config(self, config: Json, name: str) -> Json: ...
    def start(self, container: str) -> None: ...
    def kill(self, container: str) -> None: ...
    def inspect_container(self, container: str) -> Json: ...
    def remove_container(self, container: str, v: bool, force: bool) -> None: ...
    def containers(self, all: bool, filters: Json) -> list[Json]: ...  # noqa: A002  (its word)
    def events(self, since: str, until: str, decode: bool) -> Iterable[Json]: ...
    def logs(self, container: str, tail: int) -> bytes: ...
    def inspect_image(self, image: str) -> Json: ...
    def pull(self, repository: str, tag: str | None, stream: bool, decode: bool) -> Iterable[Json]: ...
    def build(self, **how: object) -> Iterable[Json]: ...
    def close(self) -> None: ...


class Refused(SandboxUnavailable):
    """The engine answered, and does not do it. ``status`` is that of HTTP, ``words`` are the engine's."""

    def __init__(self, status: int, words: str) -> None:
        self.status, self.words = status, words
        self.why = "disk_full" if "no space left on device" in words.lower() else "refused"
        super().__init__(f"the Docker engine refused: {words}; see its log, then try again")


class Unreachable(SandboxUnavailable):
    """Nobody answers."""

    why = "unreachable"


class Engine:
    """The engine of ``DOCKER_HOST``, or of this host."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._version = ""
        self._where: Json = {}

    @property
    def url(self) -> str:
        """Without what may be secret."""
        return str(self._settings().get("base_url") or DEFAULT)

    async def call(self, ask: Callable[[Api], T]) -> T:
        """Raises ``SandboxUnavailable`` if the engine cannot be reached, ``Refused`` if it does not do it,
        ``BadSetting`` if it is on another machine: a life's files and sockets would not be there. Whoever is
        cancelled does not wait for an engine that hangs, and does not know what it will still do."""
        async with self._limiter:
            return await _Call(partial(self.ask, ask)).answer()

    def ask(self, ask: Callable[[Api], T]) -> T:
        """The same, in this thread."""
        self._check_here()
        with self._failures():
            self._knock()
            if not self._version:
                with closing(self._client(_FIRST)) as client:
                    self._version = str(client.version(api_version=False)["ApiVersion"])
            with closing(self._client(self._version)) as client:
                return ask(client)

    def _client(self, version: str) -> Api:
        made: Any = _docker.APIClient(version=version, timeout=_CALL_SECONDS, **self._settings())
        return cast(Api, made)

    def _knock(self) -> None:
        """Its package leaves a socket behind where nobody listens. Raises ``OSError``."""
        scheme, _, path = self.url.partition("://")
        if scheme in _LOCAL:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(_CALL_SECONDS)
                sock.connect(path)

    def _settings(self) -> Json:
        if not self._where:
            with self._failures():
                self._where = {"base_url": DEFAULT, **_docker.utils.kwargs_from_env()}
        return self._where

    def _check_here(self) -> None:
        scheme, _, rest = self.url.partition("://")
        host = urlsplit(f"//{rest}").hostname or ""
        if scheme in _LOCAL or host in ("localhost", "127.0.0.1", "::1"):
            return
        raise BadSetting(
            f"DOCKER_HOST is {self.url}: an engine on another machine cannot be used, since a life's files "
            "and sockets are on this one; run a worker on that machine, with the engine it has there"
        )

    @contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except _errors.APIError as error:
            status = int(error.response.status_code) if error.response is not None else 0
            raise Refused(status, str(error.explanation or error).strip()) from error
        except (_errors.DockerException, _requests.RequestException, OSError, ValueError) as error:
            where = self._where.get("base_url", "DOCKER_HOST")
            raise Unreachable(
                f"the Docker engine at {where} cannot be reached ({_reason(error)}); start it, see that you "
                "may use it (the group docker), or name another one of this machine with DOCKER_HOST"
            ) from error


class _Call(Generic[T]):
    """One question, under way from now on."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask, self._loop = ask, asyncio.get_running_loop()
        self._over = anyio.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="docker", daemon=True).start()

    async def answer(self) -> T:
        try:
            await self._over.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                await self._over.wait()
            raise
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._ask())
        except BaseException as error:  # it is for whoever asked
            self._error = error
        with suppress(RuntimeError):  # the loop was closed, and nobody is left to be told
            self._loop.call_soon_threadsafe(self._over.set)


def _reason(error: BaseException) -> str:
    """The innermost cause: around it are only the layers of a client."""
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    return str(inner) or type(inner).__name__
