"""What asyncpg and the network raise, as errors of ours; and after which of them trying again may help."""

from __future__ import annotations

from harness_durable.errors import BadInput, BadSetting, HarnessDurableError, StorageUnavailable
from harness_durable_worlds._postgres_db import driver

TROUBLE = (
    *(OSError, TimeoutError, EOFError, ValueError),
    *(driver.InterfaceError, driver.InternalClientError, driver.PostgresError),
)
"""All that a connection can raise, ``ValueError`` for what cannot be sent."""

_SETTING = {
    "28000": "the server does not let this user in; check the user's name, pg_hba.conf and sslmode",
    "28P01": "the server refuses the password; check it in the URL, PGPASSWORD or ~/.pgpass",
    "3D000": "there is no such database; create it (createdb) or name another one",
}
_ADVICE = {
    "25006": "the server is a standby, or read-only; name the primary, or use target_session_attrs=primary",
    "42501": "the role lacks a right that it had before; grant it again",
    "42P01": "a table is missing; if the schema was dropped, open the World again",
    "3F000": "the schema is missing; if it was dropped, open the World again",
    "53100": "free space on the server's disk",
    "53300": "raise max_connections, or stop what holds the connections",
    "55P03": "another transaction holds the session's row; if it lasts, end it",
    "57P03": "the server is starting up or shutting down",
}


def state_of(error: BaseException) -> str:
    """The five letters of the server's error; empty if it is none of the server's."""
    return str(getattr(error, "sqlstate", None) or "")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that nobody knows what became of the statement."""
    if isinstance(error, driver.PostgresError):
        return state_of(error)[:2] in ("08", "57") and state_of(error) not in ("57014",)
    return isinstance(
        error, (OSError, TimeoutError, EOFError, driver.InterfaceError, driver.InternalClientError)
    ) and (
        not isinstance(error, ValueError)  # what cannot be sent is no trouble of the connection
    )


def may_pass(error: BaseException) -> bool:
    """Whether the statement had no effect and may have one at once: a deadlock, a serialisation failure, a
    plan that a migration has made invalid."""
    return state_of(error)[:2] == "40" or state_of(error) in ("0A000", "26000")


def explain(error: BaseException, shown: str, *, unclear: bool = False) -> HarnessDurableError:
    """The error of ours. ``shown`` is the World's URL without its password."""
    state = state_of(error)
    if isinstance(error, (ValueError, UnicodeError)) or state[:2] == "22":
        return BadInput(
            f"{shown} cannot hold this: {_words(error)}; leave NUL and half characters out of names"
        )
    if isinstance(error, driver.ClientConfigurationError):
        return BadSetting(f"World URL {shown!r} cannot be used: {_words(error)}")
    if isinstance(error, TimeoutError):
        sentence = f"{shown} does not answer"
        advice = "if it lasts, look at the server's load and at the network"
    else:
        sentence = f"{shown}: {_words(error)}" + (f" ({state})" if state else "")
        advice = _ADVICE.get(state, "see that the server runs and can be reached")
    return StorageUnavailable(f"{sentence}; {advice}, work then continues by itself", unclear=unclear)


def setting_of(error: BaseException, shown: str) -> HarnessDurableError | None:
    """The error of ours if it is about a setting, so that no waiting will help."""
    if isinstance(error, driver.ClientConfigurationError):
        return BadSetting(f"World URL {shown!r} cannot be used: {_words(error)}")
    advice = _SETTING.get(state_of(error))
    return BadSetting(f"World URL {shown!r}: {_words(error)}; {advice}") if advice else None


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
