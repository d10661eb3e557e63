"""How long does a command take, from start to exit, beside Python with an argparse that does nothing.

``file`` is the file World, the others SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from bench.measure import Options, Result, Table, interleaved
from harness_durable.worlds import open_world
from tests.view.logs import long, write

NAME = "commandline"
EVENTS = 200
ARGPARSE = "Python, argparse and nothing else"
OURS = [str(Path(sys.executable).with_name("harness-durable"))]
TRACE = [*OURS, "trace", "long"]
COMMANDS = {
    "Python alone": [sys.executable, "-c", "pass"],
    ARGPARSE: [sys.executable, "-c", "import argparse; argparse.ArgumentParser().parse_args([])"],
    "harness-durable --help": [*OURS, "--help"],
    "harness-durable sessions": [*OURS, "sessions"],
    "harness-durable sessions, file": [*OURS, "sessions"],
    f"harness-durable trace, {EVENTS} events": TRACE,
    f"harness-durable trace, {EVENTS} events, file": TRACE,
}


async def fill(url: str, count: int) -> None:
    """A session of so many events."""
    world = await open_world(url)
    try:
        await write(world, "long", long(count), {})
    finally:
        await world.aclose()


def seconds(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def run(options: Options) -> Result:
    rounds = options.rounds or (5 if options.quick else 25)
    table = Table("commands", "From start to exit", "ms", False, base=ARGPARSE)
    names = options.of(list(COMMANDS))
    with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
        urls = {scheme: f"{scheme}:{Path(folder, scheme)}" for scheme in ("sqlite", "file")}
        for url in urls.values():
            anyio.run(fill, url, EVENTS)
        worlds = {name: urls["file" if name.endswith(", file") else "sqlite"] for name in names}
        places = {name: {**os.environ, "HARNESS_DURABLE_WORLD": url} for name, url in worlds.items()}
        for name in names:
            seconds(COMMANDS[name], places[name])  # so that all is compiled and in memory
        for _, name in interleaved(names, rounds):
            table.add(name, "start to exit", seconds(COMMANDS[name], places[name]) * 1000)
    table.sort(names)
    return Result(NAME, rounds, quick=options.quick, tables=[table])
