"""The keeper: one small process that owns a harness, so that its worker may die without it.

Run as ``python3 -I -S KEEPER RUN``, where KEEPER is this directory: standard library only, Python 3.9,
because it is also mounted into containers that have nothing else. RUN is the directory of one life:

    spec.json     read and unlinked at the start (0600), see below
    keeper.json   written by rename when the life is ready; failed.json if it could not be started
    ctl.sock      where workers attach (0600): one JSON line, then what its operation says
    in.log        every byte for the harness's stdin, written before the pipe gets it
    out.log       its stdout; out.idx has lines "offset ms": what was written from offset on came then
    err.log       its stderr
    exit.json     written by rename when the harness has ended: code, t (seconds), oom_kill, why

spec.json has ``argv``, ``env`` (all of it), ``cwd``, ``token``, ``ttl`` (seconds), and for the relay either
``relay_fd`` (a listening socket that is inherited) or ``port``. Optional: ``isolation`` ("auto", "guard"),
``peers`` ("any": also callers from inside the sandbox), ``caps`` ([bytes kept per request, for all]).

What surprises: it is one thread with call-backs, so no two things ever happen at once, and it never
waits for a worker. In a PID namespace all pids that it tells are those inside.
"""

from __future__ import annotations

PROTOCOL = 1
CHUNK = 1 << 18
QUEUE_HIGH = 1 << 20  # stop reading one side while the other has this much left to swallow
FRAME_CAP = 64 << 20  # the largest frame for stdin
HELD_CAP, HELD_TOTAL = 64 << 20, 256 << 20  # request bytes kept: one connection, and all of them
MAX_CONNECTIONS = 256
RETRY = 0.2  # seconds between tries while the disk is full
FIRST_ATTACH = 60.0  # a life that nobody ever attached to ends after this many seconds
GUARD_NAME = b"hd-guard"  # as ps shows it
