"""What the page says of the machine that measured."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path

from bench.measure import Machine

HERE = Path(__file__).parents[1]


def machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=platform.release().split("-")[0],
        disk=_file_system(tempfile.gettempdir()),
        python=platform.python_version(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(place: str) -> str:
    """The type of the file system that the stores are on."""
    found = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if os.path.commonpath([place, point]) == point and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def commit() -> str:
    """Of the code that is measured."""
    done = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short=10", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
