"""Which hosts a harness behind a wall may reach: names, never addresses, and what they may resolve to.

What surprises: a name that is allowed may still lead to a machine of the inside, by mistake or by somebody's
trick with its DNS. So addresses are judged as well, and only those of the public network pass."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from harness_durable.errors import BadSetting

WEB = (80, 443)
"""Ports of an entry that names none."""
_NAME = re.compile(
    r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_INTERNET6 = ipaddress.ip_network("2000::/3")
"""What is given out of IPv6; ``is_global`` also holds for what is not, and for what means an IPv4 address."""


class Rule(msgspec.Struct, frozen=True):
    """``name`` is a host, or, with a dot before it, all hosts below it. ``private``: whatever its address."""

    name: str
    ports: tuple[int, ...] = WEB
    private: bool = False

    def covers(self, host: str, port: int) -> bool:
        fits = host.endswith(self.name) if self.name.startswith(".") else host == self.name
        return fits and port in self.ports

    def may_reach(self, address: str) -> bool:
        """May the host be there?"""
        return self.private or _is_public(address)


class AllowList(msgspec.Struct, frozen=True):
    """Empty: nothing is allowed."""

    rules: tuple[Rule, ...] = ()

    def rule(self, host: str, port: int) -> Rule | None:
        """What allows this host, if anything does; one that asks nothing of its address before others."""
        wanted = host.lower().rstrip(".")
        found = [rule for rule in self.rules if rule.covers(wanted, port)]
        return max(found, key=lambda rule: rule.private, default=None)


def allow_list(public: str, private: str = "") -> AllowList:
    """From words such as ``pypi.org *.example.com registry.example:5000``, divided by commas or spaces.
    Raises ``BadSetting``."""
    rules = [*_rules(public, private=False), *_rules(private, private=True)]
    return AllowList(tuple(rules))


def _rules(text: str, *, private: bool) -> Iterable[Rule]:
    for word in re.split(r"[\s,]+", text.strip()):
        if word:
            yield _rule(word, private=private)


def _rule(word: str, *, private: bool) -> Rule:
    host, _, port = word.lower().rstrip(".").partition(":")
    below = host.startswith("*.")
    name = host[2:] if below else host
    numeric = name.rpartition(".")[2].isdigit() or name.startswith("0x")
    if not _NAME.fullmatch(name) or numeric or (port and not (port.isdigit() and 0 < int(port) < 65536)):
        raise BadSetting(
            f"{word!r} cannot be allowed: give a host's name, such as pypi.org, *.example.com or "
            "registry.example:5000 (no address, no scheme, no path)"
        )
    return Rule(f".{name}" if below else name, (int(port),) if port else WEB, private)


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            address = address.ipv4_mapped or address.sixtofour or address
    if isinstance(address, ipaddress.IPv6Address) and address not in _INTERNET6:
        return False
    return address.is_global and not address.is_multicast
