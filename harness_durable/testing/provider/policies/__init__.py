"""The shipped policies, by name: each is a struct whose fields are its options.

A policy is a function from a request to a reply. It must decide from the request alone.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct, ValidationError, convert

from harness_durable.errors import BadSetting, UnknownName
from harness_durable.testing.provider.messages import Request, first_user_text
from harness_durable.testing.provider.plan import Policy
from harness_durable.testing.provider.policies.deploy_demo import DeployDemo
from harness_durable.testing.provider.policies.refusing import RefuseMedia
from harness_durable.testing.provider.policies.simple import Echo, Script, read_script
from harness_durable.testing.provider.policies.steps import Steps
from harness_durable.testing.provider.reply import Reply, say

__all__ = [
    "DeployDemo",
    "Echo",
    "FromPrompt",
    "RefuseMedia",
    "Script",
    "Steps",
    "policy_named",
    "read_script",
]


class FromPrompt(Struct, frozen=True):
    """The conversation's first line chooses: ``policy: NAME {"option": ...}``; else ``text`` is said.

    For one provider that serves many sessions, each with a story of its own.
    """

    text: str = "ok"

    def __call__(self, request: Request) -> Reply:
        line = first_user_text(request).partition("\n")[0].strip()
        if not line.startswith("policy:"):
            return say(self.text)
        name, _, options = line.removeprefix("policy:").strip().partition(" ")
        return policy_named(name, options)(request)


POLICIES: Mapping[str, type[Echo | Script | Steps | DeployDemo | FromPrompt]] = {
    "echo": Echo,
    "script": Script,
    "steps": Steps,
    "deploy_demo": DeployDemo,
    "prompt": FromPrompt,
}


def policy_named(name: str, options: str = "") -> Policy:
    """A shipped policy with options as a JSON object, ``script:FILE``, or ``module:attribute``.

    Raises :class:`UnknownName`, or :class:`BadSetting` for options that do not fit.
    """
    if name.startswith("script:"):
        return _script(Path(name.removeprefix("script:")))
    if ":" in name:
        return _imported(name)
    if name not in POLICIES:
        hint = "name one of these, or give your own as module:attribute"
        raise UnknownName("policy", name, sorted(POLICIES), hint)
    try:
        given = convert(json.loads(options or "{}"), dict[str, object])
        _refuse_unknown(given, POLICIES[name])
        return convert(given, POLICIES[name])
    except (ValueError, ValidationError) as error:
        raise BadSetting(f"options of policy {name!r}: {error}; give a JSON object") from error


def _refuse_unknown(given: Mapping[str, object], kind: type[Struct]) -> None:
    known = kind.__struct_fields__
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(f"no option {', '.join(unknown)} (known: {', '.join(known)})")


def _script(path: Path) -> Policy:
    try:
        return read_script(path)
    except (OSError, ValueError, ValidationError) as error:
        raise BadSetting(f"script {path}: {error}; give a JSON list of replies") from error


def _imported(name: str) -> Policy:
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadSetting(f"policy {name!r}: {error}; give module:attribute") from error
    if not callable(found):
        raise BadSetting(f"policy {name!r} is not callable; give a function from Request to Reply")
    return cast(Policy, found)
