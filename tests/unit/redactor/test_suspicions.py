"""What is suspected in a text is what is there."""

import base64
import json
import time

from proxy.redactor.suspicions import legible, suspected, suspected_fields
from tests.support.table import table


@table(
    ("text", "kinds"),
    [
        ('{"e": "ann@example.com"}', ["email"]),
        ("email=ann%40example.com&first_name=Ann", ["email", "name"]),
        ("070-123 45 67", ["phone"]),
        ('<a href="tel:+46701234567">', ["phone"]),
        ("4111 1111 1111 1111", ["card"]),
        ("378282246310005", ["card"]),
        ("SE45 5000 0000 0583 9825 7466", ["iban"]),
        ("DE89370400440532013000", ["iban"]),
        ('"1987-04-05"', ["birth_date"]),
        ("born 05.04.1987", ["birth_date"]),
        ('{"dob": "2024-01-01"}', ["birth_date"]),
        ("19870405-0007", ["national_id"]),
        ('"last_name": "Lee"', ["name"]),
    ],
)
def test_values_are_suspected_by_kind(text, kinds):
    assert suspected(text) == kinds


@table(
    ("field", "kinds"),
    [
        ("X-User: ann@example.com", ["email"]),
        ("Slug: Ann Lindqvist.pdf", ["file_name"]),
        ("X-File-Name: a.pdf", ["file_name"]),
        ('Content-Disposition: attachment; FileName="a.pdf"', ["file_name"]),
        ("Upload-Metadata: filetype cGRm,filename QW5uLnBkZg==", ["file_name"]),
        ("Upload-Metadata: name QW5uLnBkZg==,owner YW5uQGV4YW1wbGUuY29t", ["file_name", "email"]),
        ("Upload-Metadata: confidential,x A,checksum ====", []),
        ("Content-Disposition: form-data; name=a", []),
        ("User-Agent: bot (+mailto:bot@example.com)", []),
        ("Cookie: mail=ann@example.com", []),
        ("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", []),
    ],
)
def test_header_fields_of_an_upload_and_of_scripts_are_suspected_by_kind(field, kinds):
    name, _, value = field.encode().partition(b": ")
    assert suspected_fields(((name, value),)) == kinds


def test_a_long_field_is_looked_at_soon():
    began = time.perf_counter()
    for sign in (b"a", b" ", b",", b"name", b"a ", b"filename"):
        suspected_fields(
            ((b"Upload-Metadata", sign * 65536), (b"Content-Disposition", sign * 65536))
        )
    assert time.perf_counter() - began < 5


@table(
    "text",
    [
        "",
        "4111 1111 1111 1112",
        "SE45 5000 0000 0583 9825 7467 X",
        '{"created": 1612345678, "at": "2019-01-01T10:00:00Z"}',
        "2019-01-01 10:00:00",
        "192.168.10.12 and version 1.2.3.4",
        "12345678-1234-1234-1234-123456789012",
        '{"last_name": ""}',
        "a description of an ip address @ home",
    ],
)
def test_what_only_looks_alike_is_not_suspected(text):
    assert suspected(text) == []


@table(
    "unit",
    [
        "a", "1", "1 ", "a@", "a.", "A1", "+1 ", "0123 ", "4111 ", "SE12 ", "firstname ", "-",
        "\n\r", "1987-04-05",
    ],
)  # fmt: skip
def test_a_slice_of_any_text_is_looked_at_in_no_time(unit):
    small, large = unit * (1024 // len(unit)), unit * (4096 // len(unit))

    def best(text: str) -> float:
        times = []
        for _ in range(5):
            began = time.thread_time()
            suspected(text)
            times.append(time.thread_time() - began)
        return min(times)

    # four times the text: four times the work, and never its square
    assert best(large) < 8 * best(small) + 0.001


@table("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_base64_of_json_is_looked_at_whole_or_cut_off(encode):
    query = {"filtering": {"status__in": [1, 2]}, "sorting": "created", "q": "a" * 120}
    text = encode(json.dumps({"mail": "ann@example.com", **query}).encode()).decode()
    late = encode(json.dumps({**query, "mail": "ann@example.com"}).encode()).decode()
    for one in (
        text,
        text.rstrip("="),
        text[:60],
        f"/tickets/{text}",
        f"a=b&q={text}",
        f"x.{text}.y",
    ):
        assert suspected(one) == ["email"], one
    assert suspected(text.replace("=", "%3D")) == ["email"]
    assert suspected(legible(late, 20)) == ["email"], "where it stands late"
    assert suspected(encode(b"[[1, 2, 3, 4, 5, 6, 7]]").decode()) == []
    assert legible("eyewitness of all", 5) == "eyewi"
