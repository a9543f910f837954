"""Forms of parts: texts are swapped as members of a form are, files pass or are refused."""

import csv
import io
import json
import re
from html import unescape

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import HTML, USUAL, Call, Desk, desk
from tests.support.table import table

PHOTO = (
    '{match: "POST /p/{id}/photo", update: p, id: path id, '
    'request: {multipart: {caption: name, "mail_*": email}, files: pass}}'
)
STRICT = "{match: POST /strict, create: p, request: {object: $, multipart: {caption: name}}}"
NAMED = "{match: POST /by-form, update: p, id: form key, request: {multipart: {caption: name}}}"
TYPE: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
PICTURE = b"\x89PNG\r\n\x1a\n\x00--\xff"


def part(head: str, content: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (head.encode(), content)


def text(name: str, content: str) -> bytes:
    return part(f'name="{name}"', content.encode())


FILE = part('name="photo"; filename="a.png"\r\nContent-Type: image/png', PICTURE)
END = b"--b--\r\n"


async def uploads() -> Desk:
    return await desk(*USUAL, PHOTO, STRICT, NAMED)


async def refused(match: str, body: bytes) -> VaultError:
    one = await uploads()
    with pytest.raises(VaultError) as fault:
        await one.send(match, body, TYPE)
    assert one.idle
    assert await one.counts() == (0, 0, 0)
    return fault.value


async def test_texts_are_swapped_and_every_other_byte_stays():
    one = await uploads()
    body = (
        text("vip", "1") + text("caption", "Ann å") + FILE + text("mail_1", "Ann@x.example") + END
    )
    call = await one.send("POST /p/7/photo", body, TYPE)
    assert "Ann å".encode() not in call.sent.body
    assert b"Ann@x.example" not in call.sent.body
    shown = await call.seen(200, {"id": 7, "name": _content(call.sent.body, "caption")})
    assert shown["name"] == "Ann å"
    before, _, rest = call.sent.body.partition(_content(call.sent.body, "caption").encode())
    after, _, last = rest.partition(_content(call.sent.body, "mail_1").encode())
    assert before + "Ann å".encode() + after + b"Ann@x.example" + last == body
    assert one.idle
    assert call.sent.headers == TYPE


def _content(body: bytes, name: str) -> str:
    _, _, rest = body.partition(b'name="%b"\r\n\r\n' % name.encode())
    return rest.partition(b"\r\n--b")[0].decode()


async def test_a_value_is_durable_before_the_application_is_sent_its_token():
    one = await uploads()
    await one.send("POST /p/7/photo", text("caption", "Ann") + END, TYPE)
    assert (await one.counts())[0] + (await one.counts())[2] == 1


async def test_a_form_with_a_file_that_is_answered_by_a_redirect_is_named_by_it():
    rule = (
        "{match: POST /new, create: p, request: {multipart: {caption: name}, files: pass}, "
        'response: {success: [303], id: "header Location /p/{id}"}}'
    )
    one = await desk(*USUAL, rule)
    call = await one.send("POST /new", FILE + text("caption", "Ann å") + END, TYPE)
    await call.answer(303, b"", ((b"Location", b"http://app/p/8?saved=1"),))
    stored = {"id": 8, "name": _content(call.sent.body, "caption")}
    assert await one.shown(stored, "GET /p/8") == {"id": 8, "name": "Ann å"}
    assert await one.counts() == (1, 0, 0)


async def test_the_id_may_be_a_part():
    one = await uploads()
    call = await one.send("POST /by-form", text("key", "9") + text("caption", "Eve") + END, TYPE)
    await call.answer(200, {"id": 9})
    assert await one.shown({"id": 9, "name": _content(call.sent.body, "caption")}, "GET /p/9") == {
        "id": 9,
        "name": "Eve",
    }


@table(
    ("match", "body", "code"),
    [
        ("POST /strict", text("caption", "Ann") + FILE, Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"; filename="x"', b"Ann"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"\r\nContent-Type: application/json', b'"Ann"'), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", text("Caption", "Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", text("caption[]", "Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", text("Cap-Tion", "Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", part('name="Caption"; filename="x"', b"Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", text("_charset_", "utf-16") + text("caption", "Ann"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"', b"\xff"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", text("caption", "Ann").replace(b"form-data", b"attachment"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", b"", Code.UNREADABLE_BODY),
        ("POST /p/1/photo", b"".join(text(f"n{one}", "") for one in range(1001)), Code.TOO_LARGE),
    ],
)  # fmt: skip
async def test_a_form_that_could_be_read_otherwise_is_refused(match, body, code):
    assert (await refused(match, body + END)).code is code


async def test_another_kind_of_body_is_refused_by_its_name():
    one = await uploads()
    with pytest.raises(VaultError) as fault:
        await one.send("POST /p/1/photo", b"x", ((b"Content-Type", b"image/png"),))
    assert "multipart/form-data" in fault.value.message


async def test_a_value_that_does_not_fit_is_told_by_its_part():
    one = await desk(
        "{match: POST /b, create: p, request: {multipart: {born_on: born}}}", *USUAL[2:]
    )
    with pytest.raises(VaultError) as fault:
        await one.send("POST /b", text("born_on", "no date") + END, TYPE)
    assert [detail.source for detail in fault.value.details] == ["born_on"]


# ---- names of files


FILES = (
    "name: {kind: name}",
    "email: {kind: email}",
    "scan: {kind: text, token: filename}",
    'pages: {kind: text, token: {shape: filename, same: true}, at: "$.pages[*]"}',
)
SCANS = (
    (
        "{match: POST /f, create: p, request: {multipart: {caption: name, scan: {filename: scan}, "
        '"page*": {filename: pages}}}, response: {id: $.id}}'
    ),
    '{match: "POST /p/{id}/scan", update: p, request: {absent: erase, multipart: {scan: {filename: scan}}}}',
    '{match: "GET /p/{id}", read: p}',
    '{match: "GET /p/{id}/page", read: p, response: {restore: html}}',
    '{match: "GET /p/{id}/file", read: p, response: {carriers: [Content-Disposition]}}',
    '{match: "PATCH /p/{id}", update: p}',
)
NAME = "Anna Lindqvist passport.pdf"


def file(name: str, filename: str, content: bytes = PICTURE) -> bytes:
    return part(f'name="{name}"; filename="{filename}"\r\nContent-Type: application/pdf', content)


def names(body: bytes) -> list[str]:
    """The names of files in a form."""
    return re.findall(r'filename="([^"]*)"', body.decode("latin-1"))


async def stored_scan(one: Desk, name: str = NAME) -> tuple[Call, str]:
    """A record with a file, and the token of its name."""
    call = await one.send("POST /f", file("scan", name) + END, TYPE)
    (token,) = names(call.sent.body)
    await call.answer(201, {"id": 1})
    return call, token


async def test_the_name_of_a_file_is_swapped_for_a_token_that_ends_alike():
    one = await desk(*SCANS, fields=FILES)
    body = text("vip", "1") + file("scan", NAME) + file("page1", "") + text("caption", "Ann") + END
    call = await one.send("POST /f", body, TYPE)
    token, empty = names(call.sent.body)
    assert re.fullmatch("[a-z0-9]{26}[.]pdf", token)
    assert empty == ""
    caption = _content(call.sent.body, "caption")
    assert call.sent.body == body.replace(NAME.encode(), token.encode()).replace(
        b"\r\n\r\nAnn\r\n", f"\r\n\r\n{caption}\r\n".encode()
    )
    assert await call.seen(201, {"id": 1, "scan": token}) == {"id": 1, "scan": NAME}
    assert await one.shown({"id": 1, "scan": token}) == {"id": 1, "scan": NAME}
    page = f'<a href="/files/{token}" title="{token}">{token}</a> <i>{token}.zip</i>'.encode()
    answer = await (await one.send("GET /p/1/page")).answer(200, page, HTML)
    assert unescape(answer.body.decode()) == (
        f'<a href="/files/{token}" title="{NAME}">{NAME}</a> <i>{NAME}.zip</i>'
    )


async def test_a_download_has_the_name_back_in_both_its_forms():
    one = await desk(*SCANS, fields=FILES)
    _, token = await stored_scan(one, "Åsa %22x%22.pdf")
    said = f"attachment; filename=\"{token}\"; filename*=UTF-8''{token}"
    headers = ((b"Content-Type", b"application/pdf"), (b"Content-Disposition", said.encode()))
    answer = await (await one.send("GET /p/1/file")).answer(200, PICTURE, headers)
    assert dict(answer.headers)[b"Content-Disposition"] == (
        b"attachment; filename=\"_sa _x_.pdf\"; filename*=UTF-8''%C3%85sa%20_x_.pdf"
    )
    assert answer.body == PICTURE


async def test_files_of_one_name_and_both_forms_of_a_name_are_values_each():
    one = await desk(*SCANS, fields=FILES)
    both = part('name="page[]"; filename="b.jpg"; filename*=UTF-8\'\'%C3%A5.jpg', b"x")
    body = file("page[]", "Ann.PDF") + file("page[]", "Bo.jpg") + both + END
    call = await one.send("POST /f", body, TYPE)
    tokens = [*names(call.sent.body), *re.findall(rb"UTF-8''([^\r]+)", call.sent.body)]
    tokens = [one if isinstance(one, str) else one.decode() for one in tokens]
    assert len(set(tokens)) == 4
    await call.answer(201, {"id": 1})
    shown = await one.shown({"id": 1, "pages": tokens})
    assert shown == {"id": 1, "pages": ["Ann.PDF", "Bo.jpg", "b.jpg", "å.jpg"]}
    again = await one.send("POST /f", file("page2", "Ann.PDF") + END, TYPE)
    assert names(again.sent.body) == tokens[:1]  # same: true


async def test_a_further_file_of_a_record_takes_no_name_from_the_others():
    one = await desk(*SCANS, fields=FILES)
    _, first = await stored_scan(one)
    call = await one.send("POST /p/1/scan", file("scan", "second.jpg") + END, TYPE)
    (second,) = names(call.sent.body)
    await call.answer(200, {"id": 1})
    for sent in ("", first, second):
        call = await one.send("POST /p/1/scan", file("scan", sent) + END, TYPE)
        assert names(call.sent.body) == [sent]
        await call.answer(200, {"id": 1})
    for token, name in ((first, NAME), (second, "second.jpg")):
        assert await one.shown({"id": 1, "scan": token}) == {"id": 1, "scan": name}
    # the same field in JSON: the name is one value there, and takes the place of the others
    call = await one.send("PATCH /p/1", {"scan": "third.pdf"})
    assert call.json["scan"][26:] == ".pdf"
    await call.answer(200, {"id": 1, "scan": call.json["scan"]})
    assert await one.shown({"id": 1, "scan": call.json["scan"]}) == {"id": 1, "scan": "third.pdf"}


@table(
    ("body", "code"),
    [
        (file("Scan", NAME), Code.AMBIGUOUS_JSON),
        (file("other", NAME), Code.UNREADABLE_BODY),
        (file("caption", NAME), Code.UNREADABLE_BODY),
        (text("scan", NAME), Code.UNREADABLE_BODY),
        (part("name=\"scan\"; filename*=UTF-8''%ff.pdf", b"x"), Code.UNREADABLE_BODY),
        (file("scan", "Anna\\"), Code.UNREADABLE_BODY),
        (file("scan", NAME) + text("note", NAME), Code.VALUE_ELSEWHERE),
        (file("scan", NAME).replace(b"/pdf", b'/pdf; name="%b"' % NAME.encode()), Code.VALUE_ELSEWHERE),
        (file("scan", NAME) + file("page1", "x.pdf", NAME.encode()), Code.VALUE_ELSEWHERE),
    ],
)  # fmt: skip
async def test_a_name_of_a_file_leaves_nowhere_else(body, code):
    one = await desk(*SCANS, fields=FILES)
    with pytest.raises(VaultError) as fault:
        await one.send("POST /f", body + END, TYPE)
    assert fault.value.code is code
    assert NAME not in fault.value.message
    assert one.idle
    assert await one.counts() == (0, 0, 0)


@table(
    ("answers", "answer"),
    [
        ('each: "$[*]", id: $.id', lambda one, other: [{"id": 7, "scan": one}, {"id": 8, "scan": other}]),
        ('id: "$.ids[*]"', lambda *_: {"ids": [7, 8]}),
    ],
)  # fmt: skip
async def test_files_are_records_each_where_the_answer_names_several(answers, answer):
    rule = (
        '{match: POST /several, create: p, request: {multipart: {"scan*": {filename: scan}}}, '
        f"response: {{{answers}}}}}"
    )
    one = await desk(rule, *SCANS, '{match: "DELETE /p/{id}", delete: p}', fields=FILES)
    body = file("scan[]", NAME) + file("scan[]", "") + file("scan[]", "b.jpg") + END
    call = await one.send("POST /several", body, TYPE)
    first, _, second = names(call.sent.body)
    await call.answer(201, answer(first, second))
    await (await one.send("DELETE /p/7")).answer(204)
    assert await one.shown({"id": 8, "scan": second}, "GET /p/8") == {"id": 8, "scan": "b.jpg"}
    assert await one.counts() == (1, 0, 0)
    call = await one.send("POST /several", file("scan[]", "c.jpg") + END, TYPE)
    assert len(names(call.sent.body)[0]) == 30


async def test_no_file_and_a_text_under_a_pattern_are_left_alone():
    one = await desk(*SCANS, fields=FILES)
    body = text("scan", "") + text("pages", "2") + file("scan", "", b"") + END
    assert (await one.send("POST /f", body, TYPE)).sent.body == body


# ---- CSV files: each row is a record, and a file that programs could read in two ways is refuse


COLUMNS = "csv: {Email: email, Name: name, Phone: phone}"
IMPORT = f'{{match: POST /import, create: p, request: {{{COLUMNS}}}, response: {{id: "$.ids[*]"}}}}'
PART = (
    f"{{match: POST /upload, create: p, request: {{{COLUMNS}, part: file}}, "
    'response: {each: "$[*]", id: $.id}}'
)
CSV: RawHeaders = ((b"Content-Type", b"text/csv; charset=utf-8"),)
FORM: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
CSV_FILE = """\
ID,Email,"Name",Note\r
7,ann@x.example,"Ann ""Å"" Q","a, b"\r
\r
8,eve@x.example,"Eve,\r
R",\r
9,,Bob,x\r
""".encode()
PEOPLE = [
    {"email": "ann@x.example", "name": 'Ann "Å" Q'},
    {"email": "eve@x.example", "name": "Eve,\r\nR"},
    {"email": "", "name": "Bob"},
]


async def imports() -> Desk:
    return await desk(*USUAL, IMPORT, PART)


def rows(body: bytes, delimiter: str = ",") -> list[dict[str, str]]:
    """A file as Python's own reader has it."""
    text = io.StringIO(body.decode("utf-8-sig"), newline="")
    return list(csv.DictReader(text, delimiter=delimiter))


async def imported(one: Desk, body: bytes) -> Call:
    return await one.send("POST /import", body, CSV)


async def test_each_row_is_a_record_and_all_other_cells_stay():
    one = await imports()
    call = await imported(one, CSV_FILE)
    sent = rows(call.sent.body)
    assert [row["ID"] + row["Note"] for row in sent] == ["7a, b", "8", "9x"]
    for person, row in zip(PEOPLE, sent, strict=True):
        for name in ("Email", "Name"):
            assert (row[name] == "") is (person[name.lower()] == "")
            assert row[name] != person[name.lower()] or not row[name]
    answer = await call.answer(201, {"ids": [70, 80, 90]})
    assert json.loads(answer.body) == {"ids": [70, 80, 90]}
    for ident, person, row in zip((70, 80, 90), PEOPLE, sent, strict=True):
        stored = {"id": ident, "email": row["Email"], "name": row["Name"]}
        assert await one.shown(stored, f"GET /p/{ident}") == {"id": ident, **person}
    assert one.idle


@table("blank", [",,,", "", ' , ,"",'])
async def test_a_blank_row_is_no_record(blank):
    one = await imports()
    body = f"ID,Email,Name,Note\n7,ann@x.example,Ann,\n{blank}\n".encode()
    call = await imported(one, body)
    assert blank in call.sent.body.decode().splitlines()
    answer = await call.answer(201, {"ids": [70]})
    assert answer.status == 201
    assert await one.counts() == (1, 0, 0)


async def test_a_file_is_one_commit_and_durable_before_it_is_sent_on():
    one = await imports()
    one.store.calls.clear()
    await imported(one, b"Email\n" + b"".join(b"a%d@x.example\n" % n for n in range(500)))
    assert one.store.calls.count("commit") == 1
    assert (await one.counts())[0] == 500


@table("end", [b"\n", b"\r\n"])
@table("delimiter", [",", ";", "\t", "|"])
async def test_the_dialect_stays(delimiter, end):
    one = await imports()
    lines = ["Name,Phone,n", '"Ann","123",1', 'Eve,456,"x"']
    body = "\n".join(lines).replace(",", delimiter).replace("\n", end.decode()).encode()
    call = await imported(one, b"\xef\xbb\xbf" + body)
    sent = call.sent.body
    assert sent.startswith(b"\xef\xbb\xbfName")
    first, second = sent.split(end)[1:]
    assert first.startswith(b'"')
    assert first.endswith(delimiter.encode() + b"1")
    assert not second.startswith(b'"')
    assert second.endswith(b'"x"')
    assert [row["n"] for row in rows(sent, delimiter)] == ["1", "x"]


async def test_a_token_with_a_delimiter_in_it_is_quoted():
    one = await desk(
        "{match: POST /import, create: p, request: {csv: {Pin: pin}}, response: {id: $.id}}",
        fields=("pin: {kind: text, token: {shape: fixed, value: 'no, \"thing\"'}}",),
    )
    call = await imported(one, b"Pin\n1234\n")
    assert call.sent.body == b'Pin\n"no, ""thing"""\n'


async def test_a_file_in_a_form_is_swapped_and_the_form_stays():
    one = await imports()
    before = b'--b\r\nContent-Disposition: form-data; name="mode"\r\n\r\nfull\r\n'
    head = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n'
        b"Content-Type: application/vnd.ms-excel\r\n\r\n"
    )
    whole = before + head + b"Email,n\nann@x.example,1\n\r\n--b--\r\n"
    call = await one.send("POST /upload", whole, FORM)
    start, end = len(before + head) + len(b"Email,n\n"), len(b",1\n\r\n--b--\r\n")
    assert call.sent.body[:start] == whole[:start]
    assert call.sent.body[-end:] == whole[-end:]
    token = call.sent.body[start:-end].decode()
    assert token != "ann@x.example"
    shown = await call.seen(201, [{"id": 5, "email": token}])
    assert shown == [{"id": 5, "email": "ann@x.example"}]


