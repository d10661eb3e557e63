"""``python -m bench.reaper COMMAND ...``: run it; print a line of JSON with the seconds it took, and the CPU
of it and of all that it left behind, however detached: whose parent dies becomes a child of this process."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel lets nobody adopt orphans")
    began = time.perf_counter()
    code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    seconds = time.perf_counter() - began
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"code": code, "seconds": seconds, "cpu": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
