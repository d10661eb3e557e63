"""The Docker sandbox: each life in a container of its own, without a network, its keeper as process 1."""

from __future__ import annotations

from .sandbox import DockerSandbox

__all__ = ("DockerSandbox",)
