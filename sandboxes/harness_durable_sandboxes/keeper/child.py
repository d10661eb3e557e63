"""Starting the harness, and reading how it ended."""

# Importing pathlib would lengthen every start.
# ruff: noqa: PTH123
from __future__ import annotations

import errno
import json
import os
import signal
from contextlib import suppress

from .isolation import PDEATHSIG, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class StartFailed(Exception):
    """The harness could not be started: at which step (prepare, cwd, exec), and the errno."""

    def __init__(self, step: str, code: int, text: str) -> None:
        self.what: dict[str, object] = {"step": step, "errno": code, "error": text}
        super().__init__(text)


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: tuple[int, int, int]) -> int:
    """Fork and exec in a new session; the child dies with this process. Raises StartFailed."""
    answer, tell = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _become(argv, env, cwd, stdio, parent, tell)
    os.close(tell)
    with os.fdopen(answer, "rb") as file:
        failure = file.read()
    if failure:
        os.waitpid(pid, 0)
        raise StartFailed(*json.loads(failure))
    return pid


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdio: tuple[int, int, int],
    parent: int,
    tell: int,
) -> None:
    """In the child; never returns. ``tell`` closes by itself when exec succeeds."""
    step = "prepare"
    try:
        os.setsid()
        prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT):
            signal.signal(name, signal.SIG_DFL)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory is short, the harness goes before its keeper
        step = "cwd"
        os.chdir(cwd)
        step = "exec"
        os.execvpe(argv[0], list(argv), dict(env))
    except BaseException as error:
        code = (error.errno if isinstance(error, OSError) else None) or errno.EINVAL
        os.write(tell, json.dumps([step, code, str(error)]).encode())
    finally:
        os._exit(127)


def exit_code(status: int) -> int:
    """As in subprocess: negative for a signal."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def oom_kills() -> int:
    """How often the kernel killed something in this memory group; 0 where nobody counts."""
    paths = ["/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"]
    with suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, kind, group = line.rstrip("\n").split(":", 2)
            if kind == "":
                paths.insert(0, f"/sys/fs/cgroup{group}/memory.events")
            elif "memory" in kind.split(","):
                paths.insert(0, f"/sys/fs/cgroup/memory{group}/memory.oom_control")
    for path in paths:
        with suppress(OSError, ValueError), open(path) as file:
            counts = dict(line.split() for line in file)
            return int(counts["oom_kill"]) if "oom_kill" in counts else 0
    return 0
