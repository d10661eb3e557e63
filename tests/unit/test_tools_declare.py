"""Declaring tools: what is refused, in which words, and what the model is shown."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from harness_durable.errors import BadTool
from harness_durable.tools import NOT_HAPPENED, Tool, ToolContext, tool
from harness_durable.tools.arguments import BadArguments

declare: Callable[..., Any] = tool
"""The decorator as untyped code would use it."""


class Size(enum.Enum):
    SMALL = "small"
    BIG = "big"


class Address(BaseModel):
    street: str
    number: int = 1


@dataclass
class Point:
    x: int
    y: int


@tool(replay="safe")
def order(
    what: str,
    size: Size,
    to: Address,
    at: Point | None = None,
    *,
    count: Annotated[int, Field(ge=1, description="how many")] = 1,
    tags: frozenset[str] = frozenset(),
    mode: Literal["fast", "slow"] = "fast",
    ctx: ToolContext,
) -> str:
    """Order something.

    It is delivered.

    Args:
        what: the thing,
            by name
        count: overruled by the annotation

    Raises:
        ValueError: never
    """
    return f"{count} {size.value} {what} to {to.street} {to.number} {at} {sorted(tags)} {mode} {ctx.call}"


def properties(declared: Tool) -> dict[str, dict[str, object]]:
    found = declared.schema["properties"]
    assert isinstance(found, dict)
    return found  # pyright: ignore[reportUnknownVariableType]


def test_a_tool_is_still_the_plain_function() -> None:
    @tool(replay="safe")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    assert (double.name, double.replay, double.reuse) == ("double", "safe", True)


async def test_an_async_tool_is_still_awaitable() -> None:
    @tool(replay="never", reuse=False, name="shout-it")
    async def shout(text: str) -> str:
        return text.upper()

    assert await shout("a") == "A"
    assert (shout.name, shout.reuse) == ("shout-it", False)


@pytest.mark.parametrize("options", [{}, {"replay": "sometimes"}, {"replay": True}])
def test_the_three_choices_are_explained_if_none_was_made(options: dict[str, object]) -> None:
    with pytest.raises(BadTool) as caught:
        declare(**options)
    for word in ('"safe"', '"idempotent"', '"never"', "run it again", "ToolContext", "probe"):
        assert word in str(caught.value)


def test_the_bare_decorator_is_told_the_same_and_names_the_function() -> None:
    def deploy(version: str) -> str:
        return version

    with pytest.raises(BadTool, match=r"tool 'deploy' needs replay="):
        declare(deploy)


def untyped(a) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore  # the point of the test
    return str(a)  # pyright: ignore


def many(*a: int) -> int:
    return len(a)


def options(**a: int) -> int:
    return len(a)


def positional(a: int, /) -> int:
    return a


def yields() -> Any:
    yield 1


def strange(a: Callable[[int], int]) -> int:
    return a(1)


def odd_probe(b: int) -> int:
    return b


def with_spaces(a: int) -> int:
    return a


REFUSED: list[tuple[object, dict[str, object], str]] = [
    (untyped, {}, "parameter 'a' has no type; give it one, such as `a: str`"),
    (many, {}, "parameter 'a' takes any arguments; name each one"),
    (options, {}, "parameter 'a' takes any arguments; name each one"),
    (positional, {}, "parameter 'a' is positional-only"),
    (yields, {}, "return the whole result instead"),
    (strange, {}, "cannot be described as JSON"),
    (with_spaces, {"name": "two words"}, "cannot name a tool"),
    (with_spaces, {"name": ""}, "cannot name a tool"),
    (with_spaces, {"timeout": 0}, "timeout=0 must be seconds above 0"),
    (with_spaces, {"max_output": 5}, "max_output=5 must be at least 200"),
    (with_spaces, {"probe": odd_probe}, "its probe takes 'b', unlike the tool; let it take some of a, key"),
    (len, {}, "is no plain function"),
    (3, {}, "is no plain function"),
]


@pytest.mark.parametrize(("function", "more", "sentence"), REFUSED)
def test_what_cannot_be_a_tool_is_refused_with_the_next_step(
    function: object, more: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadTool) as caught:
        declare(replay="safe", **more)(function)
    assert sentence in str(caught.value)


def test_a_type_that_cannot_be_found_is_named() -> None:
    def lost(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore

    with pytest.raises(BadTool, match=r"Nowhere.*top of the module"):
        declare(replay="safe")(lost)


def test_the_schema_has_types_defaults_and_the_docstrings_words() -> None:
    shown = properties(order)
    assert list(shown) == ["what", "size", "to", "at", "count", "tags", "mode"]
    assert shown["what"] == {"type": "string", "description": "the thing, by name"}
    assert shown["count"] == {"type": "integer", "description": "how many", "minimum": 1, "default": 1}
    assert shown["mode"]["enum"] == ["fast", "slow"]
    assert order.schema["required"] == ["what", "size", "to"]
    assert order.schema["additionalProperties"] is False
    assert order.description == "Order something.\n\nIt is delivered."


def test_param_lines_describe_parameters_too() -> None:
    @tool(replay="safe")
    def f(a: int, b: int = 2) -> int:
        """Add.

        :param a: the first
        :param int b: the second
        """
        return a + b

    assert properties(f)["a"]["description"] == "the first"
    assert properties(f)["b"]["description"] == "the second"
    assert f.description == "Add."


def test_arguments_become_what_the_function_wants() -> None:
    raw = b'{"what":"tea","size":"big","to":{"street":"A"},"at":{"x":1,"y":2},"tags":["b","a"]}'
    values = order.arguments(raw)
    assert values["size"] is Size.BIG
    assert values["to"] == Address(street="A")
    assert values["at"] == Point(1, 2)
    ctx = ToolContext("c1", "k")
    function: Callable[..., str] = order.function
    text = function(**order.run_arguments(values, ctx))
    assert text == "1 big tea to A 1 Point(x=1, y=2) ['a', 'b'] fast c1"


def test_parameters_may_have_any_name() -> None:
    @tool(replay="safe")
    def f(json: int, schema: str, model_config: bool, _private: int = 3, copy: int = 4) -> None: ...

    values = f.arguments(b'{"json":1,"schema":"s","model_config":true}')
    assert values == {"json": 1, "schema": "s", "model_config": True, "_private": 3, "copy": 4}


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b'{"n":1,"extra":2}', "extra: Extra inputs are not permitted"),
        (b"{}", "n: Field required"),
        (b'{"n":"many"}', "n: Input should be a valid integer"),
        (b'{"n":1,"n":2}', "the key 'n' appears twice"),
        (b'{"n":NaN}', "NaN is no JSON number"),
        (b'{"n":1e999}', "too large"),
        (b"[1]", "must be a JSON object"),
        (b'{"n":1', "not valid JSON"),
        (b'{"n":"\xff"}', "not valid JSON"),
        (b'{"n":' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"n":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "more than 200 levels deep"),
        (b'{"n":' + b'{"a":' * 300 + b"1" + b"}" * 301, "more than 200 levels deep"),
    ],
)
def test_bad_arguments_are_told_to_the_model(raw: bytes, sentence: str) -> None:
    """C119: also when they are nested 10,000 levels deep."""

    @tool(replay="safe")
    def f(n: int) -> int:
        return n

    with pytest.raises(BadArguments) as caught:
        f.arguments(raw)
    assert sentence in str(caught.value)
    assert "Nothing ran" in str(caught.value)


def test_good_arguments_arrive_exactly() -> None:
    @tool(replay="safe")
    def f(n: int = 0, text: str = "", many: list[list[int]] = []) -> None: ...  # noqa: B006 (never changed)

    assert f.arguments(b" ") == {"n": 0, "text": "", "many": []}
    assert f.arguments(b'{"n":9007199254740993001}')["n"] == 9007199254740993001
    assert f.arguments(rb'{"text":"a\u0000b\r\n\ud83d\ude00 [{"}')["text"] == "a\0b\r\n\U0001f600 [{"
    assert f.arguments(rb'{"text":"half \ud83d"}')["text"] == "half �"
    assert f.arguments(b'{"many":[' + b"[1]," * 500 + b"[2]]}")["many"] == [[1]] * 500 + [[2]]
    assert f.arguments(b'{"text":"' + b"[" * 1000 + b'"}')["text"] == "[" * 1000


def test_a_probe_gets_the_arguments_that_it_takes() -> None:
    def found(version: str, key: str) -> object:
        return NOT_HAPPENED

    @tool(replay="never", probe=found)
    def deploy(version: str, region: str) -> None: ...

    assert deploy.probe_arguments({"version": "1", "region": "eu"}, "k") == {"version": "1", "key": "k"}
