"""OpenCode, held as it is: its server driven over HTTP, our plugin as the barrier, its event store mirrored,
its turns continued in the middle."""

from .adapter import OpenCode

__all__ = ("OpenCode",)
