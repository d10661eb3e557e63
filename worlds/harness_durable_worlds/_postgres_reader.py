"""What is read, and all else that is no append and no claim: the lane beside the log.

What surprises: pages of logs that are asked for at the same time are read in one statement, since a round
trip costs more than a page.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from harness_durable_worlds._checks import no_session
from harness_durable_worlds._postgres_db import Connection
from harness_durable_worlds._postgres_lane import Job, Lane
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_pages import FIRST, Page, Wanted, read_pages

GROUP_JOBS = 64


class _PageJob(Job[Page]):
    def __init__(self, wanted: Wanted, app: str) -> None:
        super().__init__(partial(_alone, app=app, wanted=wanted))
        self.wanted = wanted


async def _alone(db: Connection, app: str, wanted: Wanted) -> Page:
    [page] = await read_pages(db, app, [wanted])
    if page is None:
        raise no_session(wanted.session)
    return page


class Reader(Lane):
    """The lane of ``app``."""

    def __init__(self, store: Store, name: str, app: str) -> None:
        super().__init__(store, name)
        self._app = app

    async def page(self, wanted: Wanted) -> Page:
        """Raises ``NotFound``."""
        return await self._queued(_PageJob(wanted, self._app)).future

    async def _next(self) -> None:
        group = list[_PageJob]()
        while self._jobs and len(group) < GROUP_JOBS:
            job = cast(object, self._jobs[0])
            if not isinstance(job, _PageJob) or job.wanted.limit > FIRST:
                break
            group.append(cast(_PageJob, self._jobs.popleft()))
        if len(group) < 2:
            await self._one(cast("Job[object]", group[0]) if group else self._jobs.popleft())
            return
        try:
            pages = await self._insist(
                partial(read_pages, app=self._app, wanted=[job.wanted for job in group]), group[-1].asked
            )
        except asyncio.CancelledError:
            for job in group:
                job.fail(self._store.closed())
            raise
        except Exception as error:  # handed to the tasks that wait, whatever it is
            for job in group:
                job.fail(error)
            return
        for job, page in zip(group, pages, strict=True):
            if page is None:
                job.fail(no_session(job.wanted.session))
            else:
                job.answer(page)
