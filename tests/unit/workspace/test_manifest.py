"""The manifest's format: names and targets of any bytes, nodes that are cut, lines that are not ours."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_durable.workspace import manifest

NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: name not in (b".", b"..") and b"/" not in name)


class Nodes:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, raw: bytes) -> str:
        name = hashlib.sha256(raw).hexdigest()
        self.blobs[name] = raw
        return name

    def get(self, name: str) -> bytes:
        return self.blobs[name]


@given(NAMES.filter(lambda name: b"\0" not in name), st.binary(max_size=40))
def test_any_name_and_any_target_come_back_and_stay_on_their_line(name: bytes, target: bytes) -> None:
    line = manifest.link_line(target, name)
    assert line.count(b" ") == 4 and b"\n" not in line
    line.decode()
    parsed = manifest.parse(line)
    assert (parsed.name, manifest.target(parsed)) == (name, target)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_different_names_are_different_when_escaped(one: bytes, other: bytes) -> None:
    assert (manifest.escape(one) == manifest.escape(other)) == (one == other)


@pytest.mark.parametrize("name", [b"..", b".", b"", rb"a/b", rb"a\x00b", rb"\x2e\x2e", rb"\x2e"])
def test_a_name_that_leads_out_of_its_folder_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="not a manifest's line"):
        manifest.parse(b"f 644 1 %s %s" % (b"0" * 64, name))


def test_a_crowded_folder_is_cut_so_that_one_change_moves_one_part() -> None:
    nodes = Nodes()
    lines = [manifest.file_line(b"f", 0o644, 1, "0" * 64, b"file-%05d" % number) for number in range(5000)]
    before = manifest.node(lines, nodes.put)
    old = dict(nodes.blobs)
    lines.insert(2500, manifest.file_line(b"f", 0o644, 1, "1" * 64, b"file-02499-new"))
    after = manifest.node(lines, nodes.put)
    new = {name: raw for name, raw in nodes.blobs.items() if name not in old}
    assert list(manifest.lines(after, nodes.get)) == lines
    assert len(list(manifest.lines(before, nodes.get))) == 5000
    assert sum(map(len, new.values())) < sum(map(len, old.values())) / 5


def test_an_empty_folder_has_a_node_of_its_own() -> None:
    nodes = Nodes()
    assert manifest.node([], nodes.put) == manifest.EMPTY
    assert manifest.entries(manifest.EMPTY, nodes.get) == {} == manifest.entries("", nodes.get)
