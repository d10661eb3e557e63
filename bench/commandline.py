"""How long does a command take, from start to exit, beside Python with an argparse that does nothing."""

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
OURS = [sys.executable, "-m", "harness_durable.cli.main"]
COMMANDS = {
    "Python alone": [sys.executable, "-c", "pass"],
    ARGPARSE: [sys.executable, "-c", "import argparse; argparse.ArgumentParser().parse_args([])"],
    "harness-durable --help": [*OURS, "--help"],
    "harness-durable sessions": [*OURS, "sessions"],
    f"harness-durable trace, {EVENTS} events": [*OURS, "trace", "long"],
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
        url = f"sqlite:{Path(folder, 'world.db')}"
        anyio.run(fill, url, EVENTS)
        environment = {**os.environ, "HARNESS_DURABLE_WORLD": url}
        for name in names:
            seconds(COMMANDS[name], environment)  # so that all is compiled and in memory
        for _, name in interleaved(names, rounds):
            table.add(name, "start to exit", seconds(COMMANDS[name], environment) * 1000)
    table.sort(names)
    return Result(NAME, rounds, quick=options.quick, tables=[table])
