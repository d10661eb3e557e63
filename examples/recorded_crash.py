"""A crash is recorded, and kept as one page that opens from disk.

python examples/recorded_crash.py [PAGE.html]

``recorded_crash.html`` beside this file was made so. Without a name the page is made and thrown away.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = [sys.executable, "-m", "harness_durable.cli.main"]


def record(folder: Path) -> str:
    """The World of a session in which the worker, the keeper and the agent were killed while a tool ran."""
    demo = [*COMMAND, "demo", "--adapter", "pi", "--keep", str(folder)]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return f"sqlite:{folder / 'demo' / 'world.db'}"


def export(world: str, page: Path, folder: Path) -> None:
    """The page, without the name of the folder that it was recorded in."""
    words = ["export", "demo", "--to", "html", "-o", str(page), "--redact", re.escape(str(folder / "demo"))]
    subprocess.run([*COMMAND, *words, "--world", world], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/page.html")
        world = record(Path(scratch).resolve() / "kept")
        export(world, page, Path(scratch).resolve() / "kept")
        content = page.read_text()
        print(f"One file of {len(content) // 1000} kB, which asks nobody for anything.")
        print(f"It says: {re.findall(r'Life 1 died', content)[0]}, lost with its worker while deploy ran.")
        print(f"It names the folder {content.count(scratch)} times.")


if __name__ == "__main__":
    main()
