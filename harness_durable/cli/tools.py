"""Finding people's ``@tool`` functions in a file or a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from harness_durable.errors import BadInput, HarnessDurableError
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
    sys.path.insert(0, str(path.parent.absolute()))  # as Python does for a script: its neighbours count
    with _explained(str(path)):
        spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    with _explained(name):
        return importlib.import_module(name)


@contextmanager
def _explained(name: str) -> Generator[None]:
    """Whatever other people's code raises, with the place in it, as a sentence."""
    try:
        yield
    except HarnessDurableError:
        raise
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"{name}: no module named {missing.name!r}; give a .py file, or a module that can be imported"
        ) from None
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" at {place.filename}:{place.lineno}"
        raise BadInput(
            f"{name} cannot be imported{where}: {type(error).__name__}: {error}; correct it and try again"
        ) from error
