"""Two workers and one PostgreSQL without images or services; the worker that drives is killed.

python examples/self_hosted/run_local.py

With HARNESS_DURABLE_WORLD=postgresql://… it is your server that is used, else one that is thrown away. The
model is scripted: three commands of two seconds each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from throwaway import postgres

TOOL = Path(sys.executable).with_name("harness-durable")
WORLD = "HARNESS_DURABLE_WORLD"
SESSION = "ticket-44"
SECONDS = 60.0


def command(*words: str) -> str:
    """``harness-durable WORDS`` as people type it; what it answers."""
    done = subprocess.run([TOOL, *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@contextmanager
def model() -> Generator[None]:
    """A provider that has its agent do three small things."""
    policy = ["--policy", "steps", "--options", json.dumps({"steps": 3, "pair_every": 0, "nap": 2})]
    start = [sys.executable, "-m", "harness_durable.testing.provider", *policy]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.environ["HARNESS_DURABLE_UPSTREAM_URL"] = process.stdout.readline().strip()
        os.environ["HARNESS_DURABLE_UPSTREAM_KEY"] = "sk-scripted"
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def worker(name: str) -> Generator[subprocess.Popen[bytes]]:
    """As its unit or its container starts it; told to stop, at the end, like them."""
    process = subprocess.Popen([TOOL, "worker", "--health", "127.0.0.1:0"], stderr=subprocess.DEVNULL)
    print(f"worker {name}: pid {process.pid}", flush=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def driver() -> int:
    """The pid of the worker that drives, once its agent is in the middle of a command."""
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        [row] = map(json.loads, command("sessions", "--json").splitlines())
        found = re.match(r"pid (\d+) ", row["owner"] or "")
        if found is not None and "Bash released" in command("trace", SESSION):
            return int(found[1])
        time.sleep(0.2)
    raise SystemExit("no worker has taken the session")


def story() -> None:
    command("worlds", "migrate")
    with worker("one") as one, worker("two") as two:
        command("run", "Run the slow tests", "--session", SESSION, "--detach")
        pid = driver()
        print(f"killing the worker that drives: pid {pid}", flush=True)
        os.kill(pid, signal.SIGKILL)
        (one if one.pid == pid else two).wait()
        print(f"the agent: {command('send', SESSION, 'What did you find?', '--follow')}", flush=True)
    print(command("trace", SESSION))


def main() -> None:
    with ExitStack() as stack:
        if not os.environ.get(WORLD, "").startswith("postgres"):
            os.environ[WORLD] = stack.enter_context(postgres())
        stack.enter_context(model())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hd-self-hosted-"))
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        os.environ["HARNESS_DURABLE_RUN_DIR"] = f"{folder}/run"
        os.environ["HARNESS_DURABLE_APP"] = f"self-hosted-{uuid.uuid4().hex[:8]}"  # nobody else's sessions
        story()


if __name__ == "__main__":
    main()
