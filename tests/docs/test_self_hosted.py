"""The self-hosting example: its local run tells its story; its files name nothing that does not exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click import Command

from harness_durable.cli.worker import worker
from harness_durable.origins import PREFIX
from harness_durable.runtime.lives import LEAVE_SECONDS
from harness_durable.settings import Settings
from harness_durable.world import ANSWER_SECONDS
from tests.worlds.postgres_support import cluster

FOLDER = Path(__file__).parents[2] / "examples" / "self_hosted"
UNIT = FOLDER / "harness-durable-worker@.service"
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}

Node = dict[str, "Node"] | list[str] | str


# -------------------------------------------------------------------------------------- it runs


@pytest.mark.parametrize("server", ["thrown away", "yours"])
def test_the_local_run_kills_a_worker_and_the_other_one_takes_over(server: str, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    if server == "yours":
        env["HARNESS_DURABLE_WORLD"] = cluster().url()
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server is another user's
        done = subprocess.run(
            [sys.executable, "-W", "error", FOLDER / "run_local.py"],
            cwd=tmp_path,
            env=env | {"TMPDIR": place},
            capture_output=True,
            text=True,
            timeout=170,
        )
        assert done.returncode == 0, done.stderr
        assert list(Path(place).iterdir()) == []
    [killed] = re.findall(r"^killing the worker that drives: pid (\d+)$", done.stdout, re.MULTILINE)
    assert killed in re.findall(r"^worker \w+: pid (\d+)$", done.stdout, re.MULTILINE)
    assert "the agent: ALL-DONE" in done.stdout
    story = done.stdout.partition("session created")[2]
    assert "life 1 begins" in story
    assert "a new worker attaches to life 1" in story
    assert story.count("turn completed") == 2
    assert "unknown" not in story.partition("## Lives")[0]
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------- the compose file


def read_yaml(text: str) -> dict[str, Node]:
    """As much of YAML as the compose file uses: mappings, lists of words, quotes, one-line lists. Anything
    else fails."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found, rest = _block(lines, 0)
    assert rest == []
    assert isinstance(found, dict)
    return found


def _block(lines: list[str], indent: int) -> tuple[Node, list[str]]:
    pattern = re.compile(rf" {{{indent}}}([\w-]+):(?: (\S.*))?")
    items: list[str] = []
    found: dict[str, Node] = {}
    while lines and len(lines[0]) - len(lines[0].lstrip(" ")) == indent:
        if lines[0].startswith(" " * indent + "- "):
            items.append(_word(lines.pop(0)[indent + 2 :]))
            continue
        key = pattern.fullmatch(lines.pop(0))
        assert key is not None and key[1] not in found
        deeper = len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0
        if key[2] is not None:
            found[key[1]] = _words(key[2])
        elif deeper > indent:
            found[key[1]], lines = _block(lines, deeper)
        else:
            found[key[1]] = ""
    assert not (items and found)
    return items or found, lines


def _words(text: str) -> Node:
    if not text.startswith("["):
        return _word(text)
    assert re.fullmatch(r'\[("[^"]*"(, )?)+\]', text), text
    return re.findall(r'"([^"]*)"', text)


def _word(text: str) -> str:
    assert re.fullmatch(r'"[^"\\]*"|[^\s"\'&*!|>%@`{\[][^#]*', text), text
    return text.strip('"')


def part(node: Node, *path: str) -> dict[str, Node]:
    for name in path:
        assert isinstance(node, dict)
        node = node[name]
    assert isinstance(node, dict)
    return node


@pytest.fixture(scope="module")
def compose() -> dict[str, Node]:
    return read_yaml((FOLDER / "compose.yaml").read_text())


def seconds(text: Node) -> int:
    assert isinstance(text, str)
    found = re.fullmatch(r"(\d+)s?", text)
    assert found is not None
    return int(found[1])


def test_the_compose_file_has_a_database_and_two_workers(compose: dict[str, Node]) -> None:
    services = part(compose, "services")
    assert set(services) == {"database", "worker"}
    assert part(services, "worker", "deploy") == {"replicas": "2"}
    assert part(services, "worker", "depends_on", "database") == {"condition": "service_healthy"}
    volumes = part(compose, "volumes")
    for service in ("database", "worker"):
        mounted = part(services, service)["volumes"]
        assert isinstance(mounted, list)
        assert all(mount.partition(":")[0] in volumes for mount in mounted)


