"""A site of forms that answers by redirects, and pages of its one record."""

from html import unescape
from typing import Any

from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form

WEEK = 7 * 86_400_000
FIELDS = ("name: {kind: name}", "note: {kind: text}")
PAGE = '{match: "GET /card/{id}", read: p, response: {restore: html}}'
ANN = {"name": "Ann", "note": "Has a cold."}
ANNA = {"name": "Anna", "note": "Is well."}
SHOWN = "<b>{name}</b><i>{note}</i>"
BACK = ((b"Location", b"/card/1"),)
SAVED = 'success: {status: 302, location: "/card/{id}"}'


async def site(
    answer: str = SAVED, keep: str = "", *, created: bool = True
) -> tuple[Desk, dict[str, Any]]:
    one = await desk(
        USUAL[0],
        *USUAL[2:],
        PAGE,
        '{match: "GET /form/{id}", read: p, id: path id, '
        "response: {restore: html, form: {name: name, note: note}}}",
        "{match: GET /home, read: p, response: {restore: html}}",
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, note: note}}, '
        f"response: {{{answer}}}}}",
        f'{{match: "POST /p/{{id}}/delete", delete: p{keep}, response: {{{answer}}}}}',
        fields=FIELDS,
    )
    return one, await one.create(ANN) if created else {}


async def edited(one: Desk, status: int, fields: Any, page: bytes = b"") -> dict[str, str]:
    """What the application was sent by a form."""
    call = await one.send("POST /p/1/edit", member_form(**ANNA), FORM)
    await call.answer(status, page, fields)
    assert one.idle
    sent: dict[str, str] = call.form
    return sent


async def card(one: Desk, stored: dict[str, Any]) -> str:
    one.clock.advance(1)
    call = await one.send("GET /card/1")
    shown = await call.answer(200, SHOWN.format(**stored).encode(), HTML)
    return unescape(shown.body.decode())


async def record(one: Desk, stored: dict[str, Any]) -> dict[str, Any]:
    """What JSON shows of what the application has."""
    shown = await one.shown({**stored, "id": 1})
    return {name: shown[name] for name in ("name", "note")}


async def form(one: Desk, **members: str) -> dict[str, str]:
    """What a form sends that is answered by a redirect."""
    call = await one.send("POST /p/1/edit", member_form(**members), FORM)
    await call.answer(302, b"", BACK)
    sent: dict[str, str] = call.form
    return sent


async def live(one: Desk) -> dict[str, str] | None:
    """The values of the live version, which searches find."""
    row = (await one.people.by_key(["1"])).get("1")
    if row is None:
        return None
    return {name: of[0].text for name, of in one.people.sealer.open(row).values.items()}