@table(
    "body",
    [
        b"E-Mail,n\nann@x.example,1\n",  # no column that is named
        b"email,Name\nann@x.example,1\n",
        b" Email,Name\nann@x.example,1\n",
        b"Email,Email\na,b\n",
        b"Email,E-Mail\na@x.example,ann@x.example\n",
        b"\xef\xbb\xbf" * 2 + b"Email,Name\nann@x.example,1\n",
        *(f"Name,Email{sign}\nx,ann\n".encode() for sign in "\u200b\ufeff\u2060\u00ad\u200e"),
        *(f"Email,n\nx,y{sign}ann\n".encode() for sign in "\v\f\x1c\x1d\x1e\x85\u2028\u2029"),
        b"Email,n;Name\na,b;c\n",  # two readings of the first line
        b"Email,n\nann@x.example\n",
        b"Email,n\nsmith, ann,1\n",
        b'Email,n\nann "Q" x,1\n',
        b'Email,n\n "ann",1\n',
        b'Email,n\n"ann"x,1\n',
        b'Email,n\n"ann\\",1\n"x",2\n',
        b'Email,n\n"ann,1\n',
        b"Email,n\nann,1\reve,2\n",
        b"Email,n\na\0b,1\n",
        "Email,n\nann,1\n".encode("utf-16"),
        b"\n\n",
        b"Email,n\n\xff,1\n",
    ],
)
async def test_a_file_that_programs_could_read_in_two_ways_is_refused(body):
    one = await imports()
    with pytest.raises(VaultError) as fault:
        await imported(one, body)
    assert fault.value.code in (Code.AMBIGUOUS_UPLOAD, Code.AMBIGUOUS_JSON, Code.UNREADABLE_BODY)
    assert "ann" not in fault.value.message
    assert await one.counts() == (0, 0, 0)