def test_workers_in_containers_get_the_time_that_they_need_to_leave(compose: dict[str, Node]) -> None:
    service = part(compose, "services", "worker")
    drained = seconds(part(service, "environment")["HARNESS_DURABLE_DRAIN_SECONDS"])
    assert seconds(service["stop_grace_period"]) >= drained + LEAVE_SECONDS + ANSWER_SECONDS


def test_the_health_of_a_container_is_asked_where_its_worker_tells_it(compose: dict[str, Node]) -> None:
    service = part(compose, "services", "worker")
    test = part(service, "healthcheck")["test"]
    assert isinstance(test, list)
    assert f"http://{part(service, 'environment')['HARNESS_DURABLE_HEALTH']}/healthz" in test[-1]
    compile(test[-1], "healthcheck", "exec")


def test_settings_that_the_containers_are_given_exist(compose: dict[str, Node]) -> None:
    files = [FOLDER / "Dockerfile", FOLDER / "worker.env.example", FOLDER / "compose.yaml", UNIT]
    text = "\n".join(path.read_text() for path in files)
    named = set(re.findall(rf"\b({PREFIX}\w+)=|\b({PREFIX}\w+):", text))
    assert {one or other for one, other in named} - SETTINGS == set()
    assert "HARNESS_DURABLE_WORLD" in part(compose, "services", "worker", "environment")


def test_secrets_come_from_files_that_are_not_here_and_none_is_in_the_examples(
    compose: dict[str, Node],
) -> None:
    for service, variables in (("database", {"POSTGRES_PASSWORD"}), ("worker", {"PGPASSWORD"})):
        name = part(compose, "services", service)["env_file"]
        assert not (FOLDER / str(name)).exists()
        lines = (FOLDER / f"{name}.example").read_text().splitlines()
        given = dict(line.split("=") for line in lines if not line.startswith("#"))
        assert variables <= set(given)
        assert set(given.values()) == {""}


def test_the_image_runs_commands_that_exist_as_a_user_who_is_not_root() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert 'CMD ["harness-durable", "worker"]' in lines
    assert lines.index("USER agent") < lines.index("RUN harness-durable install claude-code")


# ----------------------------------------------------------------------------------- the unit


def unit() -> dict[str, dict[str, list[str]]]:
    """Sections of the unit: each name with all its values."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals
            section.setdefault(name, []).append(value)
    return sections


def test_the_unit_keeps_agents_alive_and_restarts_workers() -> None:
    service = unit()["Service"]
    expected = {"Type": "notify", "Restart": "always", "KillMode": "process", "OOMPolicy": "continue"}
    assert {name: service[name][-1] for name in expected} == expected
    assert unit()["Unit"]["StartLimitIntervalSec"] == ["0"]
    given = dict(each.split("=") for each in service["Environment"])
    drained = float(given["HARNESS_DURABLE_DRAIN_SECONDS"])
    assert seconds(service["TimeoutStopSec"][0]) >= drained + LEAVE_SECONDS + ANSWER_SECONDS
    assert seconds(service["WatchdogSec"][0]) > 2 * ANSWER_SECONDS


def test_the_unit_forbids_nothing_that_an_agents_own_namespaces_need() -> None:
    never = {"RestrictNamespaces", "PrivateUsers", "ProtectKernelTunables", "ProtectKernelLogs"}
    never |= {"ProtectProc", "ProcSubset", "SystemCallFilter", "PrivateTmp"}
    assert never.isdisjoint(unit()["Service"])


def test_the_unit_starts_a_worker_with_options_that_exist() -> None:
    command: Command = worker
    [line] = unit()["Service"]["ExecStart"]
    program, name, *words = line.split()
    assert (Path(program).name, name) == ("harness-durable", "worker")
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    """Where it is there to be asked; the rest of these tests look at the same file without it."""
    program = shutil.which("systemd-analyze")
    text = UNIT.read_text().replace("/opt/harness-durable/bin/harness-durable", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    if program is not None:
        command = [program, "verify", "--man=no", str(tmp_path / UNIT.name)]
        done = subprocess.run(command, capture_output=True, text=True)
        said = [line for line in done.stderr.splitlines() if UNIT.stem.rstrip("@") in line]
        assert said == [], done.stderr  # what it says of other units, or of having no systemd, is not ours
