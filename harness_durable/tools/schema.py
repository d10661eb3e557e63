"""A function's parameters as a pydantic model: what the model is shown, and what checks its arguments.

The fields of the pydantic model have made-up names with aliases, so that a parameter may be called ``json``,
``schema`` or ``_x`` without meeting a name of pydantic's own."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pydantic
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from harness_durable.errors import BadTool
from harness_durable.tools.arguments import BadArguments

_SECTION = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?)\s*:\s*$", re.MULTILINE
)
_ENTRY = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_PARAM = re.compile(r"^\s*:param\s+(?:[\w.\[\], |]+\s+)?(\w+)\s*:\s*(.*)$", re.MULTILINE)


class _Schema(GenerateJsonSchema):
    """Without a title for every field: it only repeats the name, and the model pays for it."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (pydantic's own form)

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


class Parameters:
    """``names`` are those that the model fills in; ``context`` the one of type ``ToolContext``, if any."""

    def __init__(self, model: type[pydantic.BaseModel], names: tuple[str, ...], context: str | None) -> None:
        self.names, self.context = names, context
        self._model = model
        schema = model.model_json_schema(schema_generator=_Schema)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        self.schema: dict[str, object] = schema

    def validate(self, values: Mapping[str, object]) -> dict[str, object]:
        """Checked and converted values by name, defaults filled in. Raises ``BadArguments``."""
        try:
            checked = self._model.model_validate(values)
        except pydantic.ValidationError as error:
            raise BadArguments(_sentence(error)) from None
        return {name: getattr(checked, f"p{place}") for place, name in enumerate(self.names)}


def parameters(function: Callable[..., object], tool: str, context_type: type) -> Parameters:
    """Read a function's signature. Raises ``BadTool``."""
    hints = _hints(function, tool)
    documented = _documented(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    names: list[str] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        _check(parameter, tool, hints)
        hint = hints[parameter.name]
        if hint is context_type or context_type in _members(hint):
            context = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field: FieldInfo = pydantic.Field(default, alias=parameter.name)
        if not _has_description(hint):
            hint = Annotated[hint, pydantic.Field(description=documented.get(parameter.name))]
        fields[f"p{len(names)}"] = (hint, field)
        names.append(parameter.name)
    try:
        model = pydantic.create_model(
            tool, __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
        )
        return Parameters(model, tuple(names), context)
    except pydantic.errors.PydanticUserError as error:
        reason = str(error).splitlines()[0]
        raise BadTool(
            f"tool {tool!r}: its parameters cannot be described as JSON ({reason}); "
            "use types that JSON can hold, pydantic models or dataclasses"
        ) from error


def described(function: Callable[..., object]) -> str:
    """The docstring without its sections about parameters: what the model reads about the tool."""
    text = _PARAM.sub("", inspect.getdoc(function) or "")
    found = _SECTION.search(text)
    while found is not None:
        following = _SECTION.search(text, found.end())
        if found.group(1) in ("Args", "Arguments", "Parameters", "Raises"):
            end = following.start() if following is not None else _dedent(text, found.end())
            text = text[: found.start()].rstrip() + "\n\n" + text[end:].lstrip()
            found = _SECTION.search(text, found.start())
        else:
            found = following
    return text.strip()


def _dedent(text: str, start: int) -> int:
    """Where the indented block after ``start`` ends."""
    found = re.compile(r"^\S", re.MULTILINE).search(text, start)
    return found.start() if found is not None else len(text)


def _documented(doc: str) -> dict[str, str]:
    """Parameters' descriptions: an ``Args:`` section, or ``:param name:`` lines."""
    known = {name: text.strip() for name, text in _PARAM.findall(doc)}
    found = re.search(r"^\s*(?:Args|Arguments|Parameters)\s*:\s*$", doc, re.MULTILINE)
    if found is None:
        return known
    current, indent = "", -1
    for line in doc[found.end() :].splitlines()[1:]:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line.strip())
        if depth == 0 or _SECTION.match(line):
            break
        indent = depth if indent < 0 else indent
        if entry is not None and depth == indent:
            current = entry.group(1)
            known[current] = entry.group(2)
        elif current:
            known[current] = f"{known[current]} {line.strip()}".strip()
    return known


def _hints(function: Callable[..., object], tool: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise BadTool(
            f"tool {tool!r}: a type in its signature cannot be read ({error}); "
            "define or import the type at the top of the module, not inside a function or TYPE_CHECKING"
        ) from error


def _check(parameter: inspect.Parameter, tool: str, hints: Mapping[str, object]) -> None:
    where = f"tool {tool!r}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise BadTool(f"{where} takes any arguments; name each one, so that the model knows what it may give")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise BadTool(f"{where} is positional-only; arguments come by name, so remove the '/'")
    if parameter.name not in hints:
        raise BadTool(f"{where} has no type; give it one, such as `{parameter.name}: str`")


def _members(hint: object) -> tuple[object, ...]:
    origin = typing.get_origin(hint)
    return typing.get_args(hint) if origin in (typing.Union, types.UnionType, typing.Annotated) else ()


def _has_description(hint: object) -> bool:
    if typing.get_origin(hint) is not typing.Annotated:
        return False
    return any(isinstance(item, FieldInfo) and item.description for item in typing.get_args(hint)[1:])


def _sentence(error: pydantic.ValidationError) -> str:
    """What is wrong, place by place, without the values: they may be long, and the model knows them."""
    parts: list[str] = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(step) for step in item["loc"])
        parts.append(f"{place}: {item['msg']}" if place else item["msg"])
    shown = "; ".join(parts[:10])
    more = f"; and {len(parts) - 10} more" if len(parts) > 10 else ""
    return f"the arguments do not fit: {shown}{more}. Nothing ran. Correct them and call again."