async def test_line_separators_within_quotes_and_signs_in_other_names_pass():
    one = await imports()
    sent = (await imported(one, 'Email,n\u200bote\nx,"a\u2028\vb"\n'.encode())).sent.body
    assert sent.endswith(',"a\u2028\vb"\n'.encode())
    assert sent.startswith("Email,n\u200bote\n".encode())


async def test_rows_are_bounded():
    one = await imports()
    with pytest.raises(VaultError) as fault:
        await imported(one, b"Email\n" + b"a\n" * 10_001)
    assert fault.value.code is Code.TOO_LARGE


@table("name", ["none", "twice", "text"])
async def test_a_form_without_its_one_file_is_refused(name):
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nEmail\na\n\r\n'
    body = {"none": b"", "twice": file + file, "text": file.replace(b'; filename="a"', b"")}[name]
    other = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n--b--'
    one = await imports()
    with pytest.raises(VaultError) as fault:
        await one.send("POST /upload", body + other, FORM)
    assert fault.value.code is Code.AMBIGUOUS_UPLOAD


async def test_another_kind_of_body_is_refused():
    one = await imports()
    for headers in (((b"Content-Type", b"text/csv; charset=latin1"),), FORM, ()):
        with pytest.raises(VaultError) as fault:
            await one.send("POST /import", b"Email\na\n", headers)
        assert fault.value.code is Code.UNREADABLE_BODY
        assert "text/csv" in fault.value.message


async def test_a_value_that_does_not_fit_is_told_by_its_column():
    one = await desk(
        "{match: POST /i, create: p, request: {csv: {Born: born}}, response: {id: $.id}}"
    )
    with pytest.raises(VaultError) as fault:
        await one.send("POST /i", b"Born\nno date\n", CSV)
    assert [detail.source for detail in fault.value.details] == ["Born, row 2"]


async def test_a_value_that_stands_in_another_column_is_refused_with_its_row():
    one = await imports()
    with pytest.raises(VaultError) as fault:
        await imported(one, b"Email,Note\nann@x.example,a\neve@x.example,see eve@x.example\n")
    assert fault.value.code is Code.VALUE_ELSEWHERE
    assert fault.value.details == (("the body (row 3)", "email"),)
    assert "eve" not in fault.value.message
    people = [{"email": "a@x.example"}, {"email": "eve@x.example", "note": "eve@x.example"}]
    with pytest.raises(VaultError) as fault:
        await one.send("POST /p", people)
    assert [detail.source for detail in fault.value.details] == ["the body (object 2)"]
    assert await one.counts() == (0, 0, 0)
