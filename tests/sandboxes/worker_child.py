"""A worker of its own, for tests that kill it: ``worker_child.py ROOT LIFE WATCH``.

It starts a life, speaks to it, takes its request without answering, says ``ready``, reaches a crash
point, waits for a line, speaks again, and says what came of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from harness_durable import crashpoints
from harness_durable.errors import SandboxError
from harness_durable.sandbox import LifeSpec
from harness_durable.testing.sandboxes.bench import PATH
from harness_durable_sandboxes.local import LocalSandbox

HARNESS = """
import os, socket, subprocess, sys
fifo = os.open(sys.argv[2], os.O_WRONLY)
os.set_inheritable(fifo, True)
subprocess.Popen(["sleep", "1000"], pass_fds=[fifo], start_new_session=True)
os.write(fifo, b"x")
print("began", flush=True)
print("heard", sys.stdin.readline().strip(), flush=True)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.sendall(b"question")
    print("asked", flush=True)
    print("answer", s.recv(100).decode(), flush=True)
print("heard", sys.stdin.readline().strip(), flush=True)
sys.stdin.read()
"""


async def main(root: str, life: str, watch: str) -> None:
    sandbox = LocalSandbox(Path(root))
    argv = (sys.executable, "-c", HARNESS, "@PORT@", watch)
    spec = LifeSpec(life, "session", argv, {"PATH": PATH}, "/", {}, "token")
    _, link = await sandbox.start(spec, 1)
    await link.write(b"one\n")
    async for request in link.requests():
        assert await request.stream.receive() == b"question"
        break
    print("ready", flush=True)
    crashpoints.reach("life.started")
    await run_sync(sys.stdin.readline)
    try:
        await link.write(b"ghost\n")
    except SandboxError as error:
        print(type(error).__name__, flush=True)
    else:
        print("written", flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
