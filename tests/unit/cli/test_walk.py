import json
import threading
from pathlib import Path

import pytest


@pytest.fixture
def walk(office, told):
    return lambda *more, status=0: told("adopt", "--proxy", office.proxy, *more, status=status)


def test_what_somebody_changes_in_between_stays(office, walk):
    left = {"p1": 3}

    def edit(ident: str) -> None:
        if left.get(ident):
            left[ident] -= 1
            office.change(ident, name=f"t-Bo {left[ident]}")

    office.before = edit
    assert walk()["complete"]
    assert office.records["p1"] == {
        "id": "p1", "name": "t-Bo 0", "email": "t-a1@b.example", "n": 1
    }  # fmt: skip


def test_a_record_that_changes_all_the_time_is_left_to_the_next_pass(office, walk):
    edits = iter(range(9))

    def edit(ident: str) -> None:
        if ident == "p1" and (number := next(edits, None)) is not None:
            office.change(ident, n=number)

    office.before = edit
    report = walk()
    assert (report["complete"], report["converted"], report["passes"]) == (True, 5, 3)
    assert office.records["p1"]["n"] == 8


def test_a_record_that_is_deleted_meanwhile_is_gone(office, walk):
    office.before = lambda ident: office.records.pop("p4", None) and None
    report = walk()
    assert (report["complete"], report["converted"], report["records"]) == (True, 4, 4)


def test_what_a_shifting_list_skips_is_met_by_the_next_pass(office, walk):
    def shift(ident: str) -> None:
        if ident == "p1" and "p0" in office.records:
            del office.records["p0"]  # p2 moves to the page that was read just now

    office.before = shift
    report = walk()
    assert (report["complete"], report["tokens"]) == (True, 4)
    assert report["passes"] == 3
    assert office.records["p2"]["name"] == "t-Ann 2"


def test_answers_that_never_come_are_waited_for(office, walk):
    office.failures = [0, 503, 200, 200, 200, 200, 0, 0, 502]
    report = walk()
    assert (report["complete"], report["tokens"]) == (True, 5)


def test_answers_that_get_lost_now_and_then_do_not_end_patience(office, walk):
    """Each of these writes took effect: the next one that gets no answer is the first of its own."""
    writes = []

    def lose(_ident: str) -> None:
        writes.append(1)
        if len(writes) in (2, 3):  # the first one asks whether conditions are heeded
            threading.Event().wait(0.6)  # nobody else sleeps here
            office.failures = [0]

    office.before = lose
    report = walk("--patience", "0.5", "--parallel", "1")
    assert (report["complete"], report["tokens"]) == (True, 5)


def test_an_update_that_changes_nothing_says_what_to_look_at(office, walk):
    office.ignores = True
    refusal = walk(status=1)
    assert "the record is as it was" in refusal["message"]


@pytest.mark.parametrize("command", ["adopt", "release"])
def test_members_may_come_in_another_order_on_each_side(office, told, command):
    office.turned = True
    if command == "release":
        office.change("p1", name="t-Ann 1", email="t-a1@b.example")
        rules = Path("rules.yaml")
        rules.write_text(rules.read_text() + "on_error: {vault_down: {read: 503}}\n")
    report = told(command, "--proxy", office.proxy)
    assert (report["complete"], report["refused"]) == (True, 0)
    assert report["converted"] == (1 if command == "release" else 5)
    assert office.records["p1"]["name"] == ("Ann 1" if command == "release" else "t-Ann 1")


def test_an_update_that_takes_something_away_stops_the_walk(office, walk):
    office.forgets = "n"
    refusal = walk(status=1)
    assert "no longer shows n" in refusal["message"]
    assert office.writes("proxy") == 1


def test_columns_that_are_too_narrow_stop_the_walk_at_the_first_record(office, walk):
    office.narrow = 1
    refusal = walk(status=1)
    assert "too narrow" in refusal["message"]
    assert office.writes("proxy") == 1


def test_a_list_that_shows_less_is_looked_at_one_by_one(office, walk, tmp_path):
    office.change("p3", name="t-Ann 3")
    items = office._list

    def short(side, query):
        status, content, fields = items(side, query)
        content["items"] = [{"id": one["id"], "name": one["name"]} for one in content["items"]]
        return status, content, fields

    office._list = short
    assert walk("--dry-run")["mixed"] == 1
    assert walk()["converted"] == 5
    assert office.records["p3"]["email"] == "t-a3@b.example"


@pytest.fixture
def crowd(office):
    """Thirty people on one page."""
    office.page = 30
    for n in range(5, 30):
        person = {"id": f"p{n}", "name": f"Ann {n}", "email": f"a{n}@b.example", "n": n}
        office.records[f"p{n}"] = person
    return office


def looks(office, ident: str) -> list[str]:
    """The sides at which the address of a record was asked for it."""
    reads = (one.split() for one in office.requests)
    return [side for side, method, path in reads if (method, path) == ("GET", f"/people/{ident}")]


