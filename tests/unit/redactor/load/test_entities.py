from proxy.model.schema import Field, FieldType, Storage
from proxy.redactor.load import load_text
from proxy.redactor.load.entities import needs_record
from proxy.redactor.rules import BodyLimits, Endpoint, Entity, OnError, Unmatched
from proxy.tokenization import make_shape
from proxy.tokenization.fallback import Fallback
from tests.support.rules import faults_of, with_fields
from tests.support.table import table


def entity(*fields: str, extra: str = "") -> Entity:
    return load_text(with_fields(*fields, entity=extra)).entities[0]


def test_a_field_has_the_shape_of_its_kind_and_the_member_of_its_name():
    field = entity("email: {kind: email}").fields["email"]
    assert (field.name, field.kind, field.shape.name, field.shape.same) == (
        "email",
        "email",
        "email",
        False,
    )
    assert field.at == ("email",)
    assert (field.in_clear, field.find) == (False, frozenset())


@table(
    ("token", "name", "same"),
    [
        ("opaque", "opaque", False),
        ("alphaNumeric", "opaque", False),
        ("emailPersistent", "email", True),
        ("{same: true}", "email", True),
        ("{shape: uuid}", "uuid", False),
        ("{shape: alphaNumericPersistent}", "opaque", True),
        ('{template: "PP-[A-Z0-9]{9}"}', "template", False),
    ],
)
def test_a_token_is_a_shape_by_name_or_with_options(token, name, same):
    shape = entity(f"email: {{kind: email, token: {token}}}").fields["email"].shape
    assert (shape.name, shape.same) == (name, same)


def test_options_reach_the_shape():
    options = (
        load_text(with_fields('x: {kind: text, token: {shape: fixed, value: "0"}}'))
        .entities[0]
        .fields["x"]
        .shape
    )
    assert options == make_shape("fixed", {"value": "0"})


def test_the_schema_of_the_vault_follows_find_and_stored():
    schema = entity(
        "a: {kind: text}",
        "b: {kind: email, find: [exact]}",
        "c: {kind: text, stored: plain}",
        "d: {kind: date, find: [exact, range], stored: plain}",
        extra="schema: people",
    ).schema
    assert schema.name == "people"
    assert schema.fields == (
        Field("a", FieldType.STRING, Storage.ENCRYPTED, "text"),
        Field("b", FieldType.STRING, Storage.INDEXED_HASHED, "email"),
        Field("c", FieldType.STRING, Storage.INDEXED, "text"),
        Field("d", FieldType.DATE, Storage.INDEXED, "date"),
    )


def test_the_schema_has_the_name_of_the_entity_where_none_is_given():
    made = entity("a: {kind: text}", extra="expires: 90d")
    assert made.schema.name == made.name == "person"
    assert made.expires == 90 * 86_400_000


def test_places_may_lie_anywhere_in_the_object():
    made = entity(
        "a: {kind: text, at: $.b.c}", 'd: {kind: text, at: "$.e[*]"}', "f: {kind: text, at: $..g}"
    )
    assert made.fields["a"].at == ("b", "c")
    assert len(made.fields["d"].at) == 2


def test_a_planned_population_makes_room_enough():
    assert (
        "x"
        in entity(
            'x: {kind: text, token: {template: "P[0-9]{6}"}}', extra="population: 500000"
        ).fields
    )
    assert (
        "'population'"
        in faults_of(
            with_fields(
                'x: {kind: text, token: {template: "P[0-9]{6}"}}', entity="population: 500001"
            )
        )[0].text
    )


@table(
    ("name", "options", "small"),
    [
        ("date", {}, True),
        ("fixed", {"value": "0"}, True),
        ("luhn", {"keep_first": 6, "keep_last": 4}, True),
        ("luhn", {"keep_last": 4}, False),
        ("numeric", {"keep_last": 2}, False),
        ("opaque", {}, False),
        ("plain", {}, False),
    ],
)
def test_small_shapes_resolve_by_their_record(name, options, small):
    assert needs_record(make_shape(name, options)) is small


@table(
    ("declared", "told"),
    [
        ("{kind: nam}", "'nam' is not known here; did you mean 'name'?"),
        ("{token: opaque}", "lacks 'kind'"),
        (
            "{kind: name, token: {shape: msk, first: 1}}",
            "'msk' is not known here; did you mean 'mask'?",
        ),
        (
            "{kind: name, token: {shape: opaque, first: 1}}",
            "token shape opaque has no option 'first'",
        ),
        ("name", "must be a mapping"),
    ],
)
def test_a_field_at_fault_is_told_once_and_not_again_by_those_who_name_it(declared, told):
    operations = """operations:
  - {match: POST /people, create: person, request: {form: {name: name}}, response: {id: $.id}}
  - {match: GET /people, read: person, query: {name: {field: name}}, response: {fields: {name: $.name}, id: $.id}}
"""
    (fault,) = faults_of(with_fields(f"name: {declared}") + operations)
    assert told in fault.text


def test_values_that_do_not_fit_may_have_another_shape():
    fields = entity(
        "phone: {kind: phone, token: {else: opaque, keep_last: 2}}",
        "fax: {kind: phone, token: {shape: numericPersistent, else: lower}}",
    ).fields
    phone, fax = fields["phone"].shape, fields["fax"].shape
    assert isinstance(phone, Fallback)
    assert isinstance(fax, Fallback)
    assert (phone.name, phone.other.name, phone.other.same) == ("numeric", "opaque", False)
    assert (fax.name, fax.other.name, fax.other.same) == ("numeric", "lower", True)


