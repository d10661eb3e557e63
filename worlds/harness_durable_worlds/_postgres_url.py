"""From ``postgresql://…`` to where and how to connect, as people who know ``libpq`` expect.

What surprises: the URL is taken apart here and not by a URL parser, because libpq's rules are its own: a
``#`` or ``?`` in a password is a character like any other, ``+`` is a plus. What is not in the URL comes from
a service file (``service=`` or ``PGSERVICE``), then from the ``PG*`` variables.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from harness_durable.errors import BadSetting
from harness_durable.worlds import redact

DEFAULT_SCHEMA = "harness_durable"
CONNECT_SECONDS = 5.0

variables = (
    "PGHOST",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGPASSFILE",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PGCONNECT_TIMEOUT",
    "PGAPPNAME",
    "PGOPTIONS",
)
"""Environment variables that are read when the URL does not say (``PGPASSWORD`` is, too, and never shown)."""

_DRIVER = frozenset({"host", "port", "dbname", "user", "password", "passfile", "target_session_attrs"}) | {
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
}
_SERVER = frozenset({"application_name", "options"})
_OURS = frozenset({"schema", "service", "servicefile", "connect_timeout"})
_WITHOUT_EFFECT = frozenset({"client_encoding", "fallback_application_name", "gssencmode", "sslsni"}) | {
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    *("tcp_user_timeout", "sslcompression"),
}


class Target(msgspec.Struct, frozen=True):
    """Where to connect. ``dsn`` holds the password, if any; ``shown`` never does."""

    dsn: str
    shown: str
    schema: str
    connect_seconds: float
    server_settings: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Target({self.shown})"


def target_of(url: str, environment: Mapping[str, str] | None = None) -> Target:
    """What ``postgresql://…`` says. Raises ``BadSetting``, without the password."""
    variables = os.environ if environment is None else environment
    said = _parts(url)
    service = said.pop("service", "") or variables.get("PGSERVICE", "")
    file = said.pop("servicefile", "")
    if service:
        said = {**_service(service, file, variables, url), **said}
    for name in said:
        if name not in _DRIVER | _SERVER | _OURS | _WITHOUT_EFFECT:
            raise BadSetting(
                f"World URL {redact(url)!r}: nothing is known of the parameter {name!r}; "
                f"use {', '.join(sorted(_DRIVER | _SERVER | _OURS - {'servicefile'}))}"
            )
    schema = said.pop("schema", DEFAULT_SCHEMA)
    if not schema or "\0" in schema or len(schema.encode()) > 63 or schema.startswith("pg_"):
        raise BadSetting(f"World URL {redact(url)!r}: {schema!r} cannot name a schema; use up to 63 letters")
    seconds = said.pop("connect_timeout", "") or variables.get("PGCONNECT_TIMEOUT", "")
    settings = {"application_name": said.pop("application_name", "") or variables.get("PGAPPNAME", "")}
    settings["options"] = said.pop("options", "") or variables.get("PGOPTIONS", "")
    settings["application_name"] = settings["application_name"] or "harness-durable"
    query = "&".join(f"{name}={quote(said[name], safe='')}" for name in said if name in _DRIVER)
    return Target(
        "postgresql://" + (f"?{query}" if query else ""),
        redact(url),
        schema,
        _seconds(seconds, url),
        {name: value for name, value in settings.items() if value},
    )


def _seconds(text: str, url: str) -> float:
    try:
        seconds = float(text or CONNECT_SECONDS)
    except ValueError:
        raise BadSetting(
            f"World URL {redact(url)!r}: connect_timeout={text!r} is no number of seconds"
        ) from None
    return min(60.0, max(2.0, seconds)) if seconds > 0 else CONNECT_SECONDS


def _parts(url: str) -> dict[str, str]:
    """The URL's parameters by their libpq names, decoded. libpq looks for the user first: up to the first
    ``@``, if that comes before any ``/``."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise BadSetting(
            f"World URL {redact(url)!r} has no //; write {scheme.partition(':')[0]}://USER@HOST/DATABASE, "
            "or postgresql:/// for the server that the PG* variables name"
        )
    said: dict[str, str] = {}
    at, slash = rest.find("@"), rest.find("/")
    if at >= 0 and (slash < 0 or at < slash):
        login, rest = rest[:at], rest[at + 1 :]
        user, colon, password = login.partition(":")
        said["user"] = user
        if colon:
            said["password"] = password
    place, _, query = rest.partition("?")
    hosts, _, database = place.partition("/")
    if "@" in place or "#" in hosts:
        raise BadSetting(
            f"World URL {redact(url)!r} cannot be read: write @ as %40, / as %2F, : as %3A and % as %25 in a "
            "user's name or password, or leave the password to PGPASSWORD or ~/.pgpass"
        )
    said["host"] = hosts
    said["dbname"] = database
    for part in query.split("&") if query else []:
        name, equals, value = part.partition("=")
        if not equals:
            raise BadSetting(
                f"World URL {redact(url)!r}: the parameter {name!r} has no value; write NAME=VALUE"
            )
        said[unquote(name)] = value
    return {name: _decoded(value, url) for name, value in said.items() if value}


def _decoded(value: str, url: str) -> str:
    try:
        decoded = unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise BadSetting(f"World URL {redact(url)!r}: what is percent-encoded in it must be UTF-8") from None
    if "\0" in decoded:
        raise BadSetting(f"World URL {redact(url)!r} has %00 in it, which no part of it can hold")
    return decoded


def _service(name: str, file: str, environment: Mapping[str, str], url: str) -> dict[str, str]:
    """The section of a service file: the user's, then the system's."""
    paths = [Path(file or environment.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf")]
    if folder := environment.get("PGSYSCONFDIR"):
        paths.append(Path(folder) / "pg_service.conf")
    for path in paths:
        parser = configparser.RawConfigParser(
            delimiters=("=",), comment_prefixes=("#",), strict=False, interpolation=None
        )
        try:
            parser.read_string(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        except configparser.Error as error:
            raise BadSetting(f"the service file {path} cannot be read: {type(error).__name__}") from None
        if parser.has_section(name):
            return dict(parser.items(name))
    places = " and ".join(map(str, paths))
    raise BadSetting(
        f"World URL {redact(url)!r}: no service {name!r} in {places}; add it, or name one that is there"
    )
