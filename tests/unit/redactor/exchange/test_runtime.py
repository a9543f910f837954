import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import RecordKeys, Schema, records_schema
from proxy.redactor.exchange.matcher import carries
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import (
    VaultRules,
    bind_earlier,
    bind_rules,
    recipe,
    refuse_unfit,
    unfit_fields,
)
from proxy.redactor.load import load_text
from proxy.redactor.rules import Match
from proxy.vault.proxied.hosted import Hosted
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import open_catalog
from tests.support.audit import audit_services
from tests.support.catalogs import schema
from tests.support.exchanges import FIELDS, USUAL, Desk, desk, rule_text
from tests.support.rules import with_fields
from tests.support.table import table


async def test_a_request_is_matched_with_what_found_it():
    one = await desk()
    endpoint, match = one.runtime.match("GET", "any.example", b"/p/1", ())
    assert endpoint.name == "app"
    assert isinstance(match, Match)
    assert (match.operation.label, match.params, match.scope) == (
        "GET /p/{id}",
        {"id": "1"},
        one.runtime,
    )
    assert one.runtime.match("GET", "any.example", b"/elsewhere", ()) == (endpoint, None)


async def test_no_endpoint_is_not_found():
    text = rule_text("{match: POST /p, create: p}").replace(
        "{name: app,", "{name: app, host: [app.example],"
    )
    one = await desk()
    runtime = await bind_rules(load_text(text), one.vault, one.metrics, audit_services())
    with pytest.raises(VaultError) as caught:
        runtime.match("GET", "other.example", b"/p", ())
    assert caught.value.code is Code.NOT_FOUND


KEPT = rule_text(
    "{match: POST /p, create: p}", fields=("email: {kind: email, keep_as: key3}",)
).replace("fields:", "schema: records\n    fields:")


async def test_what_rules_collect_may_stand_among_records():
    one = await desk()
    catalog = await open_catalog(one.vault, lambda error: None, (records_schema(),))
    runtime = await bind_rules(load_text(KEPT), one.vault, one.metrics, audit_services(), catalog)
    (joined,) = runtime.joined.values()
    assert isinstance(joined.collection, Hosted)
    assert joined.collection.table == catalog.records("records").collection.table
    assert [declared.origin for declared in catalog.schemas()] == [Origin.BUILTIN]
    # as a trial of the rules does
    alone = await bind_rules(load_text(KEPT), one.vault, one.metrics, audit_services())
    assert not isinstance(next(iter(alone.joined.values())).collection, Hosted)


PLAIN = records_schema(RecordKeys(plain=frozenset(("key3",))))


@table("before", [records_schema(), PLAIN])
async def test_rules_do_not_keep_values_in_keys_that_settings_keep_otherwise(before: Schema):
    one = await desk()
    catalog = await open_catalog(
        one.vault, lambda error: None, (before, PLAIN)
    )  # a migration begins, where it is another one
    with pytest.raises(VaultError) as caught:
        await bind_rules(load_text(KEPT), one.vault, one.metrics, audit_services(), catalog)
    assert (caught.value.code, caught.value.details[0].source) == (Code.BAD_RULES, "p.email")
    await catalog.close()


async def test_rules_wait_until_keys_are_kept_as_they_need():
    one = await desk()
    catalog = await open_catalog(one.vault, lambda error: None, (PLAIN, records_schema()))
    assert catalog.declared("records").change is not None
    await bind_rules(load_text(KEPT), one.vault, one.metrics, audit_services(), catalog)
    assert catalog.declared("records").change is None
    await catalog.close()


@table("name", [b"X-HTTP-Method-Override", b"x-http-method", b"X-METHOD-override"])
@table("method", [b" patch ", b"PAT\xffCH"])
async def test_a_method_in_a_header_counts(name, method):
    one = await desk()
    _, match = one.runtime.match("POST", "a", b"/p/1", ((b"X-Other", b"PUT"), (name, method)))
    assert isinstance(match, Match)
    assert match.operation.label == "PATCH /p/{id}"


@table(
    "headers",
    [
        ((b"X-HTTP-Method-Override", b"PATCH"), (b"X-HTTP-Method-Override", b"DELETE")),
        ((b"X-HTTP-Method", b"GET"), (b"X-Method-Override", b"PATCH")),
    ],
)
async def test_several_methods_in_headers_are_refused(headers):
    one = await desk()
    with pytest.raises(VaultError) as caught:
        one.runtime.match("POST", "a", b"/p/1", headers)
    assert caught.value.code is Code.BAD_REQUEST
    same = tuple((name, b"PATCH") for name, _ in headers)
    assert one.runtime.match("POST", "a", b"/p/1", same)[1] is not None


