"""A server of address books and calendars (Radicale), with the proxy before it and
``rules/examples/carddav.yaml``; what callers get is read by vobject and icalendar.
"""

import asyncio
import base64
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import aiohttp
import pytest
from aiohttp import web

from tests.e2e.test_workers import team
from tests.support.application import found_in
from tests.support.instance import running
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, post
from tests.support.real.installed import DAV, environment
from tests.support.real.wire import Wire, tapped

RULES = (Path(__file__).parents[2] / "rules" / "examples" / "carddav.yaml").read_text()
ADDRESS = 'upstream: "http://127.0.0.1:5232"'
SIGNED = f"Authorization: Basic {base64.b64encode(b'kim:x').decode()}"
XML = "Content-Type: application/xml; charset=utf-8"
BOOK = b"""<d:mkcol xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:carddav"><d:set><d:prop><d:resourcetype>
<d:collection/><c:addressbook/></d:resourcetype></d:prop></d:set></d:mkcol>"""
CALENDAR = b'<c:mkcalendar xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav"/>'
MULTIGET = b"""<c:addressbook-multiget xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:carddav"><d:prop><d:getetag/>
<c:address-data/></d:prop><d:href>/kim/book/ann.vcf</d:href><d:href>/kim/book/bob.vcf</d:href></c:addressbook-multiget>"""
EVENTS = b"""<c:calendar-query xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav"><d:prop><c:calendar-data/></d:prop>
<c:filter><c:comp-filter name="VCALENDAR"><c:comp-filter name="VEVENT"/></c:comp-filter></c:filter></c:calendar-query>"""
SYNC = b"""<d:sync-collection xmlns:d="DAV:"><d:sync-token/><d:sync-level>1</d:sync-level><d:prop><d:getetag/>
</d:prop></d:sync-collection>"""
LISTED = b'<d:propfind xmlns:d="DAV:"><d:prop><d:getetag/><d:getcontenttype/></d:prop></d:propfind>'
SEARCH = """<c:addressbook-query xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:carddav"><d:prop><c:address-data/>
</d:prop><c:filter><c:prop-filter name="%s"><c:text-match collation="i;unicode-casemap" match-type="%s">%s</c:text-match>
</c:prop-filter></c:filter></c:addressbook-query>"""
ANN = (
    "BEGIN:VCARD\r\nVERSION:3.0\r\nUID:ann\r\nFN:Zörbina Quibblethwaite\\, MD\r\n"
    "N:Quibblethwaite;Zörbina;;;MD\r\nNICKNAME:Zorbie\r\n"
    "item1.EMAIL;TYPE=HOME:zorbina@wexlomere.example\r\nitem1.X-ABLABEL:Private\r\n"
    "EMAIL;TYPE=WORK:z.q@yxmarker.example\r\nTEL;TYPE=CELL:+46 70 918 27 36\r\n"
    "BDAY:1931-02-27\r\nADR;TYPE=HOME:;;Flumpergatan 4;Grobstad;;918 27;Sverige\r\n"
    "NOTE:Likes walks along the Snorkelberg canal\\, and tea with the neighbours.\\n\r\n"
    " Second line of the Snorkelberg note.\r\nEND:VCARD\r\n"
).encode()
BOB = (
    b"BEGIN:VCARD\r\nVERSION:4.0\r\nUID:bob\r\nFN:Bob Flumpergat\r\n"
    b"TEL;VALUE=uri;TYPE=cell:tel:+46-70-918-27-37\r\nEND:VCARD\r\n"
)
MEETING = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//y//EN\r\nBEGIN:VEVENT\r\nUID:m1\r\nDTSTAMP:20260101T120000Z\r\n"
    "DTSTART:20260202T090000Z\r\nSUMMARY:Quibblethwaite\\, first visit\r\nLOCATION:Flumpergatan 4\r\n"
    'ORGANIZER;CN="Quibblethwaite, Zörbina":mailto:zorbina@wexlomere.example\r\n'
    "ATTENDEE;CN=Bob Flumpergat;PARTSTAT=ACCEPTED:mailto:bob@yxmarker.example\r\n"
    "END:VEVENT\r\nEND:VCALENDAR\r\n"
).encode()
MARKERS = (
    "Quibblethwaite", "Zörbina", "Zorbie", "zorbina", "wexlomere", "z.q@", "yxmarker", "918 27", "918-27",
    "Flumpergat", "Grobstad", "Snorkelberg", "1931-02-27",
)  # fmt: skip

