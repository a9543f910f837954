import re
from typing import Any

from hypothesis import given as drawn
from hypothesis import strategies as st

from proxy.auth.rights import excess, firewall, full_rights, granted
from proxy.crypto.keyset import Keyset
from proxy.model.policy import AccessPolicy, Act
from proxy.model.policy_reader import read_policy
from proxy.model.query import AnyOf, Equals
from proxy.model.record import Record
from proxy.model.rights import Rights
from proxy.model.schema import Schema, Storage
from tests.support.effort import examples
from tests.support.table import table
from tests.unit.model.test_policy import SCHEMA
from tests.unit.model.test_policy_reader import EXAMPLE

KEYED = Keyset.create("default").hasher
FIELDS = {
    "id": "a1", "email": "ann@example.com", "phone": "+46 70 12 34", "passport": {"number": 5},
    "city": "Lund", "region": "north", "age": 40,
}  # fmt: skip


def policy(name: str = "p", **more: Any) -> AccessPolicy:
    return read_policy(name, {"schema": "contact", "actions": ["read"], **more})


def rights(*policies: AccessPolicy, schema: Schema = SCHEMA) -> Rights:
    return granted(policies, schema, KEYED)


def shown(given: Rights, rid: int = 1, fields: Any = None, **more: Any) -> dict[str, Any]:
    return given.render(Record(rid, "a1", fields or FIELDS, 1, 0, 0, **more)).fields


def redacted(name: str = "p", template: str = "[a-z]{8}@example.org") -> AccessPolicy:
    return policy(name, fields={"email": {"valueType": "redacted", "format": template}})


def test_the_example_shows_what_it_says():
    given = rights(read_policy("support", EXAMPLE))
    fields = shown(given)
    assert re.fullmatch(r"[a-z]{8}@example\.org", fields.pop("email"))
    assert fields == {
        "id": "a1",
        "phone": "+** ** ** 34",
        "city": "Lund",
        "region": "north",
        "age": 40,
    }
    assert given.actions == {Act.READ, Act.WRITE}
    assert given.redacted_fields == ["email", "phone"]
    assert (given.acl, given.firewall) == ("https://app.example.com/allowed", "mask")


def test_a_hidden_field_is_not_in_the_view_and_nothing_can_be_asked_of_a_redacted_one():
    view = rights(read_policy("support", EXAMPLE)).view
    assert view is not None
    assert [field.name for field in view.fields] == [
        "id", "email", "phone", "city", "region", "secret", "age",
    ]  # fmt: skip
    assert view.field("email").storage is Storage.ENCRYPTED
    assert not view.field("email").partial_match
    assert view.field("city") is SCHEMA.field("city")
    assert "redacted" in view.field("email").no_query_reason


def test_policies_of_another_schema_give_nothing_and_without_any_nothing_is_allowed():
    for given in (rights(), rights(read_policy("p", {"schema": "other", "actions": ["read"]}))):
        assert (given.actions, given.creates, shown(given)) == (frozenset(), False, {})
        assert not given.outside().actions


def test_policies_add_up_and_the_most_generous_shows_the_field():
    hidden = policy(
        "a",
        fields={"email": "hidden", "phone": "hidden", "city": "hidden"},
        rows={"filter": {"region": "north"}},
    )
    masked = policy(
        "b",
        actions=["read", "write"],
        fields={"email": "masked", "phone": "hidden"},
        rows={"filter": {"region": "south"}},
    )
    given = rights(hidden, redacted("c"), masked)
    assert given.actions == {Act.READ, Act.WRITE}
    assert shown(given)["email"] == "***@*******.***"
    assert shown(given)["phone"] == FIELDS["phone"]
    assert given.rows == ()  # one of them narrows nothing
    (rows,) = rights(hidden, masked).rows
    assert rows == AnyOf(((Equals("region", ("north",)),), (Equals("region", ("south",)),)))
    assert "phone" not in shown(rights(hidden, masked))