async def test_a_method_in_the_body_counts_like_one_in_a_header():
    in_force = VaultRules((await desk()).runtime)
    assert in_force.overridable("a", b"/p/1")
    assert not in_force.overridable("a", b"/elsewhere")
    _, created = in_force.match("POST", "a", b"/p", ())
    assert isinstance(created, Match)
    assert not in_force.may_change_operation(created, b"/p")
    assert in_force.may_change_operation(created, b"/p?email=x")
    _, match = in_force.match("POST", "a", b"/p/1", (), "PATCH")
    assert isinstance(match, Match)
    assert match.operation.label == "PATCH /p/{id}"
    with pytest.raises(VaultError) as caught:
        in_force.match("POST", "a", b"/p/1", ((b"X-HTTP-Method-Override", b"GET"),), "PATCH")
    assert caught.value.code is Code.BAD_REQUEST


async def test_requests_under_way_keep_the_rules_that_matched_them():
    one = await desk()
    in_force = VaultRules(one.runtime)
    _, match = in_force.match("GET", "a", b"/p/1", ())
    assert isinstance(match, Match)
    in_force.runtime = await bind_rules(
        load_text(rule_text("{match: POST /p, create: p}")),
        one.vault,
        one.metrics,
        audit_services(),
    )
    assert in_force.match("GET", "a", b"/p/1", ())[1] is None
    exchange = in_force.exchange(match)
    assert isinstance(exchange, RuleExchange)
    assert exchange._plan.operation is match.operation


async def test_the_vault_is_told_what_an_entity_asks_of_it():
    entity = load_text(
        rule_text('{match: GET /p, read: p, response: {each: "$[*]"}}', fields=FIELDS[:2])
    ).entities[0]
    made = recipe(entity)
    assert (made.schema, set(made.shapes), made.expires, made.addressed) == (
        entity.schema,
        {"name", "email"},
        None,
        False,
    )
    addressed = load_text(rule_text('{match: "GET /p/{id}", read: p}')).entities[0]
    assert recipe(addressed).addressed


async def test_rules_that_the_vault_refuses_are_not_joined():
    one = await desk()
    one.store.fail("ensure")
    one.store.fail("put_note")
    with pytest.raises(VaultError):
        await bind_rules(
            load_text(rule_text("{match: POST /p, create: p}", fields=("other: {kind: text}",))),
            one.vault,
            one.metrics,
            audit_services(),
        )


async def test_what_rules_collect_is_in_the_catalog_once_they_are_joined():
    one = await desk()
    catalog = await open_catalog(one.vault, lambda error: None)
    await bind_rules(one.runtime.rules, one.vault, one.metrics, audit_services(), catalog)
    (declared,) = catalog.schemas()
    assert (declared.schema.name, declared.origin, declared.records.collects("1")) == (
        "p",
        Origin.RULES,
        True,
    )


async def test_what_rules_of_before_write_is_found_by_the_fields_of_those_in_force():
    send = 'via: vault, send: {param: ids, none: "-1"}'
    search = f"n: {{field: name, {send}}}, e: {{field: email, {send}}}"
    listed = 'response: {each: "$[*]", id: $.id}'
    fields = ("name: {kind: name, find: [partial]}", "email: {kind: email, find: [exact]}")
    text = rule_text(USUAL[0], fields=("name: {kind: name}", "email: {kind: email}"))
    fresh = rule_text(
        USUAL[0], f"{{match: GET /p, read: p, query: {{{search}}}, {listed}}}", fields=fields
    )
    one = await desk()
    catalog = await open_catalog(one.vault, lambda error: None)
    services = (one.vault, one.metrics, audit_services(), catalog)
    older = await bind_rules(load_text(text), *services)
    newer = await bind_rules(load_text(fresh), *services)
    await catalog.filling.done()
    recalled = await bind_earlier(load_text(text), *services)
    for number, one.runtime in enumerate((older, newer, recalled), 1):
        await one.create({"name": f"Zorbina {number}00", "email": f"z{number}@x.example"}, number)
        one.runtime = newer
        for query in (f"n=bina%20{number}", f"e=z{number}@x.example"):
            sent = (await one.send(f"GET /p?{query}")).sent.target
            assert sent == b"/p?ids=%d" % number
    assert one.vault.collections() == (newer.collections["p"],)


async def test_rules_that_take_the_name_of_another_schema_are_not_joined():
    one = await desk()
    catalog = await open_catalog(one.vault, lambda error: None)
    await catalog.apply(schema("p"), Origin.API)
    table = catalog.records("p").collection.columns
    with pytest.raises(VaultError) as caught:
        await bind_rules(one.runtime.rules, one.vault, one.metrics, audit_services(), catalog)
    assert caught.value.code is Code.BAD_RULES
    assert (catalog.records("p").collection.columns, catalog.declared("p").origin) == (
        table,
        Origin.API,
    )