#: Reads what it is sent, a line of JSON each, and tells what it sees.
_READER = """\
import json, sys
import icalendar, vobject
for line in sys.stdin:
    text = json.loads(line)
    if "VCALENDAR" in text:
        (event,) = icalendar.Calendar.from_ical(text).walk("VEVENT")
        organizer, attendee = event["ORGANIZER"], event["ATTENDEE"]
        seen = [event["SUMMARY"], event["LOCATION"], organizer, organizer.params["CN"], attendee, attendee.params["CN"]]
    else:
        card = vobject.readOne(text)
        seen = [card.fn.value, *(one.value for one in card.contents.get("email", []))]
        if "n" in card.contents:
            seen += [card.n.value.family, card.adr.value.street, card.note.value]
    print(json.dumps(seen), flush=True)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    one = await asyncio.create_subprocess_exec(
        str(environment(DAV)), "-W", "ignore", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr,
    )  # fmt: skip
    try:
        yield one
    finally:
        with suppress(ProcessLookupError):  # it has ended
            one.kill()
        await one.wait()


async def listening(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


class Server:
    """The proxy before the server, and what has reached that."""

    def __init__(self, folder: Path, wire: Wire, port: int) -> None:
        self.folder, self.wire, self._port = folder, wire, port

    async def __call__(self, line: str, body: bytes = b"", *fields: str) -> Any:
        method, path = line.split()
        async with RawClient(self._port) as client:
            return await client.ask(post(path, body, SIGNED, *fields, method=method))

    async def report(self, path: str, body: bytes | str) -> dict[str, str]:
        """The cards and calendars of an answer, by address."""
        raw = body if isinstance(body, bytes) else body.encode()
        answer = await self(f"REPORT {path}", raw, XML, "Depth: 1")
        assert answer.status == 207, answer.body
        found: dict[str, str] = {}
        for one in ET.fromstring(answer.body).iter("{DAV:}response"):
            texts = [at.text or "" for at in one.iter() if at.tag.endswith("-data")]
            found[one.findtext("{DAV:}href") or ""] = "".join(texts)
        return found

    def leaked(self) -> list[str]:
        heaps = [bytes(self.wire.sent)]
        heaps += [one.read_bytes() for one in (self.folder / "dav").rglob("*") if one.is_file()]
        assert len(heaps) > 1
        heaps = [heap for raw in heaps for heap in (raw, re.sub(rb"\r?\n[ \t]", b"", raw))]
        return [marker for marker in MARKERS if any(found_in(heap, marker) for heap in heaps)]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Server]:
    port = free_port()
    options = [
        "--auth-type=none",
        f"--storage-filesystem-folder={folder / 'dav'}",
        "--logging-level=error",
    ]
    async with process("-m", "radicale", f"--server-hosts=127.0.0.1:{port}", *options):
        await listening(port)
        async with tapped(port) as wire:
            assert RULES.count(ADDRESS) == 1
            rules = RULES.replace(ADDRESS, f'upstream: "{wire.address}"')
            async with running(folder, rules) as instance:
                server = Server(folder, wire, int(instance.proxy.rpartition(":")[2]))
                assert (await server("MKCOL /kim/book/", BOOK, XML)).status == 201
                assert (await server("MKCALENDAR /kim/events/", CALENDAR, XML)).status == 201
                yield server


async def read_by_others(*texts: str) -> list[Any]:
    """What other readers see in these cards and calendars."""
    async with process("-c", _READER) as reader:
        raw = "".join(f"{json.dumps(text)}\n" for text in texts).encode()
        async with asyncio.timeout(PATIENCE):
            seen, _ = await reader.communicate(raw)
    return [json.loads(line) for line in seen.splitlines()]


async def test_cards_reach_the_callers_and_tokens_the_server(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for name, card in (("ann", ANN), ("bob", BOB)):
            answer = await server(
                f"PUT /kim/book/{name}.vcf", card, "Content-Type: text/vcard; charset=utf-8"
            )
            assert answer.status == 201, answer.body
        answer = await server("GET /kim/book/ann.vcf")
        people = [
            "Zörbina Quibblethwaite, MD", "zorbina@wexlomere.example", "z.q@yxmarker.example", "Quibblethwaite",
            "Flumpergatan 4",
            "Likes walks along the Snorkelberg canal, and tea with the neighbours.\nSecond line of the Snorkelberg note.",
        ]  # fmt: skip
        cards = await server.report("/kim/book/", MULTIGET)
        assert sorted(cards) == ["/kim/book/ann.vcf", "/kim/book/bob.vcf"]
        whole = await server("GET /kim/book/")
        assert "Bob Flumpergat" in whole.body.decode()
        seen = await read_by_others(answer.body.decode(), *(cards[one] for one in sorted(cards)))
        assert seen == [people, people, ["Bob Flumpergat"]]
        for text in (answer.body.decode(), cards["/kim/book/ann.vcf"]):
            assert "BDAY:1931-02-27" in text
            assert "+46 70 918 27 36" in text
            assert max(len(line.encode()) for line in text.splitlines()) <= 75
        assert "tel:+46-70-918-27-37" in cards["/kim/book/bob.vcf"]
        assert server.leaked() == []


async def test_a_client_that_synchronizes_sees_what_changed(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        put = "PUT /kim/book/ann.vcf", ANN, "Content-Type: text/vcard"
        await server(*put)
        listed = await server("PROPFIND /kim/book/", LISTED, XML, "Depth: 1")
        (tag,) = re.findall(rb"ann\.vcf</href>.*?<getetag>([^<]*)", listed.body)
        assert await server.report("/kim/book/", SYNC) == {"/kim/book/ann.vcf": ""}
        changed = ANN.replace(b"Flumpergatan 4", b"Quibblethwaite Lane 5")
        match = f"If-Match: {tag.decode()}"
        assert (await server(put[0], changed, put[2], 'If-Match: "other"')).status == 412
        assert "Flumpergatan 4" in (await server("GET /kim/book/ann.vcf")).body.decode()
        assert (await server(put[0], changed, put[2], match)).status in (201, 204)
        cards = await server.report("/kim/book/", MULTIGET)
        assert "Quibblethwaite Lane 5" in cards["/kim/book/ann.vcf"]
        assert (await server("DELETE /kim/book/ann.vcf")).status == 200
        assert (await server("GET /kim/book/ann.vcf")).status == 404
        assert server.leaked() == []


async def test_a_search_of_a_whole_address_works_and_others_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for name, card in (("ann", ANN), ("bob", BOB)):
            await server(f"PUT /kim/book/{name}.vcf", card, "Content-Type: text/vcard")
        cards = await server.report(
            "/kim/book/", SEARCH % ("EMAIL", "equals", "Z.Q@yxmarker.example")
        )
        assert [*cards] == ["/kim/book/ann.vcf"]
        assert "Zörbina" in cards["/kim/book/ann.vcf"]
        for name, way, text in (
            ("EMAIL", "contains", "z.q@yxmarker.example"), ("FN", "equals", "Zörbina Quibblethwaite"),
            ("TEL", "contains", "918 27"), ("email", "starts-with", "zorbina"),
        ):  # fmt: skip
            body = (SEARCH % (name, way, text)).encode()
            answer = await server("REPORT /kim/book/", body, XML, "Depth: 1")
            assert (answer.status, b"search_refused" in answer.body) == (422, True), name
        assert server.leaked() == []


async def test_events_name_their_people_to_callers_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        put = await server(
            "PUT /kim/events/m1.ics", MEETING, "Content-Type: text/calendar; charset=utf-8"
        )
        assert put.status == 201, put.body
        seen = [
            "Quibblethwaite, first visit", "Flumpergatan 4", "mailto:zorbina@wexlomere.example",
            "Quibblethwaite, Zörbina", "mailto:bob@yxmarker.example", "Bob Flumpergat",
        ]  # fmt: skip
        events = await server.report("/kim/events/", EVENTS)
        answer = await server("GET /kim/events/m1.ics")
        assert await read_by_others(answer.body.decode(), *events.values()) == [seen, seen]
        assert server.leaked() == []


async def test_what_cannot_be_read_never_reaches_the_server(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for card, status in (
            (ANN.replace(b"END:VCARD", b"END:VEVENT"), 415),
            (b"BEGIN:VCARD\r\nVERSION:2.1\r\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:Zorbina\r\nEND:VCARD\r\n", 415),
            (b"BEGIN:VCARD\r\nVERSION:2.1\r\nFN:Zorbina\r\nTEL;HOME:918 27\r\nEND:VCARD\r\n", 415),
            (ANN.replace(b"item1.X-ABLABEL:Private", "X-OLD:was Zörbina Quibblethwaite\\, MD".encode()), 422),
            (ANN.decode().encode("utf-16"), 415),
        ):  # fmt: skip
            answer = await server("PUT /kim/book/x.vcf", card, "Content-Type: text/vcard")
            assert answer.status == status, (card, answer.body)
        for kind in ("application/json", "text/plain", "text/vcard; charset=latin1"):
            assert (await server("PUT /kim/book/x.vcf", ANN, f"Content-Type: {kind}")).status == 415
        sent = b"MOVE /kim/book/ann.vcf"
        assert (
            await server(sent.decode(), b"", "Destination: /kim/book/zorbina.vcf")
        ).status == 403
        assert server.wire.requests(b"PUT ") == server.wire.requests(sent) == 0


CARDS = """
version: 1
endpoint: {name: app, upstream: "URL"}
entities: {item: {fields: {name: {kind: name, at: $.VCARD.FN}, born: {kind: date, at: $.VCARD.BDAY}}}}
operations:
  - {match: "PUT /{id*}", update: item, request: {vobject: $}}
  - {match: "GET /{id*}", read: item, response: {vobject: $}}
  - {match: "REPORT /{path*}", read: item, response: {xml: "$.multistatus.response[*]", id: "$.href /{id*}"}}
