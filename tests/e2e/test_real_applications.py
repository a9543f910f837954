"""Applications as people really run them, behind the proxy, with the rule files of ``rules/`` that
anybody may copy.

A Django project with two faces: a REST interface made with Django REST framework, and Django's own
admin, a site of HTML forms. Both are installed from the package index by the tests themselves,
served by gunicorn, and used through httpx.
"""

import base64
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.test_adoption import markers_in, person
from tests.support.instance import Instance, running
from tests.support.real import project, site
from tests.support.real.client import Client, Reply, client, started
from tests.support.real.inside import Counts, counts, faults
from tests.support.real.installed import environment
from tests.support.real.pages import Page
from tests.support.real.site import Site

RULES = Path(__file__).parents[2] / "rules" / "examples"

ANN = {
    "name": "Zorbina Quibblethwaite", "email": "Zorbina.Q@Wexlomere.example",
    "phone": "+46 70 918 27 36", "birth_date": "1931-02-27", "note": 'Ate the "last" plöm — twice.',
    "city": "Visby",
}  # fmt: skip
#: What of her must never reach the application, in any spelling.
MARKERS = ("Zorbina", "Quibblethwaite", "Wexlomere", "+46 70 918 27", "1931-02-27", "plöm")


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def python() -> Path:
    return environment()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def django(python: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("django")
    template = site.prepared(python, folder / "project")
    async with site.serving(python, template, folder / "site") as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(python: Path) -> AsyncIterator[Client]:
    async with started(python) as made:
        yield made


@dataclass(frozen=True)
class Setting:
    """Client, proxy and application in a row."""

    site: Site
    instance: Instance
    client: Client

    @property
    def kept(self) -> Counts:
        return counts(self.instance.data)

    def stored(self) -> list[dict[str, Any]]:
        """The people as the application's own database has them."""
        with closing(sqlite3.connect(self.site.folder / "db.sqlite3")) as base:
            base.row_factory = sqlite3.Row
            return [dict(row) for row in base.execute("SELECT * FROM people_person ORDER BY id")]

    def paper(self) -> int:
        """The number of the one file that it keeps."""
        with closing(sqlite3.connect(self.site.folder / "db.sqlite3")) as base:
            ((number,),) = base.execute("SELECT id FROM papers_paper")
        return int(number)

    def leaked(self, markers: Iterable[str] = MARKERS) -> dict[str, list[str]]:
        """What reached the application, and in which spelling; empty as it should be."""
        return {marker: found for marker in markers if (found := self.site.holds(marker))}


@asynccontextmanager
async def setting(
    caller: Client, django: Site, folder: Path, rules: str, *account: str
) -> AsyncIterator[Setting]:
    """The application with nobody in it, behind the proxy with these rules."""
    address = 'upstream: "http://127.0.0.1:8000"'
    assert rules.count(address) == 1
    django.fresh()
    text = rules.replace(address, f'upstream: "{django.wire.address}"')
    async with running(folder / "proxy", text) as instance:
        await caller.begin(instance.proxy, *account)
        yield Setting(django, instance, caller)
        assert faults(instance) == []


# ---------------------------------------------------------------------- Django REST framework


@pytest_asyncio.fixture(loop_scope="module")
async def rest(caller: Client, django: Site, tmp_path: Path) -> AsyncIterator[Setting]:
    text = (RULES / "rest-api.yaml").read_text()
    async with setting(caller, django, tmp_path, text, project.USER, project.PASSWORD) as made:
        yield made


async def created(rest: Setting, **content: Any) -> dict[str, Any]:
    reply = await rest.client("POST", "/api/people/", json={**ANN, **content})
    assert reply.status == 201, reply.text
    record: dict[str, Any] = reply.json
    return record


async def test_a_rest_interface_stores_tokens_and_its_callers_see_people(rest):
    record = await created(rest)
    assert record == {**ANN, "id": record["id"], "vip": False}
    assert (await rest.client("GET", f"/api/people/{record['id']}/")).json == record
    assert rest.leaked() == {}
    (row,) = rest.stored()
    assert (row["city"], row["vip"]) == ("Visby", 0)
    assert row["email"].endswith("@example.org")
    assert {name for name in ANN if row[name] == ANN[name]} == {"city"}
    assert rest.kept[:3] == (1, 0, 0)


async def test_lists_are_restored_page_by_page(rest):
    people = [
        await created(rest, name=f"Zorbina No. {n}", email=f"z{n}@wexlomere.example")
        for n in range(5)
    ]
    first = (await rest.client("GET", "/api/people/")).json
    assert first["count"] == 5
    assert first["next"].startswith(rest.instance.proxy + "/api/people/?page=2")
    second = (await rest.client("GET", first["next"].removeprefix(rest.instance.proxy))).json
    assert first["results"] + second["results"] == people
    assert rest.leaked() == {}


async def test_people_are_found_by_their_address_however_it_is_spelled(rest):
    record = await created(rest)
    await created(rest, email="other@wexlomere.example")
    for spelled in ("Zorbina.Q@Wexlomere.example", "zorbina.q@wexlomere.example"):
        found = (
            await rest.client("GET", "/api/people/", params={"email": spelled, "city": "Visby"})
        ).json
        assert (found["count"], found["results"]) == (1, [record])
    assert (
        await rest.client("GET", "/api/people/", params={"email": "nobody@wexlomere.example"})
    ).json["count"] == 0
    assert rest.leaked() == {}


async def test_what_does_not_change_keeps_its_token(rest):
    record = await created(rest)
    (before,) = rest.stored()
    patched = await rest.client(
        "PATCH", f"/api/people/{record['id']}/", json={"note": "Zorbina moved.", "vip": True}
    )
    assert patched.json == {**record, "note": "Zorbina moved.", "vip": True}
    replaced = await rest.client(
        "PUT", f"/api/people/{record['id']}/", json={**patched.json, "city": "Ystad"}
    )
    assert replaced.json == {**patched.json, "city": "Ystad"}
    (after,) = rest.stored()
    assert {name for name in before if before[name] != after[name]} == {"note", "vip", "city"}
    assert rest.leaked() == {}
    assert (await rest.client("GET", f"/api/people/{record['id']}/")).json == replaced.json


async def test_a_refusal_repeats_the_callers_own_words_and_leaves_nothing_behind(rest):
    reply = await rest.client("POST", "/api/people/", json={**ANN, "phone": "", "vip": True})
    assert reply.status == 400
    words = (
        "Zorbina Quibblethwaite <Zorbina.Q@Wexlomere.example> is a VIP: a phone number is needed."
    )
    assert reply.json == {"non_field_errors": [words]}
    assert rest.leaked() == {}
    assert rest.kept == (0, 0, 0, 0)
    assert rest.stored() == []


async def test_what_no_token_can_stand_for_is_refused_without_repeating_it(rest):
    reply = await rest.client(
        "POST", "/api/people/", json={**ANN, "birth_date": "the Wexlomere fair"}
    )
    assert (reply.status, reply.json["code"]) == (422, "value_unfit")
    assert "Wexlomere" not in reply.text
    assert rest.site.wire.requests(b"POST ") == 0


async def test_the_framework_refuses_what_lacks_a_required_field(rest):
    reply = await rest.client("POST", "/api/people/", json={"name": ANN["name"], "city": "Visby"})
    assert (reply.status, reply.json) == (400, {"email": ["This field is required."]})
    assert rest.kept == (0, 0, 0, 0)


async def test_a_unique_address_stays_unique(rest):
    await created(rest)
    reply = await rest.client("POST", "/api/people/", json={**ANN, "name": "Zorbina the Second"})
    assert (reply.status, reply.json) == (
        400,
        {"email": ["person with this email already exists."]},
    )
    assert rest.kept[:3] == (1, 0, 0)


@pytest.mark.parametrize(
    "address", ["/api/people/", "/api/people.json", "/api/people.json/", "/api/%70eople/"]
)
@pytest.mark.parametrize("kind", ["json", "data"])
async def test_every_address_and_kind_of_body_that_makes_a_record_is_protected(rest, kind, address):
    reply = await rest.client("POST", address, **{kind: ANN})
    assert reply.status == 201
    assert reply.json == {**ANN, "id": reply.json["id"], "vip": False}
    changed = await rest.client(
        "PATCH", f"/api/people/{reply.json['id']}.json", **{kind: {"note": "Zorbina moved."}}
    )
    assert changed.json == {**reply.json, "note": "Zorbina moved."}
    assert rest.leaked() == {}


async def test_what_cannot_be_read_is_refused_before_the_application_sees_it(rest):
    before = rest.site.wire.requests(b"POST ")
    boundary = {"Content-Type": "multipart/form-data; boundary=zzz"}
    body = '--zzz\r\nContent-Disposition: form-data; name="name"\r\n\r\nZorbina\r\n--zzz--\r\n'
    reply = await rest.client("POST", "/api/people/", content=body, headers=boundary)
    assert reply.status == 415
    assert rest.site.wire.requests(b"POST ") == before
    assert rest.leaked() == {}


async def test_deleting_a_person_empties_the_vault(rest):
    record = await created(rest)
    reply = await rest.client("DELETE", f"/api/people/{record['id']}/")
    assert (reply.status, reply.text) == (204, "")
    assert (await rest.client("GET", f"/api/people/{record['id']}/")).status == 404
    assert rest.stored() == []
    assert rest.kept == (0, 0, 0, 0)


async def test_without_an_account_nothing_is_stored(rest, python):
    async with client(python, rest.instance.proxy) as stranger:
        reply = await stranger("POST", "/api/people/", json=ANN)
    assert reply.status == 403
    assert rest.kept == (0, 0, 0, 0)
    assert rest.leaked() == {}


async def test_what_no_rule_names_passes_unchanged(rest):
    described = await rest.client("OPTIONS", "/api/people/")
    assert described.json["actions"]["POST"]["email"]["type"] == "email"
    assert (await rest.client("GET", "/api/")).json == {
        "people": f"{rest.instance.proxy}/api/people/"
    }


async def test_rows_that_it_holds_become_tokens_and_values_again_without_entity_tags(
    caller: Client, django: Site, python: Path, tmp_path: Path
) -> None:
    """``domicile adopt`` and ``release``: pages by ``next``, checks of its own, unique addresses."""
    text = (RULES / "rest-api.yaml").read_text("utf-8") + "\non_error: {vault_down: {read: 503}}\n"
    account = (project.USER, project.PASSWORD)
    async with (
        setting(caller, django, tmp_path, text, *account) as made,
        client(python, django.wire.address, *account) as direct,
    ):
        for number in range(8):
            row = {**person(number), "note": "", "city": "Visby"}
            wanted = ("name", "email", "phone", "birth_date", "note", "city")
            reply = await direct("POST", "/api/people/", json={name: row[name] for name in wanted})
            assert reply.status == 201, reply.text
        before = made.stored()
        basic = "Basic " + base64.b64encode(":".join(account).encode()).decode()
        words = ("--proxy", made.instance.proxy, "--header", "Authorization: ${env:AUTH}")
        adopted = await made.instance.command("adopt", *words, AUTH=basic)
        assert (adopted["converted"], adopted["conditional"], adopted["tokens"]) == (8, 0, 8)
        rows = made.stored()
        assert markers_in({str(row["id"]): row for row in rows}) == []
        assert not any(row["birth_date"] == "1931-02-27" for row in rows)
        assert [row["city"] for row in rows] == ["Visby"] * 8
        shown = (await made.client("GET", f"/api/people/{rows[5]['id']}/")).json
        assert [shown[one] for one in ("name", "birth_date", "note")] == [
            *("Zorbina Quibble5", "1931-02-27", "")
        ]
        released = await made.instance.command("release", *words, AUTH=basic)
        assert released["converted"] == 8
        assert made.stored() == before


# ---------------------------------------------------------------------- Django's own admin


@pytest_asyncio.fixture(loop_scope="module")
async def admin(caller: Client, django: Site, tmp_path: Path) -> AsyncIterator[Setting]:
    text = (RULES / "django-admin.yaml").read_text()
    assert text.count(OPERATIONS) == 1
    async with setting(
        caller, django, tmp_path, text.replace(OPERATIONS, OPERATIONS + READ_API)
    ) as made:
        form = Page((await made.client("GET", "/admin/login/")).text).fields
        reply = await made.client("POST", "/admin/login/", data={**form, **LOGIN})
        assert (reply.status, reply.location) == (302, "/admin/")
        yield made


OPERATIONS = "\noperations:\n"
#: The same people as JSON, for the tests alone: it shows what the vault holds where a page cannot.
READ_API = '  - {match: "GET /api/people/{id}/", read: person, id: path id}\n'

LOGIN = {"username": project.USER, "password": project.PASSWORD}
ADD = "/admin/people/person/add/"
LIST = "/admin/people/person/"
CONTINUE = {"_continue": "Save and continue editing"}
SAVE = {"_save": "Save"}


async def page(admin: Setting, path: str, **order: Any) -> Page:
    reply = await admin.client("GET", path, **order)
    assert reply.status == 200, (path, reply.status)
    return Page(reply.text)


async def submitted(admin: Setting, path: str, button: dict[str, str], **content: str) -> Reply:
    """Open the page, fill in the form that it shows, and submit all of it, as a browser does."""
    form = (await page(admin, path)).fields
    return await admin.client("POST", path, data={**form, **content, **button})


async def added(admin: Setting, **content: str) -> str:
    """A new person by "Save and continue editing"; the page to change it."""
    reply = await submitted(admin, ADD, CONTINUE, **{**ANN, **content})
    assert reply.status == 302, reply.text
    assert reply.location.startswith("/admin/people/person/")
    assert reply.location.endswith("/change/")
    return reply.location


def shown(page: Page) -> dict[str, str]:
    return {name: page.fields[name] for name in ANN}


async def record(admin: Setting, place: str) -> Any:
    """What the JSON interface answers for the person of that page."""
    return (await admin.client("GET", f"/api/people/{place.split('/')[-3]}/")).json


async def test_an_admin_site_stores_tokens_and_its_editors_see_people(admin):
    place = await added(admin)
    assert admin.kept[:3] == (1, 0, 0)
    changing = await page(admin, place)
    assert shown(changing) == ANN
    assert "The person “Zorbina Quibblethwaite” was added successfully." in changing.text
    listed = (await page(admin, LIST)).text
    assert "Zorbina Quibblethwaite" in listed
    assert "Zorbina.Q@Wexlomere.example" in listed
    for other in ("/admin/", place.replace("change", "history"), place.replace("change", "delete")):
        assert "Zorbina Quibblethwaite" in (await page(admin, other)).text, other
    assert admin.leaked() == {}


async def test_an_editor_saves_the_page_as_it_is_shown_and_nothing_gets_lost(admin):
    place = await added(admin)
    (before,) = admin.stored()
    reply = await submitted(admin, place, SAVE, city="Ystad", note="Zorbina moved.")
    assert (reply.status, reply.location) == (302, LIST)
    (after,) = admin.stored()
    assert {name for name in before if before[name] != after[name]} == {"city", "note"}
    changed = ANN | {"city": "Ystad", "note": "Zorbina moved."}
    assert shown(await page(admin, place)) == changed
    assert admin.kept[:3] == (1, 0, 0)
    assert await record(admin, place) == {**changed, "id": after["id"], "vip": False}
    assert admin.leaked() == {}


async def test_a_form_that_is_shown_again_shows_the_editors_own_words(admin):
    reply = await submitted(admin, ADD, SAVE, **{**ANN, "phone": "", "vip": "on"})
    assert reply.status == 200
    again = Page(reply.text)
    assert shown(again) == ANN | {"phone": ""}
    words = (
        "Zorbina Quibblethwaite <Zorbina.Q@Wexlomere.example> is a VIP: a phone number is needed."
    )
    assert words in again.text
    assert admin.kept == (0, 0, 0, 0)
    assert admin.leaked() == {}


async def test_a_hidden_date_is_never_stored_as_a_real_one(admin):
    again = Page(
        (await submitted(admin, ADD, CONTINUE, **{**ANN, "phone": "", "vip": "on"})).text
    ).fields
    corrected = {**again, "phone": ANN["phone"], **CONTINUE}
    hidden = {**corrected, "birth_date": "1900-01-01"}
    refused = await admin.client("POST", ADD, data=hidden)
    assert (refused.status, refused.json["code"]) == (422, "value_unfit")
    assert admin.stored() == []
    taken = await admin.client("POST", ADD, data=corrected)
    assert taken.status == 302
    assert (await record(admin, taken.location))["birth_date"] == ANN["birth_date"]


async def test_an_editor_finds_people_by_their_address(admin):
    await added(admin)
    await page(admin, await added(admin, name="Somebody Else", email="else@wexlomere.example"))
    found = await page(admin, LIST, params={"q": "zorbina.q@wexlomere.example"})
    assert "Zorbina Quibblethwaite" in found.text
    assert "Somebody Else" not in found.text
    assert admin.leaked() == {}


async def test_an_editor_deletes_a_person_and_the_vault_is_empty(admin):
    place = (await added(admin)).replace("change", "delete")
    confirming = await page(admin, place)
    assert "Zorbina Quibblethwaite" in confirming.text
    assert admin.kept.live == 1
    reply = await admin.client("POST", place, data=confirming.fields)
    assert (reply.status, reply.location) == (302, LIST)
    assert admin.stored() == []
    assert admin.kept == (0, 0, 0, 0)
    assert "was deleted successfully" in (await page(admin, LIST)).text
    assert admin.leaked() == {}


async def test_an_expired_session_changes_and_deletes_nothing_in_the_vault(admin):
    place = await added(admin)
    form = {**(await page(admin, place)).fields, "note": "Zorbina moved."}
    gone = (await page(admin, place.replace("change", "delete"))).fields
    with closing(sqlite3.connect(admin.site.folder / "db.sqlite3")) as base, base:
        base.execute("DELETE FROM django_session")
    for path, data in ((place, form), (place.replace("change", "delete"), gone)):
        reply = await admin.client("POST", path, data=data)
        assert (reply.status, reply.location.partition("?")[0]) == (302, "/admin/login/")
    assert admin.kept[:3] == (1, 0, 2), "both are in doubt, nothing is lost"
    login = Page((await admin.client("GET", "/admin/login/")).text).fields
    assert (await admin.client("POST", "/admin/login/", data={**login, **LOGIN})).status == 302
    assert (await record(admin, place))["note"] == ANN["note"]
    assert admin.kept[:3] == (1, 0, 0), "what Django shows settles both"
    assert admin.leaked() == {}


async def test_a_pop_up_that_closes_has_saved(admin):
    reply = await submitted(admin, f"{ADD}?_popup=1", SAVE, **ANN)
    assert (reply.status, "popup_response" in reply.text) == (200, True)
    assert admin.kept[:3] == (1, 0, 0)
    (row,) = admin.stored()
    place = f"{LIST}{row['id']}/change/"
    assert await record(admin, place) == {**ANN, "id": row["id"], "vip": False}
    again = await submitted(admin, f"{place}?_popup=1", SAVE, phone="", vip="on")
    assert (again.status, shown(Page(again.text))["name"]) == (200, ANN["name"]), (
        "a pop-up with mistakes stays open"
    )
    assert (await record(admin, place))["phone"] == ANN["phone"]
    await submitted(admin, f"{place}?_popup=1", SAVE, note="Zorbina moved.")
    assert (await record(admin, place))["note"] == "Zorbina moved."
    assert admin.kept[:3] == (1, 0, 0)
    assert admin.leaked() == {}


async def test_a_plain_save_tells_the_id_in_a_header(admin):
    reply = await submitted(admin, ADD, SAVE, **ANN)
    assert (reply.status, reply.location) == (302, LIST)
    assert admin.kept[:3] == (1, 0, 0)
    (row,) = admin.stored()
    place = f"{LIST}{row['id']}/change/"
    assert shown(await page(admin, place)) == ANN, "no other answer has told the id"
    assert await record(admin, place) == {**ANN, "id": row["id"], "vip": False}
    assert admin.leaked() == {}


# ---------------------------------------------------------------------- files that Django keeps


PAPERS = """
version: 1
endpoint: {name: papers, upstream: "http://127.0.0.1:8000", unmatched: deny}
entities:
  paper:
    fields:
      title: {kind: text}
      scan:  {kind: text, token: filename}
operations:
  - match: POST /papers/
    create: paper
    request: {multipart: {title: title, scan: {filename: scan}}}
    response: {success: {status: 302, location: "/papers/{id}"}, id: "header Location /papers/{id}", restore: html}
  - {match: GET /papers/, read: paper, response: {restore: anywhere}}
  - {match: "GET /papers/{id}", read: paper, response: {carriers: [Content-Disposition]}}
"""


async def test_files_are_kept_under_tokens_and_listed_under_their_names(caller, django, tmp_path):
    scan = "Zorbina Quibblethwaite's pass Åland.pdf"
    async with setting(caller, django, tmp_path, PAPERS) as made, aiohttp.ClientSession() as web:

        async def sent(name: str, title: str) -> tuple[int, str]:
            form = aiohttp.FormData({"title": title}, quote_fields=False)
            form.add_field("scan", b"%PDF", filename=name, content_type="application/pdf")
            address = f"{made.instance.proxy}/papers/"
            async with web.post(address, data=form, allow_redirects=False) as answer:
                return answer.status, unescape(await answer.text())

        assert (await sent(scan, "Passport of Quibblethwaite"))[0] == 302
        assert (await sent("", "nothing chosen"))[0] == 200
        status, page = await sent("Quibblethwaite.exe", "no paper")
        assert (status, "exe" in page) == (200, True)
        (kept,) = (django.folder / "media" / "scans").iterdir()
        assert re.fullmatch("[a-z0-9]{26}[.]pdf", kept.name)
        async with web.get(f"{made.instance.proxy}/papers/") as answer:
            page = unescape(await answer.text())
        assert f"<a href='/media/scans/{kept.name}'>scans/{scan}</a>" in page
        assert "<b>Passport of Quibblethwaite</b>" in page
        async with web.get(f"{made.instance.proxy}/papers/{made.paper()}") as file:
            assert await file.read() == b"%PDF"
            assert file.content_disposition is not None
            assert file.content_disposition.filename == scan
        assert made.leaked() == {}
