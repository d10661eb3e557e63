"""Which hosts a harness behind a wall may reach."""

from __future__ import annotations

import pytest

from harness_durable.allowlist import AllowList, Rule, allow_list
from harness_durable.errors import BadSetting


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("pypi.org", 443, True),
        ("PyPI.org.", 80, True),
        ("pypi.org", 22, False),
        ("www.pypi.org", 443, False),
        ("notpypi.org", 443, False),
        ("files.example.com", 443, True),
        ("a.b.example.com", 443, True),
        ("example.com", 443, False),
        ("badexample.com", 443, False),
        ("registry.test", 5000, True),
        ("registry.test", 443, False),
        ("inside.test", 443, True),
        ("", 443, False),
    ],
)
def test_a_name_is_allowed_as_it_is_written(host: str, port: int, allowed: bool) -> None:
    rules = allow_list("pypi.org, *.Example.com\nregistry.test:5000", "inside.test")
    assert (rules.rule(host, port) is not None) == allowed


def test_nothing_is_allowed_unless_it_is_named() -> None:
    assert allow_list("") == allow_list(" , ") == AllowList()
    assert AllowList().rule("pypi.org", 443) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "fec0::1", "::127.0.0.1", "64:ff9b:1::1",
    ],
)  # fmt: skip
def test_a_name_that_leads_inside_is_not_reached_unless_that_is_allowed(address: str) -> None:
    assert not Rule("pypi.org").may_reach(address)
    assert Rule("pypi.org", private=True).may_reach(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_the_public_network_is_reached(address: str) -> None:
    assert Rule("pypi.org").may_reach(address)


def test_a_host_that_may_be_inside_is_not_judged_by_another_rule() -> None:
    rules = allow_list("*.test", "inside.test")
    found = rules.rule("inside.test", 443)
    assert found is not None
    assert found.may_reach("10.0.0.1")
    other = rules.rule("outside.test", 443)
    assert other is not None
    assert not other.may_reach("10.0.0.1")


@pytest.mark.parametrize(
    "word",
    [
        "10.0.0.1", "127.1", "0x7f.1", "2130706433", "[::1]", "[::1]:80", "::1",
        "*", "*.", "*.*.com", "a.*.com",
        "https://pypi.org",
        "pypi.org/simple",
        "user@pypi.org", "pypi.org:0", "pypi.org:65536", "pypi.org:x",
        "-a.com", "a..com", "ü.com", "a" * 64 + ".com",
    ],
)  # fmt: skip
def test_what_is_no_name_cannot_be_allowed(word: str) -> None:
    with pytest.raises(BadSetting, match="host's name"):
        allow_list(f"pypi.org {word}")
