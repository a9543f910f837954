import pytest

pytestmark = pytest.mark.usefixtures("people")


@pytest.mark.parametrize("path", ["/api/find", "/webapi/find", "/sf/find", "/sf/find-ids"])
async def test_direct_searches_name_their_schema(here, path):
    answer = await here.client("POST", path, json={"schema": "contact", "filter": {"city": "Lund"}})
    assert (answer.status, answer.json["meta"]["total"]) == (200, 1)
    for body, code in (
        ({"filter": {}}, "invalid_input"),
        ({"schema": 1}, "invalid_input"),
        ({"schema": "x"}, "unknown_schema"),
        ({"schema": "contact", "limit": 1}, "invalid_input"),
    ):
        answer = await here.client("POST", path, json=body)
        assert (answer.status, answer.json["code"]) == (400, code)


async def test_pages_of_groups_follow_each_other(here):
    body = {"metrics": {"n": {"func": "count"}}, "group_by": {"keys": ["city"], "limit": 1}}
    first = (await here.client("POST", "/api/models/contact/aggregate", json=body)).json
    assert first["data"] == [{"group": {"keys": {"city": "Lund"}}, "metrics": {"n": 1}}]
    for name in ("next", "cursor"):
        second = (
            await here.client(
                "POST", "/api/models/contact/aggregate", json={name: first["meta"]["next"]}
            )
        ).json
        assert second == {
            "data": [{"group": {"keys": {"city": "Uppsala"}}, "metrics": {"n": 2}}],
            "meta": {"next": None},
        }
    answer = await here.client(
        "POST", "/api/models/contact/aggregate", "chief", json={"next": first["meta"]["next"]}
    )
    assert answer.status == 400


async def test_the_history_of_a_record_is_told_from_its_newest_version(here):
    await here.client(
        "POST", "/api/models/contact/batch/update", "chief", json=[{"id": "c-3", "city": "Visby"}]
    )
    answer = await here.client("GET", "/api/models/contact/c-3/history?limit=1")
    (version,) = answer.json["data"]
    assert (version["version"], version["action"], version["by"], version["record"]["city"]) == (
        2,
        "update",
        "chief",
        "Visby",
    )
    meta = answer.json["meta"]
    cursor = meta.pop("next")
    assert meta == {"count": 1, "limit": 1, "offset": 0, "total": 2}
    path = "/api/models/contact/c-3/history"
    last = (await here.client("GET", path, params={"next": cursor})).json
    assert [version["version"] for version in last["data"]] == [1]
    assert "next" not in last["meta"]
    answer = await here.client("GET", "/api/models/contact/c-3/history?offset=1")
    assert [version["record"]["city"] for version in answer.json["data"]] == ["Lund"]
    for query in ("limit=0", "limit=1001", "limit=x", "offset=-1", "page=2"):
        assert (await here.client("GET", f"/api/models/contact/c-3/history?{query}")).status == 400
    assert (await here.client("GET", "/api/models/contact/x/history")).status == 404


async def test_an_export_goes_through_all_records_by_its_cursor(here):
    first = (await here.client("GET", "/api/models/contact/export", params={"limit": "2"})).json
    rest = await here.client(
        "GET", "/api/models/contact/export", params={"limit": "2", "next": first["meta"]["next"]}
    )
    assert [record["id"] for record in (*first["data"], *rest.json["data"])] == [
        "c-1",
        "c-2",
        "c-3",
    ]
    assert rest.json["meta"] == {"count": 1, "next": None}
    for params in ({"next": "x"}, {"limit": "0"}, {"limit": "1001"}):
        assert (await here.client("GET", "/api/models/contact/export", params=params)).status == 400
