import asyncio
import json
from typing import Any

from proxy.audit import events
from proxy.audit.events import AuditEvent

ABOUT = {"via": "interface", "operation": "o"}


def lines(noted: events.Noted, otherwise: AuditEvent = AuditEvent.WRITE) -> list[dict[str, Any]]:
    """The lines of a page, without what all of them have."""
    made = events.bodies(noted, ABOUT, otherwise, lambda schema, key: f"{schema}/{key}")
    found = [json.loads(b"{" + line + b"}") for line in made]
    return [{name: value for name, value in line.items() if name not in ABOUT} for line in found]


def test_what_was_noted_becomes_lines():
    noted = events.begin_page()
    events.revealed("p", ["1", "2", "1", None], ["b", "a"])
    events.ended("q", ["9"], 2)
    events.about("somebody")
    assert lines(noted) == [
        {"event": "delete", "schema": "q", "count": 3, "records": ["q/9"]},
        {
            "event": "reveal",
            "schema": "p",
            "count": 3,
            "records": ["p/1", "p/2"],
            "fields": ["a", "b"],
        },
    ]
    assert noted.changed


def test_a_request_that_notes_nothing_has_a_coarse_line():
    noted = events.begin_page()
    events.about("k1")
    assert lines(noted) == [{"event": "write", "subject": "k1"}]
    assert not noted.changed


def test_an_administrator_has_a_line_of_its_own_beside_what_happened_to_records():
    noted = events.begin_page()
    events.ended("p", ["1"])
    assert [line["event"] for line in lines(noted, AuditEvent.ADMIN)] == ["admin", "delete"]


def test_a_write_that_answers_with_the_same_records_is_one_line():
    noted = events.begin_page()
    events.note_written_event("p", ["1"], ["a"])
    events.revealed("p", ["1"], ["a", "b"])
    assert lines(noted) == [
        {
            "event": "write",
            "schema": "p",
            "count": 1,
            "records": ["p/1"],
            "fields": ["a"],
            "revealed": ["a", "b"],
        }
    ]
    events.revealed("p", ["2"], ["c"])
    assert [line["event"] for line in lines(noted)] == ["write", "reveal"]


def test_figures_count_their_groups_and_files_are_named():
    noted = events.begin_page()
    events.aggregated_event("p", 3, ["age"])
    events.note_written_event("q", ["1"], (), ["f1"])
    events.fetched("r", "2", "f2")
    assert lines(noted) == [
        {"event": "write", "schema": "q", "count": 1, "records": ["q/1"], "files": ["f1"]},
        {"event": "reveal", "schema": "p", "count": 3, "fields": ["age"]},
        {"event": "reveal", "schema": "r", "count": 1, "records": ["r/2"], "files": ["f2"]},
    ]


def test_of_what_was_found_only_a_part_may_be_answered():
    noted = events.begin_page()
    events.revealed("p", ["1"], ["a", "id"])
    events.narrowed("p", ["id"])
    assert lines(noted)[0]["fields"] == ["id"]


def test_very_many_records_have_several_lines():
    noted = events.begin_page()
    events.revealed("p", map(str, range(2 * events.MOST_RECORDS + 1)), ["a"])
    made = lines(noted)
    assert [len(line["records"]) for line in made] == [events.MOST_RECORDS, events.MOST_RECORDS, 1]
    assert [line.get("count") for line in made] == [2 * events.MOST_RECORDS + 1, None, None]


async def test_a_page_is_that_of_its_task_and_of_those_it_starts():
    async def request(key: str) -> list[dict[str, Any]]:
        noted = events.begin_page()
        await asyncio.sleep(0)
        await asyncio.gather(asyncio.create_task(inner(key)))
        return lines(noted)

    async def inner(key: str) -> None:
        events.revealed("p", [key], ())

    one, other = await asyncio.gather(request("1"), request("2"))
    assert (one[0]["records"], other[0]["records"]) == (["p/1"], ["p/2"])


async def test_without_a_page_nothing_is_noted():
    async def work() -> None:
        events._current.set(None)
        events.revealed("p", ["1"], ())
        events.aggregated_event("p", 1, ())
        events.note_written_event("p", ["1"], ())
        events.ended("p", ["1"])
        events.fetched("p", "1", "f")
        events.narrowed("p", ())
        events.about("x")

    await asyncio.create_task(work())
