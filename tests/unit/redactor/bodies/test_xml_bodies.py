"""Bodies of XML: what a rule names never leaves, everything else stays byte for byte."""

import re
from time import process_time

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import Desk, desk
from tests.support.table import table

XML = ((b"Content-Type", b"application/xml; charset=utf-8"),)
SOAP = ((b"Content-Type", b"application/soap+xml"),)
ID = """id: "$['@id']\""""
FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone: {kind: phone, token: {shape: numeric, keep_last: 2}}",
    "born: {kind: date, token: {shape: date}}", 'tags: {kind: text, at: "$.tags.tag[*]"}',
    """ext: {kind: text, at: "$.line['@ext']"}""",
)  # fmt: skip
OPERATIONS = (
    f"{{match: POST /p, create: p, request: {{xml: $.person}}, response: {{xml: $.person, {ID}}}}}",
    f'{{match: GET /p, read: p, response: {{xml: "$.people.person[*]", {ID}}}}}',
    '{match: "GET /p/{id}", read: p, response: {xml: $.person}}',
    '{match: "PUT /p/{id}", update: p, request: {xml: $.person, absent: erase}, response: {xml: $.person}}',
    '{match: "PATCH /p/{id}", update: p, request: {xml: $.person}, response: {xml: $.person}}',
    '{match: POST /find, read: p, request: {xml: $.find, fields: {email: $.find.email}}, response: {xml: "$.people.person[*]", '
    + ID
    + "}}",
)
ANN = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- a note --><x:person xmlns:x="urn:x" vip = '1'>
  <x:name lang='sv'>
    Ann &amp; &#66;o W&#xE9;xlomere </x:name><email><![CDATA[Ann@Wexlomere.example]]></email>
  <phone>+46 70 918 27 36</phone><born>1931-02-27</born><tags><tag>one-of-them</tag>
  <tag>two-of-them</tag></tags><line ext="ext-&quot;4711&quot;"/><other note="&lt;">x</other></x:person>
