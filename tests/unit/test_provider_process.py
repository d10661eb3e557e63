"""The provider as a process of its own: it tells its URL, outlives its clients, and leaves in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from harness_durable.testing.provider import Ledger
from harness_durable.testing.provider.__main__ import main
from tests.unit.provider_kit import BASH, body, hear

CLIENT = """
import httpx, sys
with httpx.stream("POST", sys.argv[1] + "/v1/messages", json={
    "model": "m", "stream": True, "messages": [{"role": "user", "content": "doomed"}]}) as response:
    for piece in response.iter_bytes():
        print("got", flush=True)
"""


@contextmanager
def provider(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str], None, None]:
    command = [sys.executable, "-W", "error", "-m", "harness_durable.testing.provider", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def wait_for_end(ledger: Path, n: int) -> str:
    """How request ``n`` ended; waits until the file says so."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        kinds = [line.kind for line in Ledger.read(ledger).lines if line.n == n]
        if len(kinds) > 1:
            return kinds[1]
        time.sleep(0.005)
    raise AssertionError(f"request {n} has no end: {Ledger.read(ledger)}")


def test_the_first_line_is_the_url_and_it_serves(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    options = '{"steps": 1, "nap": 0}'
    with provider("--policy", "steps", "--options", options, "--ledger", str(ledger)) as (_, url):
        assert url.startswith("http://127.0.0.1:")
        answer = httpx.post(f"{url}/v1/messages", json=body(tools=[BASH]))
        assert hear(answer.content).blocks[1].name == "Bash"
        assert wait_for_end(ledger, 1) == "delivered"
    assert [line.kind for line in Ledger.read(ledger).lines] == ["requested", "delivered"]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_it_leaves_in_order_when_told(sign: signal.Signals) -> None:
    with provider() as (process, url):
        assert httpx.head(url).status_code == 200
        process.send_signal(sign)
        assert process.wait(timeout=30) == 0


def test_it_outlives_a_client_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    script, ledger = tmp_path / "script.json", tmp_path / "ledger.jsonl"
    script.write_text(
        '[{"blocks": [{"type": "text", "text": "x"}], "faults": '
        '[{"type": "hang", "event": 1, "seconds": 3600}]}]'
    )
    with provider("--policy", f"script:{script}", "--ledger", str(ledger)) as (process, url):
        command = [sys.executable, "-c", CLIENT, url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            os.kill(client.pid, signal.SIGKILL)
        assert wait_for_end(ledger, 1) == "client_gone"
        assert process.poll() is None
        assert httpx.head(url).status_code == 200


def test_the_ledger_survives_the_death_of_the_provider(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    for n in (1, 2):
        with provider("--ledger", str(ledger)) as (_, url):
            httpx.post(f"{url}/v1/messages", json=body())
            assert wait_for_end(ledger, n) == "delivered"
    tally = Ledger.read(ledger)
    assert [line.n for line in tally.lines] == [1, 1, 2, 2]
    assert list(tally.paid_twice().values()) == [2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "nope"],
        ["--policy", "echo", "--options", "{"],
        ["--mood", "jolly"],
        ["--ledger", "/dev/null/no/such/ledger"],
    ],
)
def test_arguments_that_cannot_be_used_are_told(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.strip()


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    assert "address already in use" in capsys.readouterr().err.lower()