@table("name", [b"X-HTTP-Method-Override", b"X_HTTP_METHOD_OVERRIDE", b"x-http_method-override"])
async def test_a_method_in_a_header_counts_however_its_name_is_spelled(name):
    one = await desk()
    assert one.runtime.match("POST", "a", b"/p/1", ((name, b"patch, PATCH"),))[1] is not None
    assert one.runtime.match("POST", "a", b"/p/1", ((b"Y" + name, b"PATCH"),))[1] is None


@table("name", [b"X-Original-URL", b"x_rewrite_url"])
async def test_an_address_in_a_header_may_not_lead_to_another_rule(name):
    one = await desk()
    for target, address in (
        (b"/elsewhere", b"/p/1"),
        (b"/p", b"/p/1"),
        (b"/elsewhere", b"https://a/p?x=1"),
    ):
        with pytest.raises(VaultError) as caught:
            one.runtime.match("GET", "a", target, ((name, address),))
        assert caught.value.code is Code.BAD_REQUEST
    assert one.runtime.match("GET", "a", b"/p/1", ((name, b"/p/2"),))[1] is not None
    assert one.runtime.match("GET", "a", b"/elsewhere", ((name, b"/another"),))[1] is None


# ---- kept


def entities(more: str = ""):
    return load_text(
        with_fields(f"email: {{kind: email, keep_as: key3{more}}}", entity="schema: records")
    ).entities


def test_a_key_that_is_hashed_takes_any_value():
    refuse_unfit(entities(), records_schema())
    refuse_unfit(entities(", stored: plain"), records_schema())
    assert (
        unfit_fields(
            load_text(with_fields("key3: {kind: email}")).entities,
            records_schema(RecordKeys(frozenset(("key3",)))),
        )
        == ()
    )


@table(
    ("keys", "word"),
    [
        (RecordKeys(plain=frozenset(("key3",))), "stored: plain"),
        (RecordKeys(partial_match=frozenset(("key3",))), "parts"),
    ],
)
def test_a_key_that_is_kept_otherwise_is_told(keys: RecordKeys, word: str):
    with pytest.raises(VaultError) as caught:
        refuse_unfit(entities(), records_schema(keys))
    assert caught.value.code is Code.BAD_RULES
    assert [detail.source for detail in caught.value.details] == ["person.email"]
    assert word in caught.value.details[0].text
    if keys.plain:
        refuse_unfit(entities(", stored: plain"), records_schema(keys))


# ---- referring


ANN = "Ann@Wexlomere.example"


async def searched(one: Desk) -> bytes:
    """What the application is asked for when somebody searches for Ann."""
    return (await one.send(f"GET /p?email={ANN}")).sent.target


async def referred(one: Desk, address: bytes, name: bytes = b"Referer") -> bytes:
    found = await VaultRules(one.runtime).redact_headers(
        one.runtime.rules.endpoints[0], "app", ((b"Accept", b"*/*"), (name, address))
    )
    assert found[0] == (b"Accept", b"*/*")
    return found[1][1]


@table("before", [b"https://crm.example:8443", b"http://app", b"//app", b""])
@table("name", [b"Referer", b"referer", b"X-Original-URL", b"X-Forwarded-Uri"])
async def test_the_page_that_a_search_led_to_is_told_with_tokens(before, name):
    one = await desk()
    wanted = await searched(one)
    assert await referred(one, before + b"/p?page=2&email=" + ANN.encode() + b"#top", name) == (
        before + wanted.replace(b"?", b"?page=2&")
    )


async def test_tokens_in_it_stay():
    one = await desk()
    token = (await one.create({"email": ANN}))["email"].encode()
    assert await referred(one, b"http://app/p?email=" + token) == b"http://app/p?email=" + token


@table(
    "address",
    [b"http://app/p/17?email=x@y.example", b"http://app/elsewhere?email=x@y.example", b"about:blank?", b"?", b"http://app?email=1"],
)  # fmt: skip
async def test_what_no_search_named_stays_as_it_came(address):
    assert await referred(await desk(), address) == address


async def test_fields_without_an_address_are_not_touched():
    one = await desk()
    headers = ((b"Referer", b"http://app/p"), (b"X-Question", b"is p?email=x@y.example"))
    assert not carries(headers)
    assert await one.runtime.readdress_referer("app", headers) is headers


@table("path", [b"/p/%78", b"/p"])  # two readings; no token of that shape
async def test_what_cannot_be_swapped_goes_without_its_query(path):
    one = await desk(
        '{match: GET /p, read: p, query: {n: {field: nr}}, response: {each: "$[*]", id: $.id}}',
        '{match: "GET /p/{id}", read: p}',
        '{match: "GET /p/x", read: p}',
        fields=("nr: {kind: number, token: {shape: numeric, same: true}}",),
    )
    assert await referred(one, b"http://app" + path + b"?n=nobody") == b"http://app" + path
