"""Pi, held as it is: its RPC mode driven over stdio, one extension of ours as the barrier, its session file
mirrored, its turns continued in the middle."""

from .adapter import Pi

__all__ = ("Pi",)
