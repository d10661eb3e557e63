"""``@tool``: from a typed function to something that a model may call.

What surprises: ``replay`` has no default. Only the author knows what a second run would do, so they are asked
once, here, and not after the first double payment."""

from __future__ import annotations

import enum
import inspect
import re
import threading
from collections.abc import Callable, Mapping
from typing import Generic, Never, cast, get_args, overload

from typing_extensions import ParamSpec, TypeVar

from harness_durable.errors import BadTool
from harness_durable.events import ReplayPolicy
from harness_durable.tools.arguments import parse
from harness_durable.tools.schema import Parameters, described, parameters

P = ParamSpec("P", default=...)
R_co = TypeVar("R_co", covariant=True, default=object)

MIN_OUTPUT = 200
"""Characters. Below that the sentence about what was cut out would be most of the output."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")

CHOICES = """choose what may be done if a call is cut off and nobody knows whether it happened:
  replay="safe"        run it again; a second run does no harm (reading, searching, computing)
  replay="idempotent"  run it again with the same key; the other side must ignore a key that it has seen
                       (take a parameter of type ToolContext and pass on its .key)
  replay="never"       do not run it again; the model is told that it may or may not have happened
                       (with probe=... the tool is asked first)"""


class Answer(enum.Enum):
    """What a probe returns when it has no result to give."""

    NOT_HAPPENED = "not_happened"
    UNSURE = "unsure"


NOT_HAPPENED = Answer.NOT_HAPPENED
"""A probe returns it if the call certainly had no effect: then it runs now."""

UNSURE = Answer.UNSURE
"""A probe returns it if it cannot tell: then the outcome is unknown."""


class ToolContext:
    """What a tool may know about its own call. A parameter of this type is filled in, and hidden from the
    model.

    ``call`` is the call's id. ``key`` is its idempotency key: the same each time this very call runs, in
    whatever life, and never that of another call."""

    def __init__(self, call: str, key: str, progress: Callable[[str], None] | None = None) -> None:
        self.call, self.key = call, key
        self._progress = progress
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Nobody waits for the result any more. A tool that runs in a thread should look at it now and
        then, since a thread cannot be stopped from outside."""
        return self._cancelled.is_set()

    def progress(self, text: str) -> None:
        """Show people how far it is. Replaces what was shown before; not kept, not seen by the model."""
        if self._progress is not None and not self.cancelled:
            self._progress(text)

    def cancel(self) -> None:
        """Called by the tool host."""
        self._cancelled.set()


class Tool(Generic[P, R_co]):
    """A declared tool. Calling it calls the plain function, as in the author's own tests.

    ``schema`` is the JSON schema of its arguments, ``timeout`` in seconds, ``max_output`` in characters.
    ``reuse`` has no effect with a harness that continues in the middle of a turn (Claude Code does): it is
    for those that must be told a turn anew, where True lets an identical call of finished work be answered
    from the log.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        replay: ReplayPolicy,
        probe: Callable[..., object] | None = None,
        reuse: bool = True,
        name: str | None = None,
        timeout: float | None = None,
        max_output: int = 1_000_000,
    ) -> None:
        self.function, self.probe, self.reuse = function, probe, reuse
        self.replay: ReplayPolicy = replay
        self.timeout, self.max_output = timeout, max_output
        self.name = _checked_name(function, name)
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameters: Parameters = parameters(function, self.name, ToolContext)
        self.description = described(function)
        self.schema: dict[str, object] = self.parameters.schema
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.__module__, self.__wrapped__ = function.__module__, function
        self._check()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name} replay={self.replay}>"

    def arguments(self, raw: bytes) -> dict[str, object]:
        """Raw JSON to checked arguments by name. Raises ``BadArguments``, whose text is for the model."""
        return self.parameters.validate(parse(raw))

    def run_arguments(self, values: Mapping[str, object], ctx: ToolContext) -> dict[str, object]:
        """The same, with the context for a function that wants it."""
        name = self.parameters.context
        return {**values, name: ctx} if name is not None else dict(values)

    def probe_arguments(self, values: Mapping[str, object], key: str) -> dict[str, object]:
        """Those that the probe takes."""
        if self.probe is None:
            return {}
        wanted = inspect.signature(self.probe).parameters
        return {name: value for name, value in {"key": key, **values}.items() if name in wanted}

    def _check(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise BadTool(
                f"tool {self.name!r}: timeout={self.timeout!r} must be seconds above 0, or None for no limit"
            )
        if self.max_output < MIN_OUTPUT:
            raise BadTool(
                f"tool {self.name!r}: max_output={self.max_output!r} must be at least {MIN_OUTPUT} characters"
            )
        if self.probe is None:
            return
        known = {*self.parameters.names, "key"}
        strange = [name for name in inspect.signature(self.probe).parameters if name not in known]
        if strange:
            raise BadTool(
                f"tool {self.name!r}: its probe takes {', '.join(map(repr, strange))}, unlike the tool; "
                f"let it take some of {', '.join(sorted(known))}"
            )


@overload
def tool(
    *,
    replay: ReplayPolicy,
    probe: Callable[..., object] | None = None,
    reuse: bool = True,
    name: str | None = None,
    timeout: float | None = None,
    max_output: int = 1_000_000,
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]: ...
@overload
def tool(function: Callable[..., object], /) -> Never: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    replay: ReplayPolicy | None = None,
    probe: Callable[..., object] | None = None,
    reuse: bool = True,
    name: str | None = None,
    timeout: float | None = None,
    max_output: int = 1_000_000,
) -> object:
    """Declare a typed function, sync or async, as a tool.

    Its parameters need types (what pydantic can read from JSON); its docstring is what the model reads, and
    an ``Args:`` section describes parameters. A sync function runs in a thread.

    ``probe`` takes the tool's arguments by name, and ``key`` if it wants; it returns the result if the call
    happened, ``NOT_HAPPENED`` if it did not, ``UNSURE`` (or raises) if it cannot tell. For ``reuse``,
    ``timeout`` and ``max_output`` see ``Tool``. Raises ``BadTool``.
    """
    if replay not in get_args(ReplayPolicy):
        subject = (
            f"tool {function.__name__!r}"
            if inspect.isfunction(function)
            else f"tool {name!r}"
            if name
            else "@tool"
        )
        found = "needs replay=" if replay is None else f"has replay={replay!r}, which is none of the three"
        raise BadTool(f"{subject} {found}; {CHOICES}")
    policy = cast(ReplayPolicy, replay)

    def declare(declared: Callable[..., object]) -> Tool:
        return Tool(
            declared,
            replay=policy,
            probe=probe,
            reuse=reuse,
            name=name,
            timeout=timeout,
            max_output=max_output,
        )

    return declare


def _checked_name(function: object, name: str | None) -> str:
    if not inspect.isfunction(function):
        raise BadTool(f"{function!r} is no plain function; write `@tool(...)` above a `def` or `async def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(
            f"tool {function.__name__!r} yields; return the whole result instead, "
            "and use ToolContext.progress to show how far it is"
        )
    found = name if name is not None else function.__name__
    if not _NAME.fullmatch(found):
        raise BadTool(
            f"{found!r} cannot name a tool: use 1 to 48 letters, digits, _ or -, or give it name=..."
        )
    return found
