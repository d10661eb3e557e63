"""A turn of 10 and of 100 tool calls through a real harness, with us and without us.

The model is scripted, and answers at once; a tool call is a shell command that takes no time. So this is the
worst case: all that is left is what the harness and we do. Seconds are those from the first model request to
the last byte of the last answer, by the provider's own notes, and from the start of the command to its end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import anyio

from bench.driving import on_disk
from bench.measure import Options, Result, Table, interleaved
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.policies.steps import Steps
from harness_durable_adapters.claude_code.install import PINNED
from tests.crash.scene import KEY, Scene

NAME = "turn"
CALLS = (10, 100)
ALONE = "Claude Code alone"
WORLDS = {"with harness-durable, file": "file", "with harness-durable, SQLite": "sqlite"}
NAMES = [ALONE, *WORLDS]
SYNCS = re.compile(r"^\d+ +(fsync|fdatasync|syncfs|sync_file_range)\(", re.MULTILINE)


class Turn(NamedTuple):
    """``seconds``: of the turn; ``whole``: of the command. ``syncs``: of the disk, if they were counted."""

    seconds: float
    whole: float
    cpu: float
    stored: int
    syncs: int | None


def alone(scene: Scene) -> tuple[list[str], dict[str, str]]:
    command = [
        anyio.run(PINNED.find).path,
        "-p",
        scene.text,
        "--model",
        "claude-sonnet-4-5",
        "--setting-sources",
        "",
    ]
    command += ["--allowedTools", "Bash"]
    return command, {
        "PATH": os.environ["PATH"],
        "HOME": str(scene.hosts[0].home),
        "ANTHROPIC_BASE_URL": scene.url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def ours(scene: Scene) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "harness_durable.cli.main", "run", scene.text, "--session", "bench"]
    command += ["--adapter", "claude-code", "--workspace", str(scene.workspace)]
    return command, {
        **os.environ,
        "HARNESS_DURABLE_WORLD": scene.world,
        "HARNESS_DURABLE_RUN_DIR": str(scene.hosts[0].run_dir),
        "HARNESS_DURABLE_UPSTREAM_URL": scene.url,
        "ANTHROPIC_API_KEY": KEY,
    }


def turn(name: str, calls: int, *, count: bool = False) -> Turn:
    """Once. With ``count`` the syncs are counted, which takes time of its own."""
    with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
        root = Path(folder)
        policy = Steps(steps=calls, pair_every=0, nap=0.0)
        with Scene(root, WORLDS.get(name, "sqlite"), policy=policy) as scene:
            command, environment = alone(scene) if name == ALONE else ours(scene)
            trace = root / "strace.txt"
            if count:
                strace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range"]
                command = [*strace, "-o", str(trace), *command]
            done = subprocess.run(
                [sys.executable, str(Path(__file__).with_name("reaper.py")), *command],
                env=environment,
                cwd=scene.workspace,
                capture_output=True,
                text=True,
                check=True,
            )
            took = json.loads(done.stdout)
            lines = Ledger.read(scene.ledger).lines
            effects = scene.effects.read_text().split()
            if took["code"] or len(effects) != calls:
                raise RuntimeError(f"{name}: {len(effects)} of {calls} calls; {done.stderr[-2000:]}")
            first = min(line.t for line in lines if line.kind == "requested")
            last = max(line.t for line in lines if line.kind == "delivered")
            shutil.rmtree(scene.hosts[0].run_dir, ignore_errors=True)
            on_disk(root)  # what SQLite's log holds is in the database then
            stored = sum(on_disk(each).size or each.stat().st_size for each in root.glob("world*"))
            syncs = len(SYNCS.findall(trace.read_text())) if count else None
            return Turn(last - first, took["seconds"], took["cpu"], stored, syncs)


def tables() -> dict[str, Table]:
    return {
        "turn": Table(
            "turn", "A turn, from its first model request to its last answer", "s", False, ALONE, 2
        ),
        "whole": Table("whole", "The whole command, from start to exit", "s", False, ALONE, 2),
        "added": Table("added", "What we add to a tool call and its model call", "ms", False),
        "cpu": Table("cpu", "CPU of all processes", "s", False, ALONE, 2),
        "stored": Table("stored", "What the World stores", "KB", False, digits=0),
        "syncs": Table("syncs", "Syncs of the disk, by everybody (counted once)", "syncs", False, digits=0),
    }


def run(options: Options) -> Result:
    rounds = options.rounds or (1 if options.quick else 3)
    names, kept = options.of(NAMES), tables()
    turns: dict[tuple[str, int], list[Turn]] = {}
    for number, name in interleaved(names, rounds):
        for calls in CALLS[: 1 if options.quick else 2]:
            options.say(f"turn: round {number + 1} of {rounds}: {calls} calls, {name}")
            turns.setdefault((name, calls), []).append(turn(name, calls))
    for name in names:
        for calls in CALLS[: 1 if options.quick else 2]:
            counted = turn(name, calls, count=True) if shutil.which("strace") else None
            _keep(kept, name, calls, turns, counted)
    version = anyio.run(PINNED.find).version
    return Result(
        NAME, rounds, quick=options.quick, versions={"Claude Code": version}, tables=list(kept.values())
    )


def _keep(
    kept: dict[str, Table],
    name: str,
    calls: int,
    turns: dict[tuple[str, int], list[Turn]],
    counted: Turn | None,
) -> None:
    case = f"{calls} tool calls"
    for place, each in enumerate(turns[name, calls]):
        kept["turn"].add(name, case, each.seconds)
        kept["whole"].add(name, case, each.whole)
        kept["cpu"].add(name, case, each.cpu)
        if name != ALONE:
            kept["stored"].add(name, case, each.stored / 1024)
            if (ALONE, calls) in turns:
                beyond = each.seconds - turns[ALONE, calls][place].seconds
                kept["added"].add(name, case, beyond / calls * 1000)
    if counted is not None:
        kept["syncs"].add(name, case, counted.syncs)
