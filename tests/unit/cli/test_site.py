from collections.abc import Iterator
from contextlib import closing

import pytest

from proxy.cli.http_client import HttpAnswer
from proxy.cli.site import PageTrail, Paging, Site
from proxy.errors import Code, VaultError
from tests.support.adopted import Adopted, adopted


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr("proxy.cli.http_client.time.sleep", waited.append)
    return waited


@pytest.fixture
def office() -> Iterator[Adopted]:
    with adopted(2) as office:
        yield office


def test_a_read_waits_for_the_other_side(office, waits):
    office.failures = [503, 0, 502]
    with closing(Site(office.url, {}, 60)) as application:
        assert application.read("/people/p1").status == 200
    assert waits == [0.1, 0.2, 0.5]


def test_a_write_without_an_answer_is_nobody_knows_what(office):
    office.failures = [503, 0]
    with closing(Site(office.url, {}, 60)) as application:
        answers = [application.write("PATCH", "/people/p1", b"{}", {}) for _ in range(3)]
    assert [one and one.status for one in answers] == [None, None, 200]


def test_patience_ends(office):
    office.failures = [503] * 9
    with closing(Site(office.url, {}, -1)) as application:
        with pytest.raises(VaultError) as read:
            application.read("/people")
        with pytest.raises(VaultError) as written:
            application.write("PATCH", "/people/p1", b"{}", {})
    for ended in (read, written):
        assert ended.value.code is Code.UPSTREAM_UNREACHABLE
        assert "status 503" in ended.value.message


def following(paging: str, target: str, body: str = "[]", count: int = 5, **fields: str) -> object:
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    return Paging(paging).following(target, HttpAnswer(200, headers, body.encode()), 3, count)


@pytest.mark.parametrize(
    ("paging", "fields", "body", "expected"),
    [
        ("", {"link": '<https://a.example/p?page=2>; rel="next"'}, "[]", "/p?page=2"),
        ("", {"link": '</p?q=1>; rel="prev", </p?q=3>; rel=next'}, "[]", "/p?q=3"),
        ("", {"link": '</p?q=1>; rel="prev"'}, "[]", None),
        ("", {"next_page": "http://a.example/v1/p?_token=a%3D"}, "[]", "/v1/p?_token=a%3D"),
        ("", {}, '{"next": "?page=2"}', "/p?page=2"),
        ("", {}, '{"next": null}', None),
        ("whole", {"link": "</p?q=3>; rel=next"}, "[]", None),
        ("header X-More", {"x_more": "/p?c=1"}, "[]", "/p?c=1"),
        ("header X-More", {}, "[]", None),
        ("$.meta.next", {}, '{"meta": {"next": "/p?c=2"}}', "/p?c=2"),
        ("after=$.cursor", {}, '{"cursor": "a b"}', "/p?limit=5&after=a+b"),
        ("after=$.cursor", {}, '{"cursor": null}', None),
        ("page=1", {}, "[]", "/p?limit=5&page=4"),
        ("offset+0", {}, "[]", "/p?limit=5&offset=3"),
    ],
)
def test_how_one_page_follows_another(paging, fields, body, expected):
    assert following(paging, "/p?limit=5", body, **fields) == expected


def test_counted_pages_end_with_an_empty_one_and_begin_where_they_were():
    assert following("page=1", "/p?page=4", count=0) is None
    assert Paging("page=0").first("/p?page=9", 7) == "/p?page=7"
    assert [Paging("page=1").step(5), Paging("offset+0").step(5)] == [1, 5]
    assert Paging("after=$.c").first("/p") == "/p"


def test_a_list_may_say_nothing_of_another_page():
    silent, last = HttpAnswer(200, {}, b"[]"), HttpAnswer(200, {}, b'{"next": null}')
    assert [Paging("").is_conclusive(silent), Paging("").is_conclusive(last)] == [False, True]
    assert Paging("whole").is_conclusive(silent)


@pytest.mark.parametrize("text", ["pages", "$.a[*]", "header ", "a b=1", "x=$.a..b"])
def test_what_is_no_way_from_page_to_page(text):
    with pytest.raises(ValueError, match="page"):
        Paging(text)


@pytest.mark.parametrize(
    ("body", "way"),
    [
        ('{"data": [], "meta": {"total": 9, "nextCursor": "eyJh"}}', "PARAMETER=$.meta.nextCursor"),
        ('{"data": [], "next_cursor": "eyJh"}', "PARAMETER=$.next_cursor"),
        ('{"data": [], "paging": {"nextPage": "/p?page=2"}}', "$.paging.nextPage"),
        ('{"data": [], "meta": {"nextCursor": null}}', ""),
        ("[]", ""),
    ],
)
def test_a_list_that_seems_to_tell_its_next_page_is_told_with_that_member(body, way):
    trail = PageTrail(Paging(""), "GET /p")
    with pytest.raises(VaultError) as caught:
        trail.refuse_endless("/p", HttpAnswer(200, {}, body.encode()), 2)
    _, _, hint = caught.value.message.partition("(one answer has all)")
    assert hint == (f". It may be --pages '{way}'." if way else ".")