def test_a_policy_for_writing_alone_opens_nothing_to_readers():
    reading = policy(
        "a", fields={"email": "masked", "phone": "hidden"}, rows={"filter": {"region": "north"}}
    )
    both = rights(reading, policy("b", actions=["write"]))
    assert both.actions == {Act.READ, Act.WRITE}
    assert (shown(both), both.rows) == (shown(rights(reading)), rights(reading).rows)
    writing = rights(
        policy("b", actions=["write"], fields={"phone": "hidden"}), policy("c", actions=["delete"])
    )
    assert writing.view is not None
    assert "phone" in {field.name for field in writing.view.fields}


def test_a_policy_for_reading_opens_nothing_to_writers():
    everything, north = policy("a"), {"filter": {"region": "north"}}
    own = rights(everything, policy("b", actions=["write", "delete"], rows=north))
    (only,) = (AnyOf(((Equals("region", ("north",)),),)),)
    assert own.rows == own.doing([Act.READ]).rows == ()
    assert own.doing([Act.WRITE]).rows == own.doing([Act.DELETE]).rows == (only,)
    assert own.doing([Act.READ, Act.WRITE]).rows == (only,)
    assert own.outside().doing([Act.WRITE]).rows == (only,)
    apart = rights(policy("a", actions=["write"], rows=north), policy("b", actions=["delete"]))
    assert [apart.doing([act]).rows for act in (Act.WRITE, Act.DELETE)] == [(only,), ()]


def test_of_one_policy_the_same_rows_count_for_every_action():
    one = policy(actions=["read", "write", "delete"], rows={"filter": {"region": "north"}})
    for given in (rights(one), rights(policy(actions=["read"])), rights(policy(actions=["write"]))):
        assert not given.changing
        assert all(given.doing([act]) is given for act in Act)


def test_a_filter_endpoint_of_one_policy_is_asked_for_all_and_two_different_ones_allow_nothing():
    one, other = policy("a", external_acl="https://a/"), policy("b", external_acl="https://b/")
    assert rights(one, policy("c")).acl == "https://a/"
    assert rights(one, one).acl == "https://a/"
    assert not rights(one, other).actions


def test_the_firewall_keeps_out_if_one_policy_does():
    block, mask, none = (
        policy("a", firewall={"mode": "block"}),
        policy("b", firewall={"mode": "mask"}),
        policy("c"),
    )
    assert (firewall([mask, none]), firewall([mask, block]), firewall([none])) == (
        "mask",
        "block",
        None,
    )


def test_a_star_stands_for_every_field_that_is_not_named():
    hidden = rights(policy(fields={"*": "hidden", "city": "clear", "phone": "masked"}))
    assert shown(hidden) == {"id": "a1", "city": "Lund", "phone": "+** ** ** **"}
    redacted_all = rights(policy(fields={"*": {"valueType": "redacted", "format": "[a-z]{9}"}}))
    assert shown(redacted_all).keys() == {"id", "email", "phone", "city", "region"}
    assert (
        shown(rights(policy(fields={"*": "hidden"}), policy("q", fields={"email": "masked"})))[
            "age"
        ]
        == 40
    )


@table("text", ["?!", "---", "+", " ", "*", "-" * 40])
def test_a_value_of_signs_alone_is_masked_whole(text):
    given = rights(
        policy(fields={"phone": {"valueType": "masked", "mask": {"first": 1, "char": "#"}}})
    )
    assert shown(given, fields={"id": "a1", "phone": text})["phone"] == "#" * len(text)


# ---------------------------------------------------------------------- redacted values


def test_a_redacted_value_is_stable_and_another_one_in_each_record_field_policy_and_template():
    given = rights(redacted())
    email = shown(given)["email"]
    assert email == shown(given)["email"] == shown(rights(redacted()))["email"]
    assert (
        email == shown(given, fields={**FIELDS, "email": "somebody else"})["email"]
    )  # the value itself has no part in it
    others = {
        shown(given, rid=2)["email"],
        shown(given, eras={"email": 2})["email"],
        shown(rights(redacted("q")))["email"],
        shown(rights(redacted(template="[a-y]{8}@example.org")))["email"],
        shown(granted([redacted()], SCHEMA, Keyset.create("default").hasher))["email"],
    }
    assert len(others | {email}) == 6


