"""The way out of a container: to what its session names, and nowhere else."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from harness_durable.gateway import WayOut
from harness_durable.testing.sandboxes.bench import PATH, everything
from harness_durable_sandboxes.docker import DockerSandbox
from tests.docker.life_kit import life, shell, spec

FETCH = """
import os, sys, urllib.request, urllib.error
for name in ("no_proxy", "NO_PROXY"):  # it would not ask us for what is here
    del os.environ[name]
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode(), flush=True)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip(), flush=True)
    except OSError as error:
        print("no way:", error, flush=True)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"served {self.path}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody wants to know."""


@pytest.fixture
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield one.server_address[1]
        one.shutdown()
        thread.join()


async def test_a_host_that_is_named_is_reached_and_others_are_not(
    sandbox: DockerSandbox, workspace: Path, server: int
) -> None:
    options = {"allow": "pypi.org", "allow_private": f"localhost:{server}"}
    urls = [f"http://localhost:{server}/yes", "http://elsewhere.test/", "http://127.1/"]
    wanted = spec(workspace, "python3", "-c", FETCH, *urls, options=options)
    said: list[str] = []
    async with life(sandbox, wanted) as (_, link), anyio.create_task_group() as tasks:
        tasks.start_soon(WayOut(sandbox.allowed(options)).serve_all, link.requests())
        said += (await everything(link)).decode().splitlines()
        tasks.cancel_scope.cancel()
    assert said[0] == "served /yes"
    assert said[1].startswith("403 harness-durable: elsewhere.test:80 is not on the list"), said
    assert said[2].startswith("403 harness-durable: 127.1:80 is not on the list"), said


async def test_without_a_list_there_is_not_even_a_proxy(
    sandbox: DockerSandbox, workspace: Path, server: int
) -> None:
    said = await shell(sandbox, workspace, "env | grep -i proxy; echo none")
    assert said == "none\n"
    said = await shell(sandbox, workspace, "env | grep -i proxy | sort", options={"allow": "pypi.org"})
    proxied = [line.partition("=")[2] for line in said.splitlines()]
    assert proxied.count("http://127.0.0.1:8484") == 4
    assert proxied.count("127.0.0.1,localhost") == 2, "the model is asked without it"


async def test_a_command_by_itself_has_the_same_way_out(
    sandbox: DockerSandbox, workspace: Path, server: int
) -> None:
    """Such as one that installs packages before the agent goes on."""
    found = await sandbox.exec(
        ("python3", "-c", FETCH, f"http://localhost:{server}/packages"),
        cwd=workspace,
        env={"PATH": PATH},
        timeout=60,
        options={"allow_private": f"localhost:{server}"},
    )
    assert (found.returncode, found.stdout) == (0, b"served /packages\n"), found
