"""Uploads of the rule file ``rules/examples/streams.yaml`` through the whole program."""

import csv
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.application import found_in
from tests.support.instance import Instance, running
from tests.support.serving import serving
from tests.support.tree import ROOT

RULES = ROOT / "rules" / "examples" / "streams.yaml"
PICTURE = bytes(range(256)) * 4000
MARKERS = ("Quibblethwaite", "wexlomere")


@dataclass
class Uploads:
    """An application that keeps what is uploaded."""

    contacts: dict[int, dict[str, Any]] = field(default_factory=dict)
    pictures: list[tuple[str | None, bytes]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)  #: as in a folder
    order: list[str | None] = field(default_factory=list)  #: names of the last form's parts
    sent: bytearray = field(default_factory=bytearray)

    def app(self) -> web.Application:
        made = web.Application(client_max_size=1 << 24)
        made.add_routes(
            [
                web.post("/contacts", self._create),
                web.get("/contacts", self._list),
                web.post("/contacts/{id}/photo", self._photo),
                web.post("/documents", self._document),
                web.get("/documents", self._documents),
                web.get("/documents.html", self._page),
                web.get("/documents/{id}", self._download),
                web.post("/contacts/import", self._import),
                web.post("/contacts/import-file", self._import),
            ]
        )
        return made

    async def _create(self, request: web.Request) -> web.Response:
        self.sent += await request.read()
        number = len(self.contacts) + 1
        self.contacts[number] = {**json.loads(await request.read()), "id": number}
        return web.json_response(self.contacts[number], status=201)

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response(list(self.contacts.values()))

    async def _photo(self, request: web.Request) -> web.Response:
        self.order.clear()
        number = int(request.match_info["id"])
        async for part in await request.multipart():
            assert isinstance(part, aiohttp.BodyPartReader)
            content = bytes(await part.read())
            self.sent += content
            self.order.append(part.name)
            if part.filename is not None:
                self.pictures.append((part.filename, content))
            elif part.name == "caption":
                self.contacts[number]["note"] = content.decode()
        return web.json_response(self.contacts[number])

    async def _document(self, request: web.Request) -> web.Response:
        scan = (await request.post())["scan"]
        assert isinstance(scan, web.FileField)
        self.sent += scan.filename.encode()
        if scan.filename.rpartition(".")[2] != "pdf" or scan.filename in self.files:
            return web.json_response({"error": f"no {scan.filename}"}, status=422)
        self.files[scan.filename] = scan.file.read()
        return web.json_response({"id": len(self.files), "name": scan.filename}, status=201)

    async def _documents(self, request: web.Request) -> web.Response:
        listed = [{"id": at, "name": name} for at, name in enumerate(self.files, 1)]
        return web.json_response(listed)

    async def _page(self, request: web.Request) -> web.Response:
        rows = (f'<li title="{name}">{name}</li>' for name in self.files)
        return web.Response(text=f"<ul>{''.join(rows)}</ul>", content_type="text/html")

    async def _download(self, request: web.Request) -> web.Response:
        name = [*self.files][int(request.match_info["id"]) - 1]
        said = f"attachment; filename=\"{name}\"; filename*=UTF-8''{name}"
        return web.Response(body=self.files[name], headers={"Content-Disposition": said})

    async def _import(self, request: web.Request) -> web.Response:
        """Store each row of a file, as Python's own reader has it."""
        if request.content_type == "text/csv":
            content = await request.read()
        else:
            file = (await request.post())["file"]
            assert isinstance(file, web.FileField)
            content = file.file.read()
        self.sent += content
        ids = []
        for row in csv.DictReader(io.StringIO(content.decode(), newline="")):
            number = len(self.contacts) + 1
            ids.append(number)
            stored = {"id": number, "name": row["Name"], "email": row["E-mail"]}
            self.contacts[number] = {**stored, "team": row["Team"]}
        return web.json_response({"ids": ids}, status=201)


@dataclass
class Scene:
    """The application, the program before it, and a caller."""

    application: Uploads
    instance: Instance
    caller: aiohttp.ClientSession

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.caller.request(method, self.instance.proxy + path, **options) as answer:
            return answer.status, json.loads(await answer.read())


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    application = Uploads()
    async with serving(application.app()) as upstream:
        rules = RULES.read_text().replace("http://127.0.0.1:3000", upstream)
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            yield Scene(application, instance, caller)
    assert not any(found_in(bytes(application.sent), marker) for marker in MARKERS)