def test_every_character_of_an_alphabet_comes_up_about_as_often():
    given = rights(redacted(template="[abc]{1}"))
    seen = [shown(given, rid=rid)["email"] for rid in range(1, 3001)]
    assert all(850 < seen.count(letter) < 1150 for letter in "abc")


def test_a_long_template_is_filled_whole():
    given = rights(redacted(template="[0-9]{250}"))
    text = shown(given)["email"]
    assert re.fullmatch("[0-9]{250}", text)
    assert len(set(text[:125])) > 5
    assert len(set(text[125:])) > 5


def test_an_earlier_text_of_a_template_with_few_texts_is_a_value_that_somebody_wrote():
    record = Record(1, "a1", FIELDS, 70, 0, 0, eras={"email": 70})
    for template, recognised in (("[0-9]{4}", False), ("[a-z]{8}@example.org", True)):
        veil = rights(redacted(template=template)).veils["email"]
        now, before = (veil.show(record.rid, era, "") for era in (70, 69))
        assert (veil.renders(record, "email", now), veil.renders(record, "email", before)) == (
            True,
            recognised,
        )


def test_of_several_values_each_has_its_own():
    given = rights(redacted())
    one, two = shown(given, fields={"email": ["a", "b"]}, eras={"email": [3, 4]})["email"]
    assert one != two
    assert [one] == shown(given, fields={"email": ["x"]}, eras={"email": [3]})["email"]
    assert two == shown(given, fields={"email": "x"}, eras={"email": [4]})["email"]


def test_no_value_stays_no_value():
    assert shown(rights(redacted()), fields={"id": "a", "email": None}) == {
        "id": "a",
        "email": None,
    }


# ---------------------------------------------------------------------- a schema that has changed since


@table("how", ["masked", {"valueType": "redacted", "format": "[a-z]{8}"}])
def test_what_cannot_be_shown_so_any_more_is_hidden(how):
    given = rights(policy(fields={"age": how, "gone": "hidden"}))
    assert "age" not in shown(given)
    assert given.redacted_fields == []


def test_rows_that_cannot_be_asked_any_more_hold_for_no_record():
    assert rights(policy(rows={"filter": {"gone": 1}})).rows == (AnyOf(()),)


def test_a_primary_key_is_always_shown():
    assert (
        shown(
            rights(
                AccessPolicy("p", "contact", (Act.READ,), policy(fields={"email": "hidden"}).fields)
            )
        )["id"]
        == "a1"
    )
    assert shown(rights(policy(fields={"id": "hidden"})))["id"] == "a1"


def test_where_a_required_field_is_hidden_no_record_can_be_made():
    from proxy.model.schema_document import read_definition

    schema = read_definition(
        "contact",
        {"fields": {"id": {"type": "primary_key"}, "a": {"type": "string", "required": True}}},
    )
    assert not rights(policy(fields={"a": "hidden"}), schema=schema).creates
    assert rights(policy(fields={"a": "masked"}), schema=schema).creates


# ---------------------------------------------------------------------- outside of the country


def test_outside_nothing_is_shown_in_the_clear():
    given = rights(read_policy("support", EXAMPLE))
    outside = given.outside()
    assert shown(outside)["email"] == shown(given)["email"]
    assert {**shown(outside), "email": ""} == {
        "id": "a1",
        "email": "",
        "phone": "+** ** ** 34",
        "city": "********",
        "region": "********",
    }
    assert (outside.actions, outside.rows, outside.acl) == (given.actions, given.rows, given.acl)
    assert not outside.files
    assert outside.view is not None
    assert all(
        field.storage is Storage.ENCRYPTED for field in outside.view.fields if field.name != "id"
    )
    assert outside.creates  # what is not shown can be sent all the same


def test_a_client_without_policies_sees_no_more_from_outside():
    outside = full_rights(SCHEMA).outside()
    assert shown(outside) == {
        "id": "a1",
        **dict.fromkeys(("email", "phone", "city", "region"), "********"),
    }
    assert outside.actions == frozenset(Act)
    assert shown(full_rights(SCHEMA)) == FIELDS


ACL = "https://app.example.com/allowed"
MASKED = {"valueType": "masked", "mask": {"last": 2}}
NARROW = policy(
    "narrow", actions=["read", "write"], fields={"email": "hidden", "phone": MASKED},
    rows={"filter": {"region": "north"}},
)  # fmt: skip


