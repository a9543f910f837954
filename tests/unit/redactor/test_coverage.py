"""Shapes of paths and suspected kinds: no value is ever shown, and what is suspected is what is
there.
"""

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.coverage import PathShapes, may_name
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