"""
MARKERS = (b"xlomere", b"918 27", b"1931-02-27", b"of-them", b"4711")


async def usual() -> Desk:
    return await desk(*OPERATIONS, fields=FIELDS)


async def stored(one: Desk, document: bytes = ANN) -> bytes:
    """What the application has of a new record, with the id 1."""
    call = await one.send("POST /p", document, XML)
    body = call.sent.body.replace(b"vip = '1'", b'id="1"')
    await call.answer(201, body, XML)
    return body


async def refused(match: str, document: bytes | str, code: Code = Code.UNREADABLE_BODY) -> str:
    body = document.encode() if isinstance(document, str) else document
    with pytest.raises(VaultError) as raised:
        await (await usual()).send(match, body, XML)
    assert raised.value.code is code
    assert "Ann" not in str(raised.value)
    return str(raised.value)


# ------------------------------------------------------------------ the way in and back


async def test_the_application_gets_tokens_and_the_caller_people():
    one = await usual()
    call = await one.send("POST /p", ANN, XML)
    sent = call.sent.body
    assert not [marker for marker in MARKERS if marker in sent]
    values = re.compile(
        rb"(?<=lang='sv'>)[^<]*|(?<=CDATA\[)[^\]]*|(?<=phone>)[^<]*|(?<=born>)[^<]*"
        rb"|(?<=<tag>)[^<]*|(?<=ext=\")[^\"]*"
    )
    assert values.sub(b"", sent) == values.sub(b"", ANN)  # the rest, byte for byte
    assert b"lang='sv'>\n    " in sent  # and white space round a value
    body = sent.replace(b"vip = '1'", b'id="1"')
    expected = ANN.replace(b"vip = '1'", b'id="1"').replace(b"&#66;", b"B")
    expected = expected.replace(b"&#xE9;", "é".encode()).replace(b"&quot;", b"&#34;")
    assert (await call.answer(201, body, XML)).body == expected
    assert await one.counts() == (1, 0, 0)
    read = await (await one.send("GET /p/1")).answer(200, body, SOAP)
    assert read.body == expected
    people = b"<people>%b<person id='2'><name>x</name></person></people>"
    answer = await (await one.send("GET /p")).answer(200, people % _inner(body), XML)
    assert answer.body == people % _inner(expected)
    assert one.idle


def _inner(document: bytes) -> bytes:
    return document[document.index(b"<x:person") :].strip()


@table(
    "document,sent",
    [
        ("<person><name>Ann W</name></person>", b"<person><name>T</name></person>"),
        ("<person><name>Ann<!----></name></person>", None),
        ("<person><name>Ann<?x y?></name></person>", None),
        ("<person><name>Ann<b>W</b></name></person>", None),
        ("<person>Ann<name>x</name></person>", None),
        ("<person><name><![CDATA[A]]>nn</name></person>", b"<person><name>T</name></person>"),
        ("<person><name/></person>", b"<person><name/></person>"),
        ("<person><name></name></person>", b"<person><name></name></person>"),
        ("<person><tags>Ann</tags></person>", None),
        ("<person><name>Ann W</name><name>Ann W</name></person>", b"<person><name>T</name><name>T</name></person>"),
        ("<a:person xmlns:a='u'><b:name xmlns:b='v'>Ann W</b:name></a:person>", b"<a:person xmlns:a='u'><b:name xmlns:b='v'>T</b:name></a:person>"),
        ("<person><line b:ext='Ann W' xmlns:b='v'/></person>", b"<person><line b:ext='T' xmlns:b='v'/></person>"),
        ("<person>Ann</person>", None),
        # members to those that know no difference
        ("<person name='Ann W'/>", None), ("<person><line><ext>Ann W</ext></line></person>", None),
        ("<person p:email='Ann W' xmlns:p='u'/>", None),     ],
)  # fmt: skip
async def test_a_value_is_swapped_or_the_request_refused(document: str, sent: bytes | None):
    if sent is None:
        await refused("POST /p", document, Code.VALUE_UNFIT)
        return
    call = await (await usual()).send("POST /p", document.encode(), XML)
    tokens = re.compile(rb"[A-Za-z0-9]{22}")
    assert tokens.sub(b"T", call.sent.body) == sent


@table(
    "document",
    [
        "<person><name>Ann</name>",
        "<person><a:b:name>Ann</a:b:name></person>", "<person><a:>Ann</a:></person>", "<person :name='Ann'/>",
        "<person><name>Ann</person></name>",
        "<person><name>&ann;</name></person>",
        "<!DOCTYPE person><person><name>Ann</name></person>",
        '<!DOCTYPE person [<!ENTITY ann "Ann">]><person><name>&ann;</name></person>',
        '<!DOCTYPE person SYSTEM "http://127.0.0.1:1/x"><person><name>Ann</name></person>',
        '<?xml version="1.0" encoding="ISO-8859-1"?><person><name>Ann</name></person>',
        '<?xml version="1.1"?><person><name>Ann</name></person>',
        "<person><name>Ann</name></person>".encode("utf-16"),
        b"<person><name>Ann\xff</name></person>",
        b"<person><name>Ann\0</name></person>",
        "<person><name>Ann</name></person><person/>",
        "<person><name href='#1'/><x id='1'>Ann</x></person>",
        "<person xmlns:e='http://www.w3.org/2003/05/soap-encoding'><name e:ref='1'/><x e:id='1'>Ann</x></person>",
        "<person xmlns:i='http://www.w3.org/2001/XInclude'><i:include><name>Ann</name></i:include></person>",
        "<person><EncryptedData>Ann</EncryptedData></person>",
        "Ann", "{}", "",
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_refused(document: bytes | str):
    if document:
        await refused("POST /p", document)


async def test_another_kind_of_body_and_another_charset_are_refused():
    for kind in (b"text/plain", b"application/json", b"application/xml; charset=latin1"):
        with pytest.raises(VaultError) as raised:
            await (await usual()).send("POST /p", ANN, ((b"Content-Type", kind),))
        assert raised.value.code is Code.UNREADABLE_BODY


async def test_a_document_that_nests_too_deep_is_refused():
    await refused("POST /p", "<a>" * 65 + "</a>" * 65, Code.TOO_LARGE)
    body = b"<a>" * 64 + b"</a>" * 64
    assert (await (await usual()).send("POST /p", body, XML)).sent.body == body


@table("name", ["Name", "e-mail", "E_Mail"])
async def test_names_nearly_as_those_of_the_rule_are_refused(name: str):
    text = await refused("POST /p", f"<person><{name}>Ann</{name}></person>", Code.AMBIGUOUS_JSON)
    assert "XML" in text


# ------------------------------------------------------------------ empty, null, absent


async def test_nil_erases_and_an_empty_element_is_an_empty_text():
    one = await usual()
    body = await stored(one)
    nil = b"<person><phone xsi:nil='true' xmlns:xsi='u'/><name/><tags/></person>"
    call = await one.send("PATCH /p/1", nil, XML)
    assert call.sent.body == nil
    await call.answer(200, b"<person/>", XML)
    shown = (await (await one.send("GET /p/1")).answer(200, body, XML)).body
    assert b"918 27" not in shown
    assert b"xlomere </x:name>" not in shown
    assert b"Ann@Wexlomere" in shown  # absent: kept


async def test_a_nil_element_with_a_value_beside_it_is_no_null():
    call = await (await usual()).send(
        "POST /p", b"<person><line nil='1' ext='Ann Wexlomere'/></person>", XML
    )
    assert b"Wexlomere" not in call.sent.body


async def test_a_value_comes_into_an_empty_element_of_an_answer():
    operations = [
        one.replace("request: {xml: $.person", "request: {xml: $.person, empty: keep")
        for one in OPERATIONS
    ]
    one = await desk(*operations, fields=FIELDS)
    body = await stored(one)
    token = re.search(rb"lang='sv'>\s*(\S+)", body)
    assert token is not None
    call = await one.send("PUT /p/1", b"<person><name a='1'/><email/></person>", XML)
    assert call.sent.body.startswith(b"<person><name a='1'>" + token[1] + b"</name><email>")


# ------------------------------------------------------------------ searches and the guard


async def test_a_search_by_a_value_of_the_body():
    one = await usual()
    body = await stored(one)
    call = await one.send("POST /find", b"<find><email>Ann@Wexlomere.example</email></find>", XML)
    token = re.search(rb"CDATA\[([^\]]+)", body)
    assert token is not None
    assert call.sent.body == b"<find><email>%b</email></find>" % token[1]


@table(
    "more",
    [
        "<more>Ann Wexlomere</more>", "<more a='Ann Wexlomere'/>", "<!--Ann Wexlomere-->",
        "<?x Ann Wexlomere?>", "<more>&#65;nn Wexlomere</more>", "<more>Ann<!--x--> Wexlomere</more>",
        "<more><![CDATA[Ann]]> Wexlomere</more>", "<more>Ann%20Wexlomere</more>",
        "<more a='&#x41;nn Wexlomere'/>", "<more>QW5uIFdleGxvbWVyZQ==</more>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [0, 40_000])
async def test_a_value_does_not_leave_elsewhere(more: str, size: int):
    document = f"<person><name>Ann Wexlomere</name>{more}<x>{'y ' * size}</x></person>"
    await refused("POST /p", document, Code.VALUE_ELSEWHERE)


@table("more", ["<more>Li</more>", "<more a='Li'/>", '<more a="Li"/>', "<more> Li </more>"])
async def test_a_short_value_is_a_whole_one(more: str):
    await refused("POST /p", f"<person><name>Li</name>{more}</person>", Code.VALUE_ELSEWHERE)
    fine = b"<person><name>Li</name><Light a='Linen'>Lithium</Light></person>"
    assert b"Lithium" in (await (await usual()).send("POST /p", fine, XML)).sent.body


async def test_beginnings_of_comments_in_a_section_take_no_time():
    section = "<![CDATA[" + "<?<!--" * 50_000 + "]]>"
    document = f"<person><name>Ann Wexlomere</name><x>{section}</x></person>"
    began = process_time()
    await (await usual()).send("POST /p", document.encode(), XML)
    assert process_time() - began < 5  # it took minutes


# ------------------------------------------------------------------ answers


async def test_what_xml_cannot_hold_is_written_as_a_sign():
    one = await desk(*OPERATIONS, "{match: POST /j, create: p}", fields=FIELDS)
    call = await one.send("POST /j", {"name": "Ann\x00 <b> ]]> \r 'W'"})
    await call.answer(201, {"id": 1})
    token = call.json["name"].encode()
    for form, expected in (
        (b"<name>%b</name>", "<name>Ann\ufffd &lt;b&gt; ]]&gt; &#13; 'W'</name>"),
        (
            b"<name><![CDATA[%b]]></name>",
            "<name><![CDATA[Ann\ufffd <b> ]]]]><![CDATA[> ]]>&#13;<![CDATA[ 'W']]></name>",
        ),
    ):
        answer = b"<person>%b</person>" % (form % token)
        read = await (await one.send("GET /p/1")).answer(200, answer, XML)
        assert read.body.decode() == f"<person>{expected}</person>"


@table(
    "answer", [b"<!DOCTYPE x><person/>", b"<person>", b"{}", b"<person><name>a<b/></name></person>"]
)
async def test_an_answer_that_cannot_be_read_passes(answer: bytes):
    one = await usual()
    assert (await (await one.send("GET /p/1")).answer(200, answer, XML)).body == answer


async def test_a_fault_with_200_leaves_a_change_in_doubt():
    one = await usual()
    body = await stored(one)
    call = await one.send("PATCH /p/1", b"<person><name>Other Name</name></person>", XML)
    fault = b"<s:Envelope xmlns:s='u'><s:Body><s:Fault/></s:Body></s:Envelope>"
    await call.answer(200, fault, XML)
    assert (await one.counts())[2] == 1
    shown = (await (await one.send("GET /p/1")).answer(200, body, XML)).body
    assert b"Ann &amp; Bo" in shown


# ------------------------------------------------------------------ several operations on one path

CALLS = (
    (
        '{match: POST /rpc, when: {$.methodName: add}, create: p, request: {xmlrpc: "$.params[0]"}, '
        'response: {xmlrpc: $, id: "$.params[0]"}}'
    ),
    (
        "{match: POST /rpc, when: {$.methodName: find}, read: p, request: {xmlrpc: $, "
        'fields: {email: "$.params[0]"}}, response: {xmlrpc: "$.params[0][*]", id: $.id}}'
    ),
    "{match: POST /rpc, when: {$.methodName: ping}, pass: true}",
)
CALL = """<?xml version="1.0"?>
<methodCall><methodName>%s</methodName><params><param>%s</param></params></methodCall>"""
MEMBER = "<member><name>%s</name><value>%s</value></member>"


def struct(**members: str) -> str:
    pairs = "\n".join(MEMBER % one for one in members.items())
    return f"<value><struct>{pairs}</struct></value>"


async def test_calls_of_xml_rpc():
    one = await desk(*CALLS)
    ann = struct(name="<string>Ann Wexlomere</string>", email="a@wexlo.example", vip="<int>1</int>")
    call = await one.send("POST /rpc", (CALL % ("add", ann)).encode(), XML)
    assert b"xlo" not in call.sent.body
    assert b"<int>1</int>" in call.sent.body
    answer = b"<methodResponse><params><param><value><int>7</int></value></param></params></methodResponse>"
    await call.answer(200, answer, XML)
    assert await one.counts() == (1, 0, 0)
    find = await one.send(
        "POST /rpc", (CALL % ("find", "<value>a@wexlo.example</value>")).encode(), XML
    )
    assert b"xlo" not in find.sent.body
    token = re.search(rb"<value>([^<]+)</value>", find.sent.body)
    assert token is not None
    member = struct(id="<int>7</int>", email=token[1].decode())
    values = f"<value><array><data>{member}</data></array></value>"
    response = "<methodResponse><params><param>%s</param></params></methodResponse>"
    seen = await find.answer(200, (response % values).encode(), XML)
    assert seen.body.decode() == response % values.replace(token[1].decode(), "a@wexlo.example")


@table(
    "value",
    [
        struct(name="<base64>QW5u</base64>"), struct(name="<struct/>"), struct(name="<b>Ann</b>x"),
        struct(name="Ann") + "<value/>", "<value>Ann</value>", "<x>Ann</x>",
        "<value><struct><member><name>name</name></member></struct></value>",
        "<value><struct><member><value>Ann</value><name>name</name></member></struct></value>",
    ],
)  # fmt: skip
async def test_calls_that_are_read_otherwise_are_refused(value: str):
    one = await desk(*CALLS)
    with pytest.raises(VaultError) as raised:
        await one.send("POST /rpc", (CALL % ("add", value)).encode(), XML)
    assert raised.value.code in (Code.UNREADABLE_BODY, Code.VALUE_UNFIT)


async def test_what_tells_operations_apart_is_read_in_elements_too():
    operations = (
        (
            "{match: POST /s, when: {$.Envelope.Body.Act.kind: add}, create: p, "
            "request: {xml: $.Envelope.Body.Act}, response: {xml: $.Envelope.Body.Done, id: $.id}}"
        ),
        "{match: POST /s, when: {$.Envelope.Body.Act.kind: ping}, pass: true}",
    )
    one = await desk(*operations)
    document = "<s:Envelope xmlns:s='u'><s:Body><Act><kind>%s</kind><name>Ann W</name></Act></s:Body></s:Envelope>"
    call = await one.send("POST /s", (document % "add").encode(), SOAP)
    assert b"Ann" not in call.sent.body
    for unclear in ("ADD", "a<!-- -->dd", "<b>add</b>"):
        with pytest.raises(VaultError):
            await one.send("POST /s", (document % unclear).encode(), SOAP)


MANY = struct(methodName="%s", params=f"<array><data>{struct(name='Ann Wexlo')}</data></array>")
MANY = f"<value><array><data>{MANY}</data></array></value>"


async def test_several_calls_in_one_are_told_apart_by_each_or_refused():
    one = await desk(*CALLS, "{match: POST /rpc, pass: true}")
    for inner in ("add", "Add"):  # it passed with the rest
        many = CALL % ("system.multicall", MANY % inner)
        with pytest.raises(VaultError) as raised:
            await one.send("POST /rpc", many.encode(), XML)
        assert raised.value.code is Code.BAD_REQUEST
    alone = await desk("{match: POST /rpc, create: p, request: {xmlrpc: '$.params[0]'}}")
    with pytest.raises(VaultError) as raised:
        await alone.send("POST /rpc", (CALL % ("system.multicall", MANY % "add")).encode(), XML)
    assert raised.value.code is Code.BAD_REQUEST
    place = "$.params[0][*].params[0]"
    read = await desk(
        "{match: POST /rpc, when: {$.methodName: system.multicall}, create: p, "
        f'request: {{xmlrpc: "{place}"}}}}',
        CALLS[0],
    )
    call = await read.send("POST /rpc", (CALL % ("system.multicall", MANY % "add")).encode(), XML)
    assert b"Ann" not in call.sent.body


ENVELOPE = "<s:Envelope xmlns:s='u'><s:Header>%s</s:Header><s:Body>%s</s:Body></s:Envelope>"


@table(
    "operation",
    [
        "read: p, request: {xml: $.Envelope.Body.Act}, response: {xml: $.p, id: $.id}",
        "delete: p, id: $.Envelope.Body.Act.id, request: {xml: $}",
    ],
)
async def test_a_field_in_a_body_of_which_a_rule_names_no_value_is_refused(operation: str):
    one = await desk(f"{{match: POST /s, {operation}}}")
    for inner in (
        "<name>Ann</name>",
        "<p><q:name xmlns:q='v'>Ann</q:name></p>",
        "<Name>Ann</Name>",
    ):
        act = ENVELOPE % ("", f"<Act><id>1</id>{inner}</Act>")
        with pytest.raises(VaultError) as raised:  # it passed
            await one.send("POST /s", act.encode(), SOAP)
        assert raised.value.code in (Code.UNREADABLE_BODY, Code.AMBIGUOUS_JSON)
    user = ENVELOPE % ("<w:name xmlns:w='w'>robot</w:name>", "<Act><id>1</id><name/></Act>")
    assert (await one.send("POST /s", user.encode(), SOAP)).sent.body == user.encode()


async def test_of_two_elements_that_are_called_as_the_id_is_neither_is_it():
    two = "{match: PUT /p, update: p, id: $.person.id, request: {xml: $.person}, response: {xml: $.person}}"
    lone = '{match: PATCH /p, update: p, id: $.id, request: {xml: "$.person[*]"}}'
    one = await desk(*OPERATIONS, two, lone, fields=FIELDS)
    await stored(one)
    body = b"<person><id>2</id><x:id xmlns:x='u'>%d</x:id><name>Eve</name></person>"
    for match in ("PUT /p", "PATCH /p"):
        with pytest.raises(VaultError) as raised:  # the second one's values were replaced
            await one.send(match, body % 1, XML)
        assert raised.value.code is Code.BAD_REQUEST
    assert b"Eve" not in (await one.send("PATCH /p", body % 2, XML)).sent.body


async def test_an_element_and_an_attribute_of_one_name_may_both_be_named():
    fields = (*FIELDS, """title: {kind: text, at: "$['@name']"}""")
    one = await desk(OPERATIONS[0], fields=fields)
    call = await one.send("POST /p", b"<person name='Dr Wexlo'><name>Ann</name></person>", XML)
    assert b"Wexlo" not in call.sent.body
    assert b"Ann" not in call.sent.body


# ------------------------------------------------------------------ views, and null


async def test_each_view_shows_of_a_document_what_it_says_and_a_mask_that_comes_back_changes_nothing():
    views = "views: [{who: [dpo], p: clear}, {who: [support], p: mask}, {who: [robot], p: token}]"
    one = await desk(*OPERATIONS, fields=FIELDS, more=views)
    sent = b"<person><name>Ann &amp; Bo</name><phone>+46 70 918 27 36</phone></person>"
    call = await one.send("POST /p", sent, XML, view=one.view("dpo"))
    body = call.sent.body
    await call.answer(201, body.replace(b"<person", b'<person id="1"'), XML)
    masked = b"<person><name>A** &amp; **</name><phone>+** ** *** ** 36</phone></person>"
    for role, shown in (("dpo", sent), ("support", masked), ("robot", body), ("nobody", body)):
        read = await one.send("GET /p/1", view=one.view(role))
        assert (await read.answer(200, body, XML)).body == shown, role
    edited = masked.replace(b"A** &amp; **", b"Cy")
    update = await one.send("PATCH /p/1", edited, XML, view=one.view("support"))
    kept = re.search(rb"<phone>[^<]*", body)
    assert kept is not None
    assert kept[0] in update.sent.body
    held = update.sent.body
    assert (await update.answer(200, held, XML)).body == edited.replace(b"Cy", b"C*")
    read = await one.send("GET /p/1", view=one.view("dpo"))
    assert (await read.answer(200, held, XML)).body == sent.replace(b"Ann &amp; Bo", b"Cy")


@table("keeps", [False, True])
async def test_an_element_that_is_nil_erases_its_field_unless_nulls_are_kept(keeps: bool):
    keep = ", nulls: keep" if keeps else ""
    change = f'{{match: "PUT /q/{{id}}", update: p, request: {{xml: $.person{keep}}}, response: {{xml: $.person}}}}'
    one = await desk(*OPERATIONS, change, fields=FIELDS)
    held = await stored(one)
    nil = b"<person xmlns:i='urn:i'><name i:nil='true'/></person>"
    update = await one.send("PUT /q/1", nil, XML)
    assert update.sent.body == nil
    await update.answer(200, nil, XML)
    read = await (await one.send("GET /p/1")).answer(200, held, XML)
    assert (b"Ann &amp; Bo" in read.body) is keeps
