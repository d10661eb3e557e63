"""A Docker engine of the tests' own: it can be killed and started again, and whatever else runs on this
machine does not notice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker  # pyright: ignore[reportMissingTypeStubs]

from tests.docker.rootfs import root_file_system

IMAGE = "hd-test:1"
PATIENCE = 60.0  # seconds


class Engine:
    """``dockerd`` with all that it keeps below one folder of its own. Needs root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"unix://{root}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Returns once it answers."""
        for mark in ("pid", "exec/containerd/containerd.pid"):  # of one that was killed
            (self.root / mark).unlink(missing_ok=True)
        command = ["dockerd", "--data-root", f"{self.root}/data", "--exec-root", f"{self.root}/exec"]
        command += ["--pidfile", f"{self.root}/pid", "--host", self.url, *more]
        command += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._until_it_answers()

    def _until_it_answers(self) -> None:
        assert self._process is not None
        give_up = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
                sock.connect(self.url.removeprefix("unix://"))
                sock.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b" 200 " in sock.recv(100):
                    return
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < give_up, self.log()
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it; with SIGKILL, its containers stay until it is back."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=PATIENCE)
            self._process = None

    @contextlib.contextmanager
    def api(self) -> Generator[Any]:
        with closing(docker.APIClient(base_url=self.url, version="1.41", timeout=60)) as api:
            yield api

    def names(self) -> list[str]:
        """Of all containers that are there, running or not."""
        with self.api() as api:
            return [one["Names"][0].removeprefix("/") for one in api.containers(all=True)]

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")[-4000:]

    def provide(self) -> None:
        """The image of the tests, without any registry."""
        with self.api() as api:
            api.import_image_from_data(root_file_system(), repository=IMAGE.partition(":")[0], tag="1")


@contextlib.contextmanager
def running() -> Generator[Engine]:
    """One with the image of the tests. What it leaves mounted when it is killed is taken away."""
    root = Path(tempfile.mkdtemp(prefix="hd-engine-"))
    root.chmod(0o711)
    engine = Engine(root)
    try:
        engine.start()
        engine.provide()
        yield engine
    finally:
        engine.stop()
        _kill_rest(root)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            mount = line.split()[1]
            if mount.startswith(f"{root}/"):
                subprocess.run(["umount", "--lazy", mount], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(root, ignore_errors=True)


def _kill_rest(root: Path) -> None:
    """Of an engine that was killed, and of a test that failed: its containers, and who holds them."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{root}/".encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def given(workspace: Path, uid: int = 1000) -> Path:
    """A folder that belongs to somebody, with all that is in it."""
    for path in (workspace, *workspace.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    return workspace
