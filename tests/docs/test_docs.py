"""Every ``sh`` and ``python`` block of our pages runs as it is printed, top to bottom, in a scratch folder.

The model is scripted, and ``PG*`` variables name a server that is thrown away. ``pip install`` of this very
package is checked and not run. A block that needs things
of the reader's own says so in its first line, ``# A fragment: ...``, and must then still be valid Python.
Names that the pages mention (settings, commands, files) must exist."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Generator
from importlib.metadata import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

import harness_durable
from harness_durable.cli.main import COMMANDS
from harness_durable.origins import PREFIX
from harness_durable.settings import Settings
from tests.worlds.postgres_support import cluster, fresh_schema

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *(
            page
            for where in ("docs/*.md", "*/README.md", "examples/*/README.md")
            for page in ROOT.glob(where)
        ),
    ]
)
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FRAGMENT = "# A fragment: "
INSTALL = ("pip install harness-durable", "pip install 'harness-durable[postgres]'")
PLACE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w-]+/|\w+\.(?:py|md|tla))`")
BLANK = "NAME"
"""What a reader replaces by a name of their own."""
NO_SETTINGS = {
    "HARNESS_DURABLE_ALLOW_NETWORK_FS",
    "HARNESS_DURABLE_OPENCODE_CONTEXT",
    "HARNESS_DURABLE_OPENCODE_OUTPUT",
    "HARNESS_DURABLE_PI_SETTINGS",
}
"""Variables that pages mention and that are no settings; each is read by one module itself."""


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    name = str(page.relative_to(ROOT))
    return [Block(name, found[2], textwrap.dedent(found[3])) for found in FENCE.finditer(page.read_text())]


EVERY = [block for page in PAGES for block in blocks(page)]
RUNNABLE = [page for page in PAGES if any(block.language in ("sh", "python") for block in blocks(page))]


@pytest.fixture(scope="session")
def provider() -> Generator[str]:
    command = [
        sys.executable,
        "-m",
        "harness_durable.testing.provider",
        "--policy",
        "tests.docs.policy:policy",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def program(block: Block) -> list[str]:
    """The command that runs a block; a ``main`` that the reader would call is called."""
    if block.language == "sh":
        kept = [line for line in block.text.splitlines() if line not in INSTALL]
        return ["bash", "-euo", "pipefail", "-c", "\n".join(kept)]
    main = "async def main()" in block.text and "asyncio.run(main())" not in block.text
    call = "\nimport asyncio\nasyncio.run(main())\n" if main else ""
    return [sys.executable, "-W", "error", "-c", block.text + call]


def postgres() -> dict[str, str]:
    """The reader's server, with a database that no other page has used."""
    server, database = cluster(), fresh_schema()
    server.sql(f"create database {database}")
    place = {"PGHOST": str(server.folder), "PGPORT": str(server.port)}
    return {**place, "PGUSER": server.user, "PGDATABASE": database}


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, tmp_path: Path, provider: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    env |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HARNESS_DURABLE_UPSTREAM_URL": provider,
        "ANTHROPIC_API_KEY": "sk-docs",
        "HARNESS_DURABLE_RUN_DIR": str(tmp_path / "run"),
        **postgres(),
    }
    folder = tmp_path / "scratch"
    folder.mkdir()
    for block in blocks(page):
        if block.language not in ("sh", "python"):
            continue
        if block.text.startswith(FRAGMENT):
            compile(block.text, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            continue
        done = subprocess.run(
            program(block), cwd=folder, env=env, capture_output=True, text=True, timeout=170
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"


def test_what_pip_is_told_to_install_is_what_this_is() -> None:
    assert all(any(line in block.text.splitlines() for block in EVERY) for line in INSTALL)
    assert metadata("harness-durable")["Version"] == harness_durable.__version__
    assert (
        "postgres" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


def test_make_blocks_name_targets_that_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [word for block in EVERY for word in re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)]
    assert "demo" in named
    assert set(named) <= set(targets)


def test_settings_and_commands_that_pages_mention_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    assert settings.isdisjoint(NO_SETTINGS)
    mentioned = set(re.findall(rf"\b{PREFIX}\w+", text))
    assert mentioned - settings == NO_SETTINGS
    shown = "\n".join(block.text for block in EVERY)
    named = re.findall(r"`harness-durable ([\w-]+)", text)
    named += re.findall(r"^harness-durable ([\w-]+)", shown, re.MULTILINE)
    assert "run" in named
    assert set(named) <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(NO_SETTINGS))
def test_variables_that_are_no_settings_are_read_by_exactly_one_module(name: str) -> None:
    rooms = ("harness_durable", "adapters", "sandboxes", "worlds")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    constants = [ast.walk(ast.parse(path.read_text())) for path in files if name in path.read_text()]
    assert [sum(isinstance(n, ast.Constant) and n.value == name for n in one) for one in constants] == [1]


def bases(page: Path) -> list[Path]:
    """Folders that a page may leave out of a path: its own, its package's, the core's."""
    return [ROOT, page.parent, ROOT / "harness_durable", *page.parent.glob("harness_durable_*")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = [place for place in PLACE.findall(FENCE.sub("", page.read_text())) if BLANK not in place]
    assert named or page.name != "CONTRIBUTING.md"
    assert [place for place in named if not any((base / place).exists() for base in bases(page))] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", harness_durable.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    assert getattr(importlib.import_module("harness_durable"), name).__doc__
