import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.redactor.multipart import FormPart, form_parts, is_multipart
from tests.support.table import table

TYPE = b"multipart/form-data; boundary=b1"
TEXT = b'Content-Disposition: form-data; name="caption"'
FILE = (
    b'Content-Disposition: form-data; name="photo"; filename="a b.png"\r\nContent-Type: image/png'
)


def fields(declared: bytes = TYPE) -> RawHeaders:
    return ((b"Content-Type", declared),)


def form(*parts: tuple[bytes, bytes], boundary: bytes = b"b1", end: bytes = b"--\r\n") -> bytes:
    pieces = [b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, content) for head, content in parts]
    return b"".join(pieces) + b"--" + boundary + end


def refused(body: bytes, declared: bytes = TYPE, limit: int = 10) -> VaultError:
    with pytest.raises(VaultError) as fault:
        list(form_parts(fields(declared), body, limit))
    assert b"secret" not in str(fault.value).encode()
    return fault.value


def test_parts_come_in_order_with_their_places():
    body = form((TEXT, b"on the\r\nbeach"), (FILE, b"\x89PNG\r\n\r\n--b\x00"), (TEXT, b""))
    first, photo, last = form_parts(fields(), body, 10)
    assert [first.name, photo.name, last.name] == ["caption", "photo", "caption"]
    assert [first.is_file, photo.is_file, last.is_file] == [False, True, False]
    assert body[first.start : first.end] == b"on the\r\nbeach"
    assert body[photo.start : photo.end] == b"\x89PNG\r\n\r\n--b\x00"
    assert last.start == last.end


@table(
    ("head", "is_file"),
    [
        (TEXT + b"\r\nContent-Type: text/plain; charset=UTF-8", False),
        (TEXT.replace(b'"caption"', b"caption"), False),
        (TEXT + b"\r\nContent-Type: application/json", True),
        (TEXT + b"\r\nContent-Type: text/plain; charset=utf-16", True),
        (TEXT + b'; filename=""', True),
        (TEXT + b"; filename*=UTF-8''%e2%82%ac.png", True),
        (TEXT + b"\r\nContent-Transfer-Encoding: 8BIT\r\nX-Own: 1", False),
    ],
)
def test_what_is_no_plain_text_is_a_file(head, is_file):
    (part,) = form_parts(fields(), form((head, b"x")), 10)
    assert part[:2] == FormPart("caption", is_file, 0, 0)[:2]


@table(
    "head",
    [
        b"",
        b"Content-Type: text/plain",
        b"Content-Disposition: form-data",
        b'Content-Disposition: attachment; name="caption"',
        TEXT + b"\r\n" + TEXT,
        TEXT + b"\r\n folded",
        TEXT + b'; name="other"',
        TEXT + b"; name*=UTF-8''caption",
        TEXT + b'; filename="a\\"; name="other"',
        TEXT + b'; filename="a"; filename="b"',
        TEXT + b"; size=4",
        TEXT.replace(b'"caption"', b"'caption'"),
        TEXT.replace(b'"caption"', b"x'caption"),
        TEXT + b"; filename='a.png'",
        TEXT + b"; filename*=UTF-8'a",
        TEXT.replace(b"caption", b"cap\\tion"),
        TEXT.replace(b"caption", b"cap%22tion"),
        TEXT.replace(b"caption", b"caption\x01"),
        TEXT.replace(b"caption", b"=?utf-8?q?caption?="),
        TEXT.replace(b"caption", b"\xff"),
        TEXT.replace(b"name=", b"Name="),
        TEXT + b"\r\nContent-Transfer-Encoding: base64",
        TEXT + b"\r\nContent-Type: multipart/mixed; boundary=x",
        TEXT + b"\r\nno field",
        TEXT + b"\r\nX: " + b"x" * 9000,
    ],
)
def test_a_head_that_applications_could_read_in_two_ways_is_refused(head):
    assert refused(form((head, b"secret"))).code is Code.UNREADABLE_BODY


@table(
    "body",
    [
        b"",
        b"--b1--",
        b"preamble\r\n" + form((TEXT, b"x")),
        form((TEXT, b"x")) + b"behind",
        form((TEXT, b"x"), end=b""),
        form((TEXT, b"x"), end=b" --"),
        form((TEXT, b"x\n--b1\n" + TEXT + b"\n\nsecret")),
        form((TEXT, b"x --b1 y")),
        form((TEXT, b"x\r\n--b1x")),
        form((TEXT, b"x")).replace(b"\r\n", b"\n"),
        b"--b1\r\n--b1--",
    ],
)
def test_a_boundary_elsewhere_than_between_parts_is_refused(body):
    assert refused(body).code is Code.UNREADABLE_BODY


