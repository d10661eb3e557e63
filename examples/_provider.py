"""What lets the examples run anywhere: a model that follows a script, when you have set no key. And a worker
to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

YOURS = ("ANTHROPIC_API_KEY", "HARNESS_DURABLE_UPSTREAM_KEY", "HARNESS_DURABLE_UPSTREAM_URL")


def calls(tool: str, **arguments: Any) -> dict[str, Any]:
    """The scripted model calls a tool. One of yours has a prefix, as a real model would see it."""
    return {"blocks": [{"type": "tool_use", "name": tool, "input": arguments}]}


def says(text: str) -> dict[str, Any]:
    """The scripted model ends its turn with this text."""
    return {"blocks": [{"type": "text", "text": text}]}


@contextmanager
def model(*replies: dict[str, Any]) -> Generator[None]:
    """Your own provider if you have set a key; else a scripted one in a process of its own, so that it
    outlives the workers that we kill."""
    if any(os.environ.get(name) for name in YOURS):
        yield
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
        json.dump(replies, script)
        script.flush()
        command = [
            sys.executable,
            "-m",
            "harness_durable.testing.provider",
            "--policy",
            f"script:{script.name}",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            os.environ["HARNESS_DURABLE_UPSTREAM_URL"] = process.stdout.readline().strip()
            os.environ["HARNESS_DURABLE_UPSTREAM_KEY"] = "sk-scripted"
            try:
                yield
            finally:
                process.terminate()


@contextmanager
def folder() -> Generator[Path]:
    """A new folder to work in; everything that the example makes is below it, and removed at the end."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="harness-durable-") as path:
        os.chdir(path)
        os.environ["HARNESS_DURABLE_RUN_DIR"] = f"{path}/run"
        try:
            yield Path(path)
        finally:
            os.chdir(before)


def kill_worker_after(effect: Path, program: str) -> None:
    """Run ``program`` as a worker, and kill it as soon as the file ``effect`` is there."""
    worker = subprocess.Popen([sys.executable, program, "first"])
    while not effect.exists():
        assert worker.poll() is None, "the first worker ended by itself"
        time.sleep(0.05)
    worker.kill()
    worker.wait()
