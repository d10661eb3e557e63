"""The calls of a session, by id, in the order in which they were asked for.

There may be a hundred thousand, and driving needs those of the open turn. So the others stay as a snapshot
has them until somebody asks for one, and copies of a state share them: whoever changes one takes its own.
What surprises: for that reason only the fold puts calls in, and only it may change one, got by ``change``.
(They hold no cycles, and are so many: Python need not look through them for garbage, ``gc=False``.)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values

C = TypeVar("C", bound=msgspec.Struct)


class Calls(Mapping[str, C], Generic[C]):
    """``kind`` is the type of a call. ``_own``: those that no other state has, and that may be changed."""

    __slots__ = ("_calls", "_is_raw", "_kind", "_own")

    def __init__(self, kind: type[C], stored: Mapping[str, C | msgspec.Raw] | None = None) -> None:
        self._kind = kind
        self._calls: dict[str, C | msgspec.Raw] = dict(stored or {})
        self._is_raw = stored is not None
        self._own: set[str] = set()

    def __getitem__(self, name: str) -> C:
        call = self._calls[name]
        if isinstance(call, msgspec.Raw):
            call = self._calls[name] = cast(C, _decoder(self._kind).decode(call))
        return call

    def __contains__(self, name: object) -> bool:
        return name in self._calls

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return repr(dict(self))

    def values(self) -> dict_values[str, C]:
        return self._decoded().values()

    def items(self) -> dict_items[str, C]:
        return self._decoded().items()

    @property
    def stored(self) -> Mapping[str, C | msgspec.Raw]:
        """What a snapshot holds: nothing is decoded for it."""
        return self._calls

    def add(self, name: str, call: C) -> None:
        """A call that is this state's own."""
        self._calls[name] = call
        self._own.add(name)

    def change(self, name: str) -> C | None:
        """The call, for the fold to change in place; None if there is none."""
        if name not in self._calls:
            return None
        if name not in self._own:
            self.add(name, copy.copy(self[name]))
        return self[name]

    def settle(self, names: Iterable[str]) -> None:
        """These do not change any more: copies of the state may share them."""
        self._own.difference_update(names)

    def copy(self) -> Calls[C]:
        """Another one that shares what is not its own."""
        twin = Calls(self._kind, self._calls)
        for name in self._own:
            twin.add(name, copy.copy(self[name]))
        return twin

    def only(self, wanted: Callable[[C], bool]) -> Calls[C]:
        """Another one with some of them, which it shares."""
        return Calls(self._kind, {name: call for name, call in self.items() if wanted(call)})

    def _decoded(self) -> dict[str, C]:
        """For who goes through all of them."""
        if self._is_raw:
            for name in self._calls:
                self[name]
            self._is_raw = False
        return cast(dict[str, C], self._calls)


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)
