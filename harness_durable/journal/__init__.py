"""Every durable transition, by name. Nothing else in the program appends to a log.

``Inbox`` holds what people and programs may do to a session at any time; ``Journal`` what its driver does;
``moving`` what takes it to another store. The rest of the program gets a ``Reader``."""

from harness_durable.journal.driver import Journal
from harness_durable.journal.inbox import Inbox
from harness_durable.journal.reader import Reader
from harness_durable.journal.writer import set_aside

__all__ = ("Inbox", "Journal", "Reader", "set_aside")