@table(
    ("token", "told"),
    [
        ("{shape: opaque, else: lower}", "leave it out"),
        ("{shape: plain, else: lower}", "leave it out"),
        ("{shape: numeric, else: date}", "opaque"),
        ("{shape: numeric, else: {shape: opaque}}", "opaque"),
    ],
)
def test_another_shape_that_does_nothing_or_fits_not_all_is_a_fault(token, told):
    (fault,) = faults_of(with_fields(f"phone: {{kind: phone, token: {token}}}"))
    assert told in fault.text


# ---- endpoints


def endpoint(keys: str = "", rest: str = "") -> Endpoint:
    return load_text(
        f'version: 1\nendpoint: {{name: crm, upstream: "http://a:80"{keys}}}\n{rest}'
    ).endpoints[0]


def test_what_is_not_said_has_its_default():
    assert endpoint() == Endpoint(
        "crm", "http://a:80", frozenset(), "", Unmatched.REPORT, BodyLimits(), OnError()
    )


def test_everything_may_be_said():
    made = endpoint(
        ", host: [A.example, b.example.], prefix: /crm/, unmatched: deny, limits: {body: 1KiB, "
        "inflated: 2KiB, json_depth: 3, form_fields: 4}",
        "on_error: {vault_down: {write: 500, read: 502}, unreadable_body: 400, ambiguous_json: "
        "422, too_large: 400, field_absent: refuse, upstream_not_2xx: pass, unreadable_answer: "
        "503}\n",
    )
    assert made.hosts == {"a.example", "b.example"}
    assert (made.prefix, made.unmatched) == ("/crm", Unmatched.DENY)
    assert made.limits == BodyLimits(1024, 2048, 3, 4)
    assert made.on_error == OnError(500, "502", 400, 422, 400, "refuse", "leave", "pass", "503")


def test_parts_leave_the_other_defaults_alone():
    made = endpoint(", limits: {body: 1KiB}", "on_error: {vault_down: {read: tokens}}\n")
    assert made.limits == BodyLimits(body=1024)
    assert made.on_error == OnError(vault_down_read="tokens")


def test_one_host_may_stand_alone():
    assert endpoint(", host: a.example").hosts == {"a.example"}


def test_addresses_come_from_outside_by_reference(tmp_path):
    (tmp_path / "url").write_text("https://crm.internal:8443\n")
    text = 'version: 1\nendpoint: {name: crm, upstream: "${file:url}", host: "${env:HOST}"}\n'
    made = load_text(text, str(tmp_path / "rules.yaml"), {"HOST": "crm.example"}).endpoints[0]
    assert made.upstream == "https://crm.internal:8443"
    assert made.hosts == {"crm.example"}


# ---- keeping


MAIL = "email: {kind: email, keep_as: key3}"


def kept(*fields: str) -> dict[str, str] | None:
    found = load_text(with_fields(*fields, entity="schema: records")).entities[0].kept_as
    return None if found is None else dict(found)


def test_a_field_is_kept_as_one_of_the_record_schema_or_by_its_own_name():
    fields = [
        "born: {kind: date, keep_as: range_key1, stored: plain}",
        "profile_key: {kind: name}",
        "spare: {kind: text}",
    ]
    assert kept(MAIL, *fields) == {
        "email": "key3",
        "born": "range_key1",
        "profile_key": "profile_key",
    }
    assert load_text(with_fields("email: {kind: email}")).entities[0].kept_as is None


def test_several_values_fit_into_a_body():
    assert kept('tags: {kind: text, at: "$.tags[*]", keep_as: body}') == {"tags": "body"}


@table(
    ("fields", "place", "sentence"),
    [
        (["email: {kind: email, keep_as: key33}"], "7:", "did you mean 'key3"),
        (["email: {kind: email, keep_as: record_key}"], "7:", "has no field 'record_key'"),
        ([MAIL, "mail: {kind: email, keep_as: key3}"], "8:", "email is kept as key3 already"),
        ([MAIL, "key3: {kind: email}"], "8:", "email is kept as key3 already"),
        (
            ['tags: {kind: text, at: "$.tags[*]", keep_as: key1}'],
            "7:",
            "keep it as body or precommit_body",
        ),
        (["born: {kind: date, keep_as: range_key1}"], "7:", "stored: plain"),
        (["email: {kind: email, keep_as: key3, find: [exact]}"], "7:", "leave find out"),
        (["email: {kind: email}"], "5:", "no field of person is kept"),
    ],
)
def test_what_cannot_be_kept_so_is_told_with_its_place(fields, place, sentence):
    faults = faults_of(with_fields(*fields, entity="schema: records"))
    assert any(place in fault.source and sentence in fault.text for fault in faults), faults


def test_keep_as_means_nothing_in_a_schema_of_its_own():
    (fault,) = faults_of(with_fields(MAIL))
    assert "write 'schema: records' at person" in fault.text


@table(
    "text",
    [
        with_fields("email: {kind: email}", entity="schema: Records"),
        with_fields("email: {kind: email}").replace("person:", "records:"),
    ],
)
def test_the_name_of_the_record_schema_is_taken(text):
    (fault,) = faults_of(text)
    assert "'records' is the schema of the record-based interface" in fault.text
