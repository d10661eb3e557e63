"""``python -m harness_durable.testing.adapters NAME...``: a row a promise; exit code 1 if any is broken."""

from __future__ import annotations

import sys

import anyio

from harness_durable.testing.adapters import PROMISES, Subject, check_promise


async def main(names: list[str]) -> int:
    broken = 0
    for name in names:
        for promise in PROMISES:
            result = await check_promise(promise, Subject(name))
            broken += not result.ok
            word = "broken" if not result.ok else "kept" if result.tried else "not tried"
            sys.stdout.write(f"{name}\t{result.id}\t{word}\t{result.promise}\t{result.detail}\n")
            sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