@table(
    "own, other, more",
    [
        ([policy()], [policy()], None),
        ([policy()], [NARROW], "the actions read, write"),
        ([policy(actions=["read", "write"])], [NARROW], None),
        ([NARROW], [policy(rows={"filter": {"region": "north"}})], "the field email"),
        ([NARROW], [policy(fields={"email": "hidden", "phone": "hidden"})], "rows"),
        ([NARROW], [policy(fields={"email": "hidden", "phone": {"valueType": "masked", "mask": {"last": 4}}})],
         "the field phone"),
        ([policy(fields={"*": "hidden", "city": "clear"})], [policy(fields={"city": "clear"})],
         "fields that no policy names"),
        ([policy()], [read_policy("p", {"schema": "other", "actions": ["read"]})], "the actions read"),
        ([policy(external_acl=ACL)], [policy()], "records that a filter endpoint or a firewall guards"),
        ([policy()], [policy(external_acl=ACL)], None),
        ([policy(firewall={"mode": "block"})], [policy()], "callers from outside the country"),
        ([policy()], [policy(firewall={"mode": "mask"})], "callers from outside the country"),
        ([policy(purpose="any")], [policy()], "requests that say no purpose,"),
        ([policy(purpose="any")], [policy(purpose=["fraud"])], None),
        ([policy(purpose=["fraud", "audit"])], [policy(purpose=["fraud"])], None),
        ([policy(purpose=["fraud"])], [policy(purpose="any")], "requests that say no purpose,"),
        ([policy(purpose=["fraud"])], [policy(purpose=["fraud", "fun"])], "requests that say no purpose,"),
        # one that lets nothing be read would be shown a write's answer in the clear
        ([policy("r", fields={"email": "hidden"}), policy("w", actions=["write"])],
         [policy("w", actions=["write"])], "the field email"),
    ],
)  # fmt: skip
def test_what_other_policies_allow_beyond_is_named(own, other, more):
    beyond = excess(own, other)
    assert (beyond or "").removesuffix(" of the schema contact").removesuffix(
        " of the schema other"
    ) == (more or "")


SIGHTS = ("clear", "hidden", MASKED, {"valueType": "redacted", "format": "[a-z]{8}"})
POLICIES = st.builds(
    lambda name, actions, fields, rows: policy(
        name, actions=actions, fields=fields, **({"rows": {"filter": rows}} if rows else {})
    ),
    st.sampled_from(("a", "b", "c")),
    st.lists(st.sampled_from(list(Act)), min_size=1, unique=True).map(lambda acts: [*map(str, acts)]),
    st.dictionaries(st.sampled_from(("email", "city", "*")), st.sampled_from(SIGHTS)),
    st.sampled_from((None, {"region": "north"}, {"age": 40})),
)  # fmt: skip
SETS = st.lists(POLICIES, min_size=1, max_size=3, unique_by=lambda one: one.name)


@drawn(SETS, SETS)
@examples(200)
def test_what_is_within_gives_no_right_that_ones_own_do_not(own, other):
    """Whatever is told to be within: its actions, fields and rows are those of one's own rights."""
    if excess(own, other) is not None:
        return
    mine, theirs = rights(*own), rights(*other)
    assert theirs.actions <= mine.actions
    assert {name for name in FIELDS if theirs.shows_value(name)} <= {
        name for name in FIELDS if mine.shows_value(name)
    }
    assert theirs.names <= mine.names
    rows: list[dict[str, Any]] = [
        {"region": "north"},
        {"age": 40},
        {"region": "north", "age": 40},
        {"region": "x", "age": 1},
    ]
    for act in sorted(theirs.actions):
        for fields in rows:
            assert not there(theirs, act, fields) or there(mine, act, fields)


def there(given: Rights, act: Act, fields: dict[str, Any]) -> bool:
    """Whether a record of these fields is there for that action."""
    tests = given.doing((act,)).rows
    return all(
        any(
            all(fields.get(test.field) in test.values for test in part if isinstance(test, Equals))
            for part in any_of.alternatives
        )
        for any_of in tests
        if isinstance(any_of, AnyOf)
    )
