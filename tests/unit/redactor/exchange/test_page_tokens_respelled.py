"""Tokens that an application writes in its own manner, and what becomes of them."""

import html
import re
from urllib.parse import quote

import pytest

from proxy.errors import VaultError
from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form
from tests.support.table import table

FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: email}",
    "phone: {kind: phone, token: {shape: numeric, else: opaque}}",
)
PHONE = "070 111 22 33"
PAGES = (
    '{match: "GET /card/{id}", read: p, response: {restore: html, form: {phone: phone, name: name}}}',
    '{match: "GET /text/{id}", read: p, response: {restore: html}}',
    (
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, phone: phone}}, '
        "response: {success: [302], restore: html}}"
    ),
)


def own_manner(number: str) -> str:
    """The number as ``ddd-ddd dd dd``."""
    digits = re.sub(r"\D", "", number)
    return f"{digits[:3]}-{digits[3:6]} {digits[6:8]} {digits[8:]}"


async def clinic(*more: str) -> tuple[Desk, str]:
    """A record of a person, and its token as the application writes it."""
    one = await desk(USUAL[0], *USUAL[2:], *PAGES, *more, fields=FIELDS)
    stored = await one.create({"name": "Ann", "phone": PHONE})
    return one, own_manner(stored["phone"])


async def page(one: Desk, target: str, body: str) -> str:
    answer = await (await one.send(f"GET {target}")).answer(200, body.encode(), HTML)
    return html.unescape(answer.body.decode())


async def test_a_named_element_and_the_text_of_a_page_show_the_number():
    one, written = await clinic()
    body = f"<p>Phone {written} 12 rooms<input name=phone value='{written}'>"
    expected = f"<p>Phone {PHONE} 12 rooms<input name=phone value='{PHONE}'>"
    assert await page(one, "/card/1", body) == expected
    assert await page(one, "/text/1", body) == expected
    assert await page(one, "/text/2", body) == body
    joined = re.sub(r"\D", "", written)
    assert await page(one, "/text/1", f"<p>{joined}, 1{joined}, {joined}5") == (
        f"<p>{PHONE}, 1{joined}, {joined}5"
    )
    spaced = written.replace(" ", "&nbsp;")
    assert (
        await page(one, "/text/1", f"<p>{spaced} <i>{written[:9]}")
        == f"<p>{PHONE} <i>{written[:9]}"
    )


async def test_a_place_of_json_shows_the_number_with_its_country_too():
    one, written = await clinic()
    assert (await one.shown({"id": 1, "phone": written}))["phone"] == PHONE
    abroad = "+46" + written[1:] if written[1] != "0" else written
    assert (await one.shown({"id": 1, "phone": abroad}))["phone"] == PHONE
    assert (await one.shown({"id": 2, "phone": written}, "GET /p/2"))["phone"] == written


@table("form", [True, False])
async def test_a_saved_form_that_holds_it_keeps_the_number(form: bool):
    one, written = await clinic()
    if form:
        sent = await one.send("POST /p/1/edit", member_form(name="Bo", phone=written), FORM)
        await sent.answer(302)
    else:
        sent = await one.send("PATCH /p/1", {"name": "Bo", "phone": written})
        await sent.answer(200, {"id": 1})
    shown = await one.shown({"id": 1, "phone": written})
    assert shown["phone"] == PHONE


async def test_an_answer_in_the_manner_of_the_application_tells_what_it_took():
    one, before = await clinic()
    call = await one.send("PATCH /p/1", {"phone": "070 444 55 66"})
    after = own_manner(call.json["phone"])
    assert (await call.seen(200, {"id": 1, "phone": after}))["phone"] == "070 444 55 66"
    call = await one.send("PATCH /p/1", {"phone": "070 777 88 99"})
    # it is read-only there: the number of before stays
    assert (await call.seen(200, {"id": 1, "phone": after}))["phone"] == "070 444 55 66"
    assert (await one.shown({"id": 1, "phone": after}))["phone"] == "070 444 55 66"
    assert before != after
    assert "domicile_altered_tokens_total{" not in one.metrics.render().decode()


async def test_the_token_of_a_mail_address_in_other_case_is_its_own():
    one, _ = await clinic()
    call = await one.send("PATCH /p/1", {"email": "ann@x.example"})
    await call.answer(200, {"id": 1, **call.json})
    token = call.json["email"]
    call = await one.send("PATCH /p/1", {"email": token.upper()})
    assert call.json == {"email": token}
    await call.answer(200, {"id": 1})
    assert (await one.shown({"id": 1, "email": token.upper()}))["email"] == "ann@x.example"


