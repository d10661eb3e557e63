"""``demo``: what the product promises, on a machine without a key."""

from __future__ import annotations

import json

import pytest

from tests.cli.kit import Cli, sentence


@pytest.mark.parametrize("world", ["", "file:log"])
def test_one_effect_one_unknown_nothing_paid_twice(world: str, cli: Cli) -> None:
    where = ["--world", world] if world else []
    done = cli("demo", "--json", "--keep", "kept", *where)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("text").startswith("1.4.2 is deployed")
    assert told == {
        "v": 1, "status": "completed", "lives": 2, "workers": 2, "effects": 1, "unknown": 1,
        "model_calls": 7, "paid_twice": 0,
    }  # fmt: skip
    said = sentence(done)
    assert "Do not repeat it blindly" in said
    assert "deploy UNKNOWN" in said
    assert (cli.folder / "kept" / "demo" / "shop" / "deployments.log").read_text() == "deployed 1.4.2\n"


def test_a_living_harness_is_attached_to(cli: Cli) -> None:
    done = cli("demo", "--json", "--death", "worker")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["lives"], told["workers"], told["effects"], told["paid_twice"]) == (1, 2, 1, 0)


def test_a_folder_that_is_there_is_not_touched(cli: Cli) -> None:
    (cli.folder / "kept" / "demo").mkdir(parents=True)
    done = cli("demo", "--keep", "kept")
    assert done.returncode == 2
    assert "name a new folder" in sentence(done)