async def test_an_upload_keeps_its_picture_and_hides_its_caption(scene):
    contact = {"name": "Zorbina Quibblethwaite", "email": "z@wexlomere.example", "phone": "1234"}
    status, created = await scene.call("POST", "/contacts", json=contact)
    assert status == 201
    form = aiohttp.FormData()
    form.add_field("vip", "yes")
    form.add_field("photo", PICTURE, filename="am-Strand.png", content_type="image/png")
    form.add_field("caption", "Quibblethwaite, 2 å")
    status, answer = await scene.call("POST", "/contacts/1/photo", data=form)
    assert (status, answer) == (200, {**created, "note": "Quibblethwaite, 2 å"})
    assert scene.application.pictures == [("am-Strand.png", PICTURE)]
    assert scene.application.order == ["vip", "photo", "caption"]
    assert (await scene.call("GET", "/contacts"))[1] == [answer]


async def test_a_file_has_a_name_of_its_own_in_the_application_and_its_name_everywhere_else(scene):
    names = ["Zorbina Quibblethwaite passport.pdf", 'Quibblethwaite "Åsa".pdf']
    for number, name in enumerate(names, 1):
        form = aiohttp.FormData(quote_fields=False)
        escaped = name.replace('"', "%22")  # as browsers do
        form.add_field("scan", PICTURE, filename=escaped, content_type="application/pdf")
        created = await scene.call("POST", "/documents", data=form)
        assert created == (201, {"id": number, "name": name})
    assert [*scene.application.files.values()] == [PICTURE, PICTURE]
    assert all(re.fullmatch("[a-z0-9]{26}[.]pdf", one) for one in scene.application.files)
    listed = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
    assert await scene.call("GET", "/documents") == (200, listed)
    async with scene.caller.get(f"{scene.instance.proxy}/documents.html") as page:
        rows = [f"<li title='{name}'>{name}</li>" for name in names]
        assert (
            unescape(await page.text()).replace('title="', "title='").replace('">', "'>")
            == f"<ul>{''.join(rows)}</ul>"
        )
    async with scene.caller.get(f"{scene.instance.proxy}/documents/2") as file:
        assert await file.read() == PICTURE
        assert file.content_disposition is not None
        assert file.content_disposition.filename == "Quibblethwaite _Åsa_.pdf"
    # the application decides by the ending, and its refusal shows the name again
    form = aiohttp.FormData()
    form.add_field("scan", b"x", filename="Quibblethwaite.exe")
    refused = await scene.call("POST", "/documents", data=form)
    assert refused[0] == 422
    assert refused[1]["error"] == "no Quibblethwaite.exe"
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("scan", b"x", filename="=?utf-8?q?Quibblethwaite?=.pdf")
    status, problem = await scene.call("POST", "/documents", data=form)
    assert (status, problem["code"]) == (415, "unreadable_body")


async def test_an_ambiguous_upload_is_refused_and_reaches_nobody(scene):
    await scene.call("POST", "/contacts", json={"name": "Zorbina Quibblethwaite"})
    form = aiohttp.FormData()
    form.add_field("Caption", "Quibblethwaite")
    form.add_field("photo", b"x", filename="x.png")
    status, problem = await scene.call("POST", "/contacts/1/photo", data=form)
    assert (status, problem["code"]) == (400, "ambiguous_json")
    assert scene.application.order == []


def people(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": one,
            "name": f'Quibblethwaite, "{one}"',
            "email": f"a{one}@wexlomere.example",
            "team": f"T;{one}",
        }
        for one in range(1, count + 1)
    ]


def spreadsheet(count: int) -> bytes:
    """So many people as Python's own writer has them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["Team", "Name", "E-mail"])
    writer.writerows([one["team"], one["name"], one["email"]] for one in people(count))
    return text.getvalue().encode()


@pytest.mark.parametrize("way", ["body", "part"])
async def test_an_import_stores_people_and_the_application_never_sees_them(scene, way):
    if way == "body":
        options: dict[str, Any] = {
            "data": spreadsheet(3000),
            "headers": {"Content-Type": "text/csv; charset=utf-8"},
        }
        status, answer = await scene.call("POST", "/contacts/import", **options)
    else:
        form = aiohttp.FormData({"mode": "append"})
        form.add_field("file", spreadsheet(3000), filename="p.csv", content_type="text/csv")
        status, answer = await scene.call("POST", "/contacts/import-file", data=form)
    assert (status, answer) == (201, {"ids": list(range(1, 3001))})
    assert (await scene.call("GET", "/contacts"))[1] == people(3000)
