from proxy.redactor.tools.lessons import (
    Lessons,
    SeenValues,
    beside_person,
    kind_of,
    last_name,
    singular,
)
from tests.support.table import table


@table(
    ("name", "text", "kind"),
    [
        ("e_mail", "", ""), ("x", "zorbina@wexlomere.example", "email"), ("phone", "7", "phone"),
        ("mobilePhone", None, "phone"), ("lastName", "Q", "name"), ("name", "Q", ""),
        ("cardNumber", "x", "card"), ("card", "4111 1111 1111 1111", "card"), ("card", "no", ""),
        ("born", "1931-02-27", "date"), ("created", "1931-02-27", "date"),
        ("created", "2026-02-27", ""), ("id", "19870405-0007", "national_id"),
    ],
)  # fmt: skip
def test_kinds_by_name_and_value(name, text, kind):
    assert kind_of(name, text) == kind


@table(
    ("name", "text", "kind"),
    [
        *[("name", one, "") for one in ("SE", "EUR", "ORDER_PAID", "AB-1234", "AB1234", "X/7-A")],
        *[("name", one, "name") for one in ("ANN LINDQVIST", "ANN", "RON", "NG", "ANN-MARIE", "Se", "7", "ORDER paid")],
        ("displayName", "AB-1234", ""), ("displayName", "ANN", "name"),
        ("firstName", "SE", "name"), ("lastName", "ORDER_PAID", "name"),
        ("email", "EMAIL_SENT", ""), ("email", "ANN@X.EXAMPLE", "email"), ("phone", "VERIFIED", ""),
        ("phone", "1-800-ANN", "phone"), ("iban", "SE", ""), ("iban", "SE3550000000054910000003", "iban"),
        ("cardNumber", "VISA", ""), ("ssn", "AB-1234", "national_id"), ("born", "UNKNOWN", ""),
        ("notes", "ORDER_PAID", ""), ("notes", "HIV", "text"), ("passport", "AB-1234", "text"), ("zip", "AB-1234", "text"),
        ("sku", "AB-1234", ""), ("currency", "EUR", ""), ("code", "SE3550000000054910000003", "iban"),
    ],
)  # fmt: skip
def test_codes_in_capitals_are_no_values_and_names_in_capitals_are(name, text, kind):
    assert kind_of(name, text, of_person=True) == kind


@table(
    ("texts", "person"),
    [
        ([("email", "VERIFIED")], True), ([("user[email]", "x@x.example")], True), ([("displayName", "AB-1234")], True),
        ([("sku", "AB-1234"), ("name", "EUR")], False), ([], False),
    ],
)  # fmt: skip
def test_a_code_in_place_of_a_value_hides_no_person(texts, person):
    assert beside_person(texts) is person


def test_a_name_beside_something_of_a_person_is_a_persons():
    assert kind_of("name", "Q", of_person=True) == "name"


@table(
    ("name", "last"),
    [("street", "street"), ("user[address][0][street]", "street"), ("tags[]", "tags"), ("[*]", "[*]")],
)  # fmt: skip
def test_the_last_name_of_a_nested_form(name, last):
    assert last_name(name) == last


def test_names_of_members_are_told_where_they_are_nobodys():
    lessons = Lessons("http://a", "a test", frozenset({"kund", "inlagd_av"}))
    assert [lessons.name_of(one) for one in ("lastName", "kund[email]", "Inlagd_av", "zorbina")] == [
        "lastName", "kund[email]", "Inlagd_av", None,
    ]  # fmt: skip


@table(
    ("text", "kinds"),
    [
        ("zorbina FLUMPER was added", ["name"]), ("Zorbina was added", []), ("write zorbina@x.example!", ["email"]),
        ("Zorbina Flumpergren", []), ("an admin did it", []), ("Q did it", []), ("", []),
    ],
)  # fmt: skip
def test_values_are_found_again_as_whole_words(text, kinds):
    seen = SeenValues()
    for kind, value in (("name", "Zorbina Flumper"), ("email", "zorbina@x.example"), ("name", "Q"), ("name", "Admin")):  # fmt: skip
        seen.note(kind, value)
    assert seen.kinds_in(text) == kinds


@table(
    ("many", "one"),
    [
        *(("people", "people"), ("contacts", "contact"), ("shipping_address", "shipping_address")),
        *(
            ("addresses", "address"),
            ("companies", "company"),
            ("boxes", "box"),
            ("courses", "course"),
        ),
        *(("status", "status"), ("batches", "batch"), ("gas", "gas")),
    ],
)
def test_the_name_of_one_of_a_collection(many, one):
    assert singular(many) == one


def test_the_words_of_an_address_beside_a_person():
    names = ("line1", "address_line2", "postcode", "postalCode", "zip", "notes")
    assert [kind_of(one, "x", of_person=True) for one in names] == ["text"] * len(names)
    assert [kind_of(one, "x") for one in names] == [""] * len(names)
