"""What the hooks of Worlds that are files share: see ``Faults`` in ``harness_durable.testing.worlds``."""

from __future__ import annotations

import resource


class FullFiles:
    """No file of this process may be written: what a full disk does to any World that is files. Other
    processes, and the apps that they serve, notice nothing."""

    def __init__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def break_store(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._before[1]))

    async def heal_store(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