async def test_a_number_of_another_record_is_shown_in_its_element_and_saved_in_no_case():
    one, _ = await clinic()
    other = await one.create({"name": "Bo", "phone": "070 555 66 77"}, 2)
    merged = f"<input name=phone value='{other['phone']}'>"
    assert await page(one, "/card/1", merged) == "<input name=phone value='070 555 66 77'>"
    with pytest.raises(VaultError, match="in: phone") as refused:
        await one.send("POST /p/1/edit", member_form(phone=other["phone"]), FORM)
    assert refused.value.code == "value_unfit"
    call = await one.send("POST /p/1/edit", member_form(phone=f"{other['phone']} "), FORM)
    await call.answer(302)


async def test_joined_texts_are_shown_in_their_element_and_no_token_within_one_is_saved():
    one, _ = await clinic()
    first = (await one.create({"name": "Ann", "phone": "070 555 66 78"}, 3))["name"]
    second = (await one.create({"name": "Bo & Co", "phone": "070 555 66 77"}, 2))["name"]
    body = f"<textarea name=name>{first}\n{second}</textarea>"
    assert await page(one, "/card/1", body) == "<textarea name=name>Ann\nBo & Co</textarea>"
    for text in (f"Ann\n{second}", f"see {second}."):
        with pytest.raises(VaultError, match="in: name"):
            await one.send("POST /p/1/edit", member_form(name=text), FORM)
        with pytest.raises(VaultError, match="in: name"):
            await one.send("PATCH /p/1", {"name": text})
    call = await one.send("POST /p/1/edit", member_form(name="Ann\nBo & Co"), FORM)
    token = call.form["name"]
    await call.answer(302)
    assert (await one.shown({"id": 1, "name": token}))["name"] == "Ann\nBo & Co"


async def test_an_answer_that_shows_an_earlier_number_in_another_manner_brings_that_back():
    one, written = await clinic()
    form = member_form(name="Ann", phone="0709998877")
    await (await one.send("POST /p/1/edit", form, FORM)).answer(302)  # refused
    call = await one.send("PATCH /p/1", {"name": "Bea", "phone": "0701234567"})
    stored = {"id": 1, "name": call.json["name"], "phone": written}  # it takes the name alone
    assert (await call.seen(200, stored))["phone"] == PHONE
    assert (await one.shown(stored))["phone"] == PHONE


EVERYWHERE = "{match: GET /export, read: p, response: {restore: anywhere}}"
LIST = '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}'
WIZARD = "{match: POST /wizard, create: p, response: {success: [302], id: $.id}}"
CSV = ((b"Content-Type", b"text/csv"),)


@table(
    "sent, cut, before",
    [
        ("701234567", 0, "+46"),
        ("91234567", 0, "+47"),
        ("0701234567", 1, "+46"),
        ("+46701234567", 3, "0"),
        ("+4791234567", 3, ""),
    ],
)
async def test_a_number_that_is_joined_with_a_calling_code_or_without_it_is_known(
    sent: str, cut: int, before: str
):
    phone = FIELDS[2].replace("numeric,", "numeric, keep_first: 2,")
    one = await desk(USUAL[0], *USUAL[2:], *PAGES, EVERYWHERE, fields=(*FIELDS[:2], phone))
    stored = await one.create({"name": "Ann", "phone": sent})
    number = before + stored["phone"][cut:]
    assert (await one.shown({"id": 1, "phone": number}))["phone"] == sent
    spaced = f"{number[:3]} {number[3:5]} {number[5:]}"
    seen = await page(one, "/text/1", f"<p>{number}, {spaced}</p>")
    whole = sent if cut else before + sent  # what came before it stays there
    assert seen.replace(f"{before} ", before or " ") == f"<p>{whole}, {whole}</p>"
    assert await page(one, "/text/2", f"<p>{number}, {spaced}</p>") == f"<p>{number}, {spaced}</p>"
    export = await one.send("GET /export")
    answer = await export.answer(200, f"Name,Phone\r\nAnn,'{number}\r\n".encode(), CSV)
    expected = sent if before else number  # no calling code is guessed
    assert answer.body.decode() == f"Name,Phone\r\nAnn,'{expected}\r\n"


