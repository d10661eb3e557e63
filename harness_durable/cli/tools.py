"""Finding people's ``@tool`` functions in a file or a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from harness_durable.errors import BadInput
from harness_durable.tools import Tool


def load_tools(name: str | None) -> list[Tool]:
    """Every ``Tool`` at the top level of ``path/to/file.py`` or ``package.module``. Raises ``BadInput``."""
    if name is None:
        return []
    module = _from_file(Path(name)) if name.endswith(".py") else _from_module(name)
    found: list[Tool] = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not found:
        raise BadInput(f"{name} has no @tool function at its top level; see the README for an example")
    return found


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"harness_durable_tools_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise BadInput(f"{path} cannot be read; give the path of a Python file with @tool functions")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"no module named {missing.name!r}; give a module that can be imported, or a .py file"
        ) from None
