"""From the command line to a running life: the spec, the isolation, the sockets."""

# Importing pathlib would lengthen every start.
# ruff: noqa: PTH108, PTH123
from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

from . import PROTOCOL
from .child import StartFailed
from .isolation import DUMPABLE, READY, isolate, prctl
from .life import Keeper, publish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Message = dict[str, Any]


def _listener(spec: Message) -> socket.socket:
    """The relay's socket: inherited, or bound here (in a container nobody else could)."""
    if "relay_fd" in spec:
        os.set_inheritable(spec["relay_fd"], False)
        return socket.socket(fileno=spec["relay_fd"])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", spec.get("port", 0)))
    listener.listen(128)
    return listener


def main(run: str) -> NoReturn:
    began = time.monotonic()
    os.chdir(run)
    with open("spec.json") as file:
        spec = json.load(file)
    os.unlink("spec.json")
    isolation, report = isolate(spec.get("isolation", "auto"))
    prctl(DUMPABLE, 0)
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(name, signal.SIG_IGN)
    try:
        keeper = Keeper(spec, isolation, _listener(spec))
    except StartFailed as error:
        publish("failed.json", error.what)
        sys.exit(1)

    def ready() -> None:
        about = {"v": PROTOCOL, "isolation": isolation, "pid": os.getpid(), "child": keeper.pid}
        publish("keeper.json", {**about, "start": time.monotonic() - began})
        if report >= 0:
            os.write(report, READY)
            os.close(report)

    keeper.run(ready)
    sys.exit(0)