def test_written_records_are_checked_by_their_page(crowd, walk):
    report = walk()
    assert (report["complete"], report["converted"], report["conditional"]) == (True, 30, 30)
    assert sum(looks(crowd, f"p{n}") == ["proxy"] for n in range(30)) == 21
    # the first one alone, then as many as at a time, then twice by the page; the last pass once
    assert sum(one == "application GET /people" for one in crowd.requests) == 4


@pytest.mark.parametrize("meanwhile", ["rank", "name", "n"])
def test_what_a_page_shows_otherwise_is_read_alone(crowd, walk, meanwhile):
    """Somebody changes a record after it was written, or the list shows less of it."""
    crowd.change("p9", rank=1)

    def edit(ident: str) -> None:
        if ident == "p8":
            crowd.change("p7", **{meanwhile: "t-Bo"})

    items = crowd._list

    def short(side, query):
        status, content, fields = items(side, query)
        content["items"] = [dict(one) for one in content["items"]]
        for one in content["items"]:
            one.pop("rank", None)
        return status, content, fields

    crowd.before, crowd._list = edit, short
    report = walk("--parallel", "1")
    assert (report["complete"], report["converted"]) == (True, 30)
    assert crowd.records["p7"][meanwhile] == "t-Bo"
    assert looks(crowd, "p6") == ["proxy"]
    assert looks(crowd, "p9") == ["proxy", "application", "proxy"]
    alone = ["application", "proxy"] if meanwhile != "rank" else []  # which the update cannot lose
    assert looks(crowd, "p7") == ["proxy", *alone]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"narrow": 1}, "too narrow"),
        ({"forgets": "note"}, "no longer shows note"),
        ({"ignores": True}, "the record is as it was"),
    ],
)
def test_a_page_shows_harm_that_comes_late(crowd, walk, harm, said):
    for ident in crowd.records:
        crowd.change(ident, note="x")

    def worsen(ident: str) -> None:
        if ident == "p8":
            vars(crowd).update(harm)

    crowd.before = worsen
    assert said in json.dumps(walk("--parallel", "1", status=1))
    assert (crowd.records["p9"]["name"] == "Ann 9") is ("ignores" in harm)


def test_a_list_without_pages_is_refused_unless_it_is_whole(office, walk):
    items = office._list
    office.page = 9
    office._list = lambda side, query: (200, {"items": items(side, query)[1]["items"]}, {})
    refusal = walk(status=1)
    assert (refusal["code"], "--pages" in refusal["message"]) == ("bad_rules", True)
    assert office.writes("proxy") == 0
    assert walk("--pages", "whole")["converted"] == 5


@pytest.mark.parametrize("following", [{0: 0}, {0: 2, 2: 0}, {0: 2, 2: 4, 4: 2}])
def test_pages_that_lead_back_are_refused(office, walk, following):
    items = office._list

    def round_and_round(side, query):
        start = int(query.get("start", ["0"])[0])
        address = f"/people?start={following[start]}" if following[start] else "/people"
        return 200, {**items(side, query)[1], "next": address}, {}

    office._list = round_and_round
    assert "leads to itself, or back to itself" in walk(status=1)["message"]


@pytest.mark.parametrize("heeded", [True, False])
def test_a_list_that_repeats_a_counted_page_is_at_its_end_or_does_not_count(office, walk, heeded):
    """Some answer the last page beyond it, others do not know the parameter."""
    items, pages = office._list, [["0"], ["2"], ["4"]]

    def clamped(side, query):
        number = min(int(query["page"][0]), 3) if heeded else 1
        return 200, {"items": items(side, {"start": pages[number - 1]})[1]["items"]}, {}

    office._list = clamped
    report = walk("--pages", "page=1", status=0 if heeded else 1)
    if heeded:
        assert (report["complete"], report["converted"], report["records"]) == (True, 5, 5)
    else:
        assert "does not heed --pages page=1" in report["message"]


def test_a_record_that_its_own_address_never_finds_keeps_the_walk_from_its_end(office, walk):
    office.unfindable = {"p3"}
    report = walk(status=1)
    assert (report["complete"], report["converted"], report["refused"]) == (False, 4, 1)
    (refusal,) = report["refusals"]
    assert refusal["text"] == "it is listed, and GET /people/{id} does not find it"
    office.records["p3"] = {
        "id": "p3",
        "name": "t-Ann 3",
    }  # its own address is asked what the list does not show
    assert walk("--dry-run")["missing"] == 1


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_a_list_whose_ids_lead_nowhere_is_refused_at_its_first_page(office, walk, how):
    office.unfindable, office.page = set(office.records), 5
    told = json.dumps(walk(*how, status=1))
    assert "of its first page is found by GET /people/{id}" in told
    assert office.writes("proxy") == 0
