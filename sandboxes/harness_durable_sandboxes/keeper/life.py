"""The life itself: one harness, one attached worker at a time, and the way it all ends."""

# Importing pathlib would lengthen every start.
# ruff: noqa: PTH104, PTH108, PTH123
from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress

from . import FIRST_ATTACH, HELD_CAP, HELD_TOTAL, PROTOCOL, RETRY
from .child import exit_code, oom_kills, spawn
from .control import Door, Lines, dial, refuse
from .killing import kill_all, reap
from .relay import Relay
from .spool import Spool, Stdin
from .streams import Loop, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Message = dict[str, Any]


def publish(name: str, content: Message) -> None:
    """Whole or not there. Raises OSError."""
    with open(name + ".tmp", "w") as file:
        json.dump(content, file)
    os.rename(name + ".tmp", name)


class Keeper:
    """All that one life is. Nothing in here blocks, except to kill."""

    def __init__(self, spec: Message, isolation: str, listener: socket.socket) -> None:
        self.spec, self.isolation = spec, isolation
        self.loop = Loop()
        self.epoch = 0
        self.worker: Stream | None = None
        self.dialled: list[Stream] = []
        self.exit: Message | None = None
        self.told: Message = {}
        self.why = ""
        self.oom_before = oom_kills()
        self.listener = listener
        caps = spec.get("caps", (HELD_CAP, HELD_TOTAL))
        self.relay = Relay(self.loop, listener, (caps[0], caps[1]))
        (stdin, to_stdin), (from_out, out), (from_err, err) = os.pipe(), os.pipe(), os.pipe()
        self.pid = spawn(spec["argv"], spec["env"], spec["cwd"], (stdin, out, err))
        for fd in (stdin, out, err):
            os.close(fd)
        self.stdin = Stdin(self.loop, to_stdin)
        self.out = Spool(self.loop, "out", from_out, self._grown)
        self.err = Spool(self.loop, "err", from_err, self._grown)
        self.status = -1
        self.ops: dict[str, Callable[[Message, bytes], Message]] = {
            "stdin": self._stdin,
            "eof": self._eof,
            "done": self._done,
            "signal": self._signal,
            "kill": self._kill,
            "shutdown": self._shutdown,
            "status": self._status,
            "ack": self._ack,
        }

    # -- a new connection ------------------------------------------------------------------------

    def greet(self, stream: Stream, hello: Message, early: bytes) -> None:
        op, epoch = hello["op"], int(hello.get("epoch", 0))
        if hello.get("v") != PROTOCOL:
            return refuse(stream, "version")
        if hello.get("token") != self.spec["token"]:
            return refuse(stream, "token")
        if op == "ping":
            return self._answer_and_close(stream)
        if op == "shutdown":
            if "epoch" in hello and epoch < self.epoch:
                return refuse(stream, "stale epoch", epoch=self.epoch)
            self._shutdown({}, b"")
            return self._answer_and_close(stream)
        if op == "attach":
            if epoch < self.epoch or (epoch == self.epoch and self.worker):
                return refuse(stream, "stale epoch", epoch=self.epoch)
            return self._attach(stream, epoch, early)
        if epoch != self.epoch or self.worker is None:
            return refuse(stream, "stale epoch", epoch=self.epoch)
        if op == "take":
            return self._take(stream, int(hello["id"]))
        if op == "dial":
            stream.send_line(ok=True, v=PROTOCOL)
            self.dialled = [one for one in self.dialled if one.open]
            self.dialled += [stream, dial(self.loop, stream, int(hello["port"]), early)]
            return None
        return refuse(stream, "not in the protocol")

    def _answer_and_close(self, stream: Stream) -> None:
        stream.send_line(ok=True, v=PROTOCOL)
        stream.finish()

    def _attach(self, stream: Stream, epoch: int, early: bytes) -> None:
        if self.worker:
            self.worker.send_line(ev="superseded", epoch=epoch)
            self._detach()
        self.epoch, self.worker, self.told = epoch, stream, {}
        lines = Lines(b"", lambda message, body: self._command(stream, message, body))

        def heard(data: bytes) -> None:
            try:
                lines.feed(data)
            except (ValueError, KeyError, TypeError, AttributeError):
                ended()

        def ended() -> None:
            if self.worker is stream:
                self._detach()

        stream.on_data, stream.on_end, stream.on_drain = heard, ended, self.news
        stream.send_line(ok=True, v=PROTOCOL, **self._status({}, b""))
        heard(early)

    def _detach(self) -> None:
        """The worker is dead or superseded: all that is its ends here, and the life goes on."""
        if self.worker:
            self.worker.finish()
        self.worker = None
        for stream in self.dialled:
            stream.close()
        self.relay.detach()
        self._wait_for_worker(float(self.spec["ttl"]))

    def _wait_for_worker(self, seconds: float) -> None:
        epoch = self.epoch

        def expired() -> None:
            if self.worker is None and self.epoch == epoch and waiting is self.waiting:
                self._end("ttl")

        self.waiting = waiting = object()
        self.loop.later(seconds, expired)

    def _take(self, stream: Stream, number: int) -> None:
        connection = self.relay.connections.get(number)
        if connection is None or connection.worker:
            refuse(stream, "gone")
        else:
            stream.send_line(ok=True, v=PROTOCOL)
            connection.take(stream)

    # -- commands of the attached worker ---------------------------------------------------------

    def _command(self, stream: Stream, message: Message, body: bytes) -> None:
        try:
            answer = self.ops[message["op"]](message, body)
        except Exception as error:  # nothing that a worker asks for may end the life
            answer = {"ok": False, "error": repr(error)}
        if "id" in message:
            stream.send_line(re=message["id"], **{"ok": True, **answer})

    def _stdin(self, message: Message, frame: bytes) -> Message:
        if message["at"] != self.stdin.size:
            return {"ok": False, "error": "offset", "in": self.stdin.size}
        error = self.stdin.append(frame)
        return {"ok": not error, "error": error, "in": self.stdin.size}

    def _eof(self, message: Message, _: bytes) -> Message:
        self.stdin.end()
        return {}

    def _done(self, message: Message, _: bytes) -> Message:
        connection = self.relay.connections.get(message["conn"])
        if connection:
            connection.done()
        return {}

    def _signal(self, message: Message, _: bytes) -> Message:
        if self.status < 0:
            os.kill(self.pid, int(message["sig"]))
        return {}

    def _kill(self, message: Message, _: bytes) -> Message:
        self.why = self.why or "kill"
        return {"ok": kill_all(self._died, self.pid)}

    def _shutdown(self, message: Message, _: bytes) -> Message:
        self._end("shutdown")
        return {}

    def _status(self, message: Message, _: bytes) -> Message:
        held = [one.id for one in self.relay.connections.values() if one.worker is None]
        return {
            "epoch": self.epoch,
            "pid": self.pid,
            "port": self.listener.getsockname()[1],
            "in": self.stdin.size,
            "fed": self.stdin.fed,
            "isolation": self.isolation,
            "out": self.out.size,
            "err": self.err.size,
            "exit": self.exit,
            "held": held,
            "kept": self.relay.total,
            "blocked": self.out.blocked or self.err.blocked,
        }

    def _ack(self, message: Message, _: bytes) -> Message:
        self.out.forget(int(message["out"]))
        return {}

    # -- what the worker is told, and the end ----------------------------------------------------

    def _grown(self) -> None:
        if self.status >= 0 and self.exit is None:
            self._settle()

    def news(self) -> None:
        """Events are the difference to what was told; a slow reader gets fewer, larger ones."""
        stream = self.worker
        if stream is None or stream.queued:
            return
        for connection in list(self.relay.connections.values()):
            if connection.worker is None and not connection.announced:
                connection.announced = True
                stream.send_line(ev="conn", id=connection.id)
        events: Message = {"size": {"out": self.out.size, "err": self.err.size}, "exit": self.exit}
        for event, content in events.items():
            if content and self.told.get(event) != content:
                self.told[event] = content
                stream.send_line(ev=event, **content)

    def _died(self, pid: int, status: int) -> None:
        if pid == self.pid:
            self.status = status
            self.stdin.close()
            self._settle()

    def _settle(self, now: bool = False) -> None:
        """Tell the end only when all that the harness said before it is in the files, unless we go."""
        drained = self.out.drained() and self.err.drained()
        if self.exit or self.status < 0 or not (drained or now):
            return
        code, kills = exit_code(self.status), oom_kills() - self.oom_before
        why = self.why or ("exit" if code >= 0 else "oom" if kills and code == -9 else "signal")
        self.exit = {"code": code, "t": time.time(), "oom_kill": kills, "why": why}
        self.exit["out"] = self.out.size
        self._record()

    def _record(self) -> None:
        try:
            publish("exit.json", self.exit or {})
        except OSError:
            self.loop.later(RETRY, self._record)

    def signalled(self) -> None:
        for number in os.read(self.wake, 256):
            if number == signal.SIGTERM:
                self._end("sigterm")
        reap(self._died)

    def _end(self, why: str) -> None:
        self.why = self.why or why
        kill_all(self._died, self.pid)
        self.loop.stopped = True

    def run(self, ready: Callable[[], None]) -> None:
        outside = self.isolation in ("pidns", "userns", "container")
        with suppress(FileNotFoundError):
            os.unlink("ctl.sock")
        Door(self.loop, "ctl.sock", self.greet, outside and self.spec.get("peers") != "any")
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for name in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(name, _noted)
        self.loop.watch(self.wake, self.signalled)
        reap(self._died)  # it may have ended before anybody listened
        self._wait_for_worker(min(FIRST_ATTACH, float(self.spec["ttl"])))
        ready()
        self.loop.run(self.news)
        self._settle(now=True)
        self.news()
        with suppress(FileNotFoundError):
            os.unlink("ctl.sock")


def _noted(number: int, frame: object) -> None:
    """The loop learns of signals through its wake-up pipe."""