"""


@pytest.mark.slow
async def test_cards_are_swapped_and_shown_by_every_worker(tmp_path: Path) -> None:
    stored: list[bytes] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PUT":
            stored.append(await request.read())
            return web.Response(status=201)
        if request.method == "GET":
            return web.Response(body=stored[0], content_type="text/vcard")
        found = b"<href>/a/1.vcf</href><address-data><![CDATA[%b]]></address-data>" % stored[0]
        body = b"<multistatus><response>%b</response></multistatus>" % found
        return web.Response(body=body, content_type="text/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with team(tmp_path, "embedded", app=app, text=CARDS) as instance:
        card = "BEGIN:VCARD\r\nVERSION:4.0\r\nFN:Ann Wexlomere\r\nBDAY:1931-02-27\r\nEND:VCARD\r\n"
        for _ in range(4):  # each a connection of its own
            async with aiohttp.ClientSession(headers={"Content-Type": "text/vcard"}) as caller:
                if not stored:
                    async with caller.put(f"{instance.proxy}/a/1.vcf", data=card) as said:
                        assert said.status == 201
                async with caller.get(f"{instance.proxy}/a/1.vcf") as said:
                    assert (said.status, await said.text()) == (200, card)
                async with caller.request("REPORT", f"{instance.proxy}/a/") as said:
                    assert card in await said.text()
    assert b"Wexlomere" not in stored[0]
    assert b"1931" not in stored[0]
