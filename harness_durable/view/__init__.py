"""The trace viewer: a page over the one fold, served on this machine or kept as one file.

``rows`` turns the fold into what the page shows, one event at a time; ``sheet`` keeps that for a session;
``server`` serves it; ``html`` writes it into one file. What surprises: the page never folds. It gets every
version that an item of the session ever had, and shows the last one at or before the place it looks at."""

from __future__ import annotations
