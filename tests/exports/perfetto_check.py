"""What a reader of Chrome's JSON traces needs: the rules that Perfetto's importer goes by."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Row = tuple[int, int]


def check(trace: dict[str, Any]) -> None:
    """Asserts that slices have names, rows and processes, that none overlaps another of its row, and that
    each arrow leaves from within a slice and arrives in another, no earlier."""
    events: list[dict[str, Any]] = trace["traceEvents"]
    rows: dict[Row, list[tuple[int, int]]] = defaultdict(list)
    named: dict[str, set[Any]] = {"process_name": set(), "thread_name": set(), "process_sort_index": set()}
    for event in events:
        assert isinstance(event["pid"], int) and event["pid"] > 0
        assert isinstance(event["tid"], int)
        row = event["pid"], event["tid"]
        match event["ph"]:
            case "M":
                named[event["name"]].add(event["pid"] if event["name"] != "thread_name" else row)
            case "X":
                assert isinstance(event["ts"], int) and event["ts"] >= 0
                assert isinstance(event["dur"], int) and event["dur"] > 0
                assert event["name"] and isinstance(event["args"], dict)
                rows[row].append((event["ts"], event["ts"] + event["dur"]))
            case "i":
                assert event["s"] == "t" and event["ts"] >= 0 and event["name"]
                assert row in named["thread_name"]
            case kind:
                assert kind in "sf"
    for row, slices in rows.items():
        assert row in named["thread_name"] and row[0] in named["process_name"]
        for one, other in zip(sorted(slices), sorted(slices)[1:], strict=False):
            assert one[1] <= other[0], (row, one, other)
    _arrows(events, rows)


def _arrows(events: list[dict[str, Any]], rows: dict[Row, list[tuple[int, int]]]) -> None:
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begun.keys() == ended.keys()
    assert len(begun) + len(ended) == sum(event["ph"] in "sf" for event in events)
    for number, leaves in begun.items():
        arrives = ended[number]
        assert (leaves["name"], leaves["cat"]) == (arrives["name"], arrives["cat"])
        assert arrives["bp"] == "e"
        assert leaves["ts"] <= arrives["ts"]
        for event in (leaves, arrives):
            at = rows[event["pid"], event["tid"]]
            assert any(start <= event["ts"] < end for start, end in at), event
