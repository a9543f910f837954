"""Shapes of paths and suspected kinds: no value is ever shown, and what is suspected is what is
there.
"""

import time

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.coverage import PathShapes, may_name, suspected, suspected_fields
from tests.support.table import table

TEMPLATES = ["/api/contacts/{id}", "/kunder/{id}.json"]


def shape(target: str) -> str:
    return PathShapes(TEMPLATES).shape(target.encode())


@table(
    "target, shown",
    [
        ("/", "/"),
        ("*", "/"),
        ("/api/contacts/17", "/api/contacts/{id}"),
        ("/api/contacts?email=ann@example.com", "/api/contacts"),
        ("http://app.example/users/1?x=y", "/users/{id}"),
        ("/v2/orders/2819c223-7f76-453a-919d-413861904646/lines/3", "/v2/orders/{id}/{word}/{id2}"),
        ("/ann@example.com", "/{id}"),
        ("/p%C3%A5l", "/{id}"),
        ("/på", "/{id}"),
        ("/users/annlee", "/users/{word}"),
        ("/people/Ann/photo", "/people/{word}/photo"),
        ("/customer/lee/orders", "/customer/{word}/orders"),
        ("/reset/abcdefgh", "/reset/{word}"),
        ("/search/Ann", "/search/{word}"),
        ("/kunder/ann", "/kunder/{word}"),
        ("/people/edit/anna-smith", "/people/edit/{word}"),
        ("/users/active/AnnaSmith", "/users/active/{word}"),
        ("/people/17/AnnaSmith", "/people/{id}/{word}"),
        ("/kunden/erika", "/{word}/{word2}"),
        ("/Quibblethwaite", "/{word}"),
        ("/static/anna.css", "/static/{word}.css"),
        ("/customers/export", "/customers/export"),
        ("/Account/Login", "/Account/Login"),
        ("/getContacts", "/{word}"),
        ("/kJhGfDsAqWeRtZuI", "/{word}"),
        ("/abcdefghijklmnopqrstuvw", "/{word}"),
        ("/static/app.3f2a1.js", "/static/{id}.js"),
        ("/ann.lee", "/{id}"),
        ("/wp-admin/user-edit.php", "/wp-admin/user-edit.php"),
        ("/wp-json/wp/v2/users/17", "/wp-json/wp/v2/users/{id}"),
        ("/wp-admin/ann-lee.php", "/wp-admin/{word}.php"),
        ("/reports/users.pdf", "/reports/{word}.pdf"),
        ("/types/api::customer.customer", "/types/api::customer.customer"),
        ("/types/ann::lee", "/types/{id}"),
        ("/types/ann::lee.smith", "/types/{id}"),
        ("/a;b/c", "/{id}/{word}"),
        ("/" + "/".join(["list"] * 12), "/list" * 8 + "/{rest*}"),
    ],
)
def test_segments_that_look_like_values_are_hidden(target, shown):
    assert shape(target) == shown


@given(
    st.from_regex(r"[A-Za-z]{1,20}([-_][A-Za-z]{1,20})?", fullmatch=True),
    st.sampled_from(["", "people/", "users/active/"]),
)
def test_a_word_that_neither_rules_nor_interfaces_have_is_never_shown(word, before):
    shown = PathShapes().shape(f"/{before}q{word}q".encode())
    assert shown == f"/{before}{{word}}"


@given(
    st.text(min_size=1),
    st.sampled_from(["17", "ann@example.com", "070-123 45 67", "4111111111111111", "å"]),
)
def test_no_digit_and_nothing_escaped_is_ever_shown(text, value):
    shown = PathShapes().shape(f"/{text}/{value}".encode("utf-8", "surrogatepass"))
    assert value not in shown
    assert shown.isascii()


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


@table(
    ("template", "shape", "may"),
    [
        ("/kunder/{id}", "/{word}/{id}", True), ("/kunder", "/{word}", True), ("/api/kunder/{id}/fel", "/api/{word}/{id}/{word2}", True),
        ("/kunder", "/{word}/{id}", False), ("/kunder/{id}", "/{id}/{id2}", False), ("/users/{id}", "/{word}/{id}", False),
        ("/{word}/{id}", "/{word}/{id}", False), ("/kunder/{rest*}", "/{word}/{id}/{id2}", True), ("/kunder/alla", "/{word}/alla", True),
        ("/kunder/{id}/a/b/c/d/e/f/g", "/{word}/{id}/{word2}/{word3}/{word4}/{word5}/{word6}/{word7}/{rest*}", True),
        ("/kund-1.css", "/{id}.css", True), ("/kund.css", "/{word}.js", False),
    ],
)  # fmt: skip
def test_a_rule_may_name_a_shape_in_which_its_words_were_hidden(template, shape, may):
    assert may_name(template, shape) is may


@table(
    "target, shown",
    [
        ("/index.php?r=order/list&page=2", "?r=order/list"),
        ("/index.php?r=order%2Fview&id=17", "?r=order/view"),
        ("/app.do?x=1&cmd=save", "?cmd=save"),
        ("/?controller=order&action=editOrder", "?controller=order&action=editOrder"),
        ("/admin-ajax.php?action=acme_save_ann", "?action={word}_save_{word}"),
        ("/index.php?r=order/view/17", "?r=order/view/{id}"),
        ("/index.php?r=kunder/ny", "?r=kunder/{word}"),
        ("/?q=node/add", "?q=node/add"),
        ("/?q=Ann+Lindqvist", ""),
        ("/index.php?action=ann@example.com", "?action={word}"),
        ("/list.php?page=2", ""),
        ("/orders?action=archive", ""),
        ("/index.php", ""),
    ],
)
def test_what_a_query_asks_a_program_for_is_shown_without_values(target, shown):
    routes = (("r", "kunder/lista"),)
    assert PathShapes(TEMPLATES, routes).route(target.encode()) == shown


def test_a_route_in_which_a_word_was_hidden_may_be_named_by_now():
    assert may_name("/index.php?r=kunder/ny", "/index.php?r={word}/{word}")
    assert not may_name("/index.php?r=kunder/ny", "/index.php?r=order/list")
    assert not may_name("/index.php?r=kunder/ny", "/other.php?r={word}")