async def test_the_list_that_tells_whose_a_number_is_shows_it():
    one = await desk(USUAL[0], *USUAL[2:4], WIZARD, LIST, fields=FIELDS)
    call = await one.send("POST /wizard", {"name": "Ann", "phone": "91234567"})
    await call.answer(302, b"", ((b"Location", b"/thanks"),))
    patch = await one.send("PATCH /p/7", {"email": "ann@x.example"})
    await patch.answer(200, {"id": 7, **patch.json})
    stored = {"id": 7, "name": call.json["name"], "phone": f"+47{call.json['phone']}"}
    for _ in range(2):
        seen = await (await one.send("GET /p")).seen(200, [stored])
        assert seen == [{"id": 7, "name": "Ann", "phone": "91234567"}]


async def test_a_number_that_the_index_alone_knows_is_shown_wherever_it_stands():
    one = await desk(USUAL[0], LIST, fields=FIELDS)
    first = await one.create({"name": "Ann", "phone": "91234567"})
    second = await one.create({"name": "Bo", "phone": "97654321"}, 2)
    numbers = [f"+47{first['phone']}", f"+47{second['phone']}", f"+47{first['phone']}"]
    listed = [{"id": 5 + at, "phone": number} for at, number in enumerate(numbers)]
    seen = await (await one.send("GET /p")).seen(200, listed)
    assert [person["phone"] for person in seen] == ["91234567", "97654321", "91234567"]


# ---- signs as numeric references, as WordPress writes mail addresses against robots


def against_robots(text: str, every: int = 3) -> str:
    """Some signs of a text as numeric references, decimal and hexadecimal, with zeros or without."""
    forms = ("&#{:03};", "&#{};", "&#x{:x};", "&#X{:02X};")
    return "".join(
        forms[at % len(forms)].format(ord(sign)) if at % every else sign
        for at, sign in enumerate(text)
    )


ANYBODY = '{match: "GET /any", read: p, response: {restore: anywhere}}'
MAIL = "ann@example.com"


@table("every", [2, 3, 100])
async def test_a_token_with_signs_as_references_is_restored_in_pages(every):
    one = await desk(USUAL[0], *USUAL[2:], *PAGES, ANYBODY, fields=FIELDS)
    stored = await one.create({"name": "Ann", "email": MAIL})
    mail, name = (against_robots(stored[field], every) for field in ("email", "name"))
    body = (
        f"<p>&#8222;{name}&#8220; &lt;<a href='mailto:{mail}' title='{name}'>{mail}</a>&gt; a&#64;b"
    )
    whole = f"<p>„Ann“ <<a href='mailto:{{}}' title='Ann'>{MAIL}</a>> a@b"
    assert await page(one, "/text/1", body) == whole.format("ann@example.com")
    assert await page(one, "/any", body) == whole.format(stored["email"])
    assert await page(one, "/any", f"<script>x = '{mail}'</script><b c='/{mail}'>") == (
        f"<script>x = '{stored['email']}'</script><b c='/{stored['email']}'>"
    )


async def test_so_it_is_in_markup_that_xml_holds():
    one = await desk(USUAL[0], *USUAL[2:], ANYBODY, fields=FIELDS)
    mail = against_robots((await one.create({"name": "Ann", "email": MAIL}))["email"])
    body = f"<r><![CDATA[<td>{mail}</td>]]></r>".encode()
    shown = await (await one.send("GET /any")).answer(200, body, ((b"Content-Type", b"text/xml"),))
    assert html.unescape(shown.body.decode()) == f"<r><![CDATA[<td>{MAIL}</td>]]></r>"


async def test_references_of_a_page_without_our_tokens_stay_as_they_are():
    one = await desk(USUAL[0], *USUAL[2:], ANYBODY, fields=FIELDS)
    body = f"<p>{against_robots('nobody@elsewhere.example')} &#x27;&#0;&#128512;".encode()
    assert (await (await one.send("GET /any")).answer(200, body, HTML)).body == body


async def test_what_the_caller_itself_wrote_so_stays_a_token():
    one = await desk(USUAL[0], *USUAL[2:], ANYBODY, fields=FIELDS)
    mail = against_robots((await one.create({"name": "Ann", "email": MAIL}))["email"])
    call = await one.send(f"GET /any?s={quote(mail)}")
    body = f"<p>Nothing was found for {mail}".encode()
    assert (await call.answer(200, body, HTML)).body == body