@table(
    "declared",
    [
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b"multipart/form-data; boundary=b1; boundary=b2",
        b"multipart/form-data; boundary=b1; charset=utf-16",
        b"multipart/form-data; boundary=b1; start=x",
        b"multipart/form-data; boundary=" + b"b" * 71,
        b"multipart/form-data, multipart/form-data; boundary=b1",
    ],
)
def test_a_type_without_one_clear_boundary_is_refused(declared):
    assert refused(form((TEXT, b"x")), declared).code is Code.UNREADABLE_BODY


def test_the_boundary_keeps_its_letter_case_and_may_be_quoted():
    body = form((TEXT, b"x"), boundary=b"--Web Kit:1")
    (part,) = form_parts(
        fields(b'Multipart/Form-Data; charset=utf-8; boundary="--Web Kit:1"'), body, 1
    )
    assert part.name == "caption"


def test_too_many_parts_are_refused():
    assert refused(form(*[(TEXT, b"x")] * 3), limit=2).code is Code.TOO_LARGE


def test_only_a_form_of_parts_is_one():
    assert is_multipart(fields(b"multipart/form-data ; boundary=x"))
    assert not is_multipart(fields(b"multipart/mixed; boundary=x"))
    assert not is_multipart(fields(b"multipart/form-datax"))
    assert not is_multipart(())


@table(
    ("sent", "name"),
    [
        ('filename="Anna Lindqvist passport.pdf"', "Anna Lindqvist passport.pdf"),
        ("filename=scan.pdf", "scan.pdf"),
        ('filename="Åsa %22the boss%22%0D%0A100%.pdf"', 'Åsa "the boss"\r\n100%.pdf'),
        ('filename="%2222%20%0d.pdf"', '"22%20%0d.pdf'),
        ("filename*=UTF-8''%C3%85sa%20%22.pdf", 'Åsa ".pdf'),
        ("filename*=utf-8'sv'a.pdf", "a.pdf"),
        ("filename*=\"ISO-8859-1''%C5sa.pdf\"", "Åsa.pdf"),
        (r'filename="C:\Users\Anna Lindqvist\scan.pdf"', "scan.pdf"),
        (r'filename="C:\scan.pdf"', "scan.pdf"),
        (r'filename="\\home\anna\scan.pdf"', "scan.pdf"),
        ('filename="/mnt/anna/scan.pdf"', "scan.pdf"),
        ('filename="anna/scan.pdf"', "anna/scan.pdf"),
        (r'filename="a\b.pdf"', r"a\b.pdf"),
        ('filename=""', ""),
        ("filename*=UTF-8''", ""),
    ],
)
def test_the_name_of_a_file_is_read_as_it_was_meant(sent, name):
    head = f'Content-Type: image/png\r\ncontent-disposition: form-data; name="å"; {sent} '
    body = form((TEXT, b"x"), (head.encode(), b"y"))
    _, part = form_parts(fields(), body, 10)
    (said,) = part.file_names
    assert said.read() == name
    # what stands in its place is all that differs
    held = body[: said.start] + b"TOKEN.pdf" + body[said.end :]
    _, part = form_parts(fields(), held, 10)
    assert [one.read() for one in part.file_names] == ["TOKEN.pdf"]
    assert len(body) - len(held) == said.end - said.start - 9


def test_both_names_of_a_file_have_places_of_their_own():
    head = FILE.replace(b"\r\n", b"; filename*=UTF-8''%C3%A5.png\r\n", 1)
    body = form((head, b"x"))
    (part,) = form_parts(fields(), body, 10)
    assert [(one.read(), body[one.start : one.end]) for one in part.file_names] == [
        ("a b.png", b"a b.png"),
        ("å.png", b"%C3%A5.png"),
    ]


@table(
    "sent",
    [
        "filename*=utf-16''a.pdf",
        "filename*=UTF-8''%ff.pdf",
        "filename*=UTF-8''%4.pdf",
        'filename*="a.pdf"',
        "filename*=UTF-8''a%00.pdf",
        'filename="=?utf-8?b?QW5u?="',
        'filename="a\tb.pdf"',
    ],
)
def test_a_name_of_a_file_that_only_some_programs_read_is_refused(sent):
    (part,) = form_parts(fields(), form((TEXT + b"; " + sent.encode(), b"x")), 10)
    with pytest.raises(VaultError) as fault:
        part.file_names[0].read()
    assert fault.value.code is Code.UNREADABLE_BODY
