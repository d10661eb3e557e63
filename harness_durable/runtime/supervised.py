"""What a worker owes to whoever supervises it: word that it is up, and an end that is an end.

systemd is told through the socket that it names (``Type=notify``, ``WatchdogSec=``); else nothing is sent.
``Guard`` is for what no task can see: an event loop that stands still, or a process that should leave and
hangs. It is a thread, counts its own ticks (a process that was paused has missed none), and ends the process
hard. That loses nothing: keepers hold the harnesses, and the lease ends by itself.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

STDERR = 2

TICK = 1.0
"""Seconds between two looks of the guard."""


class Supervisor:
    """systemd, if it is there."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        address = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        self._tell("READY=1")

    def alive(self) -> None:
        """Only while there is progress: without it, systemd ends and restarts the service."""
        self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, word: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.setblocking(False)
            try:
                stream.sendto(word.encode(), self._address)
            except OSError:
                return  # nobody listens (any more); what is told is for their good, not for ours


class Guard:
    """``beat`` is called by the event loop at least every few seconds; once it has not been for ``patience``
    seconds, the process ends with code 1. After ``leave`` it ends in any case. Before ``start``, nothing."""

    def __init__(self, patience: float) -> None:
        self._patience = self._left = patience
        self._leaving = False
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)

    def start(self) -> Guard:
        """Watch from now on, also while the interpreter waits for threads at its end."""
        self._thread.start()
        return self

    def beat(self) -> None:
        if not self._leaving:
            self._left = self._patience

    def leave(self, within: float) -> None:
        """From now on there are so many seconds left; said again, as many again if that is sooner."""
        self._left = min(self._left, within) if self._leaving else within
        self._leaving = True

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(TICK):
            self._left -= TICK
            if self._left < 0:
                what = "could not leave in time" if self._leaving else "stood still for too long"
                sentence = f"error: this worker {what} and ends at once; its sessions go on from the log"
                _say(sentence)
                os._exit(1)


def _say(sentence: str) -> None:
    """Past the lock of sys.stderr, which the thread that hangs may hold; not at all if nobody reads it, since
    that may be what it hangs in."""
    with suppress(OSError):
        if select.select([], [STDERR], [], TICK)[1]:
            os.write(STDERR, f"{sentence}\n".encode())
