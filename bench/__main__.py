"""``python -m bench [SCENARIO ...] [--quick] [--rounds N] [--only SUBJECT] [--json FILE]``: measure and keep.

Without names, all scenarios. What was measured replaces what the file had of the same scenario; the page
``docs/benchmarks.md`` is made from that file by ``python -m bench.page``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import msgspec

from bench.machine import commit, machine
from bench.measure import Options, Report, Result
from bench.tables import shown

SCENARIOS = ("append", "turn", "gateway", "recovery", "scale", "commandline")
RESULTS = Path(__file__).parent / "results.json"


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def save(path: Path, report: Report) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def measured(name: str, options: Options) -> Result:
    """Run a scenario."""
    began, load_before = time.monotonic(), os.getloadavg()[0]
    result: Result = import_module(f"bench.{name}").run(options)
    result.date, result.commit = time.strftime("%Y-%m-%d", time.gmtime()), commit()
    result.seconds = round(time.monotonic() - began, 1)
    result.load = (round(load_before, 2), round(os.getloadavg()[0], 2))
    return result


@contextmanager
def compiled() -> Generator[None]:
    """What is installed is compiled. Where Python is told to keep nothing of what it compiles, every start of
    ours would compile us anew."""
    with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
            os.environ["PYTHONPYCACHEPREFIX"] = folder
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: is it all there, not how fast is it"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each scenario")
    parser.add_argument("--only", action="append", default=[], help="subjects with this in their name")
    parser.add_argument("--json", type=Path, help="file that keeps what was measured", default=None)
    given = parser.parse_args()
    names = given.scenarios or list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    options = Options(given.quick, given.rounds, tuple(given.only), say)
    report = Report(machine())
    if given.json is not None and given.json.exists():
        report = Report(machine(), load(given.json).results)
    with compiled():
        for name in names:
            report.results[name] = measured(name, options)
            print(shown(report.results[name]), flush=True)
            if given.json is not None:
                save(given.json, report)


if __name__ == "__main__":
    main()
