"""Who dies with whom: a PID namespace of its own, or a guard process where that is forbidden."""

# Importing pathlib would lengthen every start.
# ruff: noqa: PTH123
from __future__ import annotations

import ctypes
import os
import signal
import sys

from . import GUARD_NAME
from .killing import kill_all

PDEATHSIG, DUMPABLE, SUBREAPER, _NAME = 1, 4, 36, 15
_NEWNS, _NEWUSER, _NEWPID = 0x20000, 0x10000000, 0x20000000
_REC_SLAVE, _NOSUID_NODEV_NOEXEC = 0x84000, 14
_ISOLATED, READY = b"I", b"R"

_libc = ctypes.CDLL(None)


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the life is held less firmly."""
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)


def isolate(wanted: str) -> tuple[str, int]:
    """Returns in the keeper only: its kind of isolation, and where to write READY (-1: nowhere).

    The process that was started waits for that, and tells by its exit code how it went. In a
    container the keeper is process 1 already, and stays the process that was started.
    """
    if os.getpid() == 1:
        return "container", -1
    kinds = ["guard"]
    if sys.platform == "linux" and wanted == "auto":
        kinds = ["userns", "guard"] if os.getuid() else ["pidns", "userns", "guard"]
    for kind in kinds:
        report, verdict = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            os.close(report)
            if kind == "guard":
                _under_guard()
            else:
                _in_namespace(with_user=kind == "userns")
            os.write(verdict, _ISOLATED)
            return kind, verdict
        os.close(verdict)
        if os.read(report, 1) == _ISOLATED:
            os._exit(0 if os.read(report, 1) == READY else 1)
        os.waitpid(child, 0)
        os.close(report)
    os._exit(1)


def _in_namespace(with_user: bool) -> None:
    """Returns only in process 1 of a new PID namespace that sees its own /proc."""
    try:
        uid, gid = os.getuid(), os.getgid()
        if _libc.unshare(_NEWNS | _NEWPID | (_NEWUSER if with_user else 0)) != 0:
            os._exit(0)
        if with_user:
            _put("/proc/self/setgroups", "deny")
            _put("/proc/self/uid_map", f"{uid} {uid} 1")
            _put("/proc/self/gid_map", f"{gid} {gid} 1")
        if os.fork():
            os._exit(0)
        os.setsid()
        # What the host mounts later is seen inside; nothing mounted inside leaks out.
        _libc.mount(b"none", b"/", None, _REC_SLAVE, None)
        if _libc.mount(b"proc", b"/proc", b"proc", _NOSUID_NODEV_NOEXEC, None) != 0:
            os._exit(0)
    except OSError:
        os._exit(0)


def _under_guard() -> None:
    """Returns only in the keeper; its parent, the guard, kills what a dead keeper leaves behind."""
    prctl(SUBREAPER, 1)
    guard, keeper = os.getpid(), os.fork()
    if keeper == 0:
        os.setsid()
        prctl(SUBREAPER, 1)
        prctl(PDEATHSIG, signal.SIGTERM)  # without its guard the keeper ends the life in order
        if os.getppid() != guard:
            os._exit(1)
        return
    if sys.platform == "linux":
        _libc.prctl(_NAME, GUARD_NAME, 0, 0, 0)
    os.closerange(
        3, min(os.sysconf("SC_OPEN_MAX"), 1 << 16)
    )  # the relay's socket, and the pipe whose end means that the start failed

    def pass_on(number: int, _: object) -> None:
        os.kill(keeper, number)

    signal.signal(signal.SIGTERM, pass_on)
    while os.wait()[0] != keeper:
        pass
    kill_all(lambda pid, status: None)
    os._exit(0)


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
