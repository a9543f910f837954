import hashlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from proxy.api.attachments import upload_attachment
from proxy.api.context import COMMON_STATUSES, Access, is_repeatable
from proxy.api.legacy_records import legacy_version_json, record_json
from proxy.api.openapi import CONTENT_SECURITY_POLICY, interface_document, render, source
from proxy.api.operation_table import OPERATIONS, POP_OPERATIONS
from proxy.api.request import parse_json
from proxy.api.wire import encode_json
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.quotas import Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act, write_policy
from proxy.model.policy_reader import MOST_ORIGINS, MOST_POLICY_FIELDS, MOST_READABLE, read_policy
from proxy.model.query import MetricFunction, Op
from proxy.model.record import DEFAULT, DEFAULTS, IDENT, KeyKind, Record
from proxy.model.record_reader import read_drafts
from proxy.model.rights import FULL as FULL_RIGHTS
from proxy.model.schema import (
    BODY,
    IS_ENCRYPTED,
    PRECOMMIT_BODY,
    STATED_VERSION,
    FieldType,
    Storage,
    records_schema,
)
from proxy.model.schema_change import Effect
from proxy.model.schema_document import LONGEST_STRING, MOST_SCHEMA_FIELDS, read_definition
from proxy.model.template import LONGEST_TEMPLATE_TEXT
from proxy.net.client_address import Trusted
from proxy.net.problem import problem
from proxy.telemetry.metrics import METRICS
from proxy.tokenization import strategy_names
from proxy.vault.job import JobState
from proxy.vault.maintenance.key_usage import USAGE_KINDS
from proxy.vault.schema_store import Origin, Phase
from tests.support.api import Client, NoSchemas, no_policies, services, serving
from tests.support.examples import CONTACT, FILE, RECORDS
from tests.support.openapi import resolved
from tests.support.table import table
from tests.support.tree import ROOT
from tests.unit.model.test_policy_reader import EXAMPLE

ABROAD = {"X-Forwarded-For": "8.8.8.8"}


@asynccontextmanager
async def documented(**given: Any) -> AsyncIterator[Client]:
    schema = read_definition("contact", CONTACT)
    declared = SimpleNamespace(schema=schema, records=SimpleNamespace(schema=schema))
    catalog = SimpleNamespace(schemas=lambda: [declared], using=NoSchemas().using)
    policies = no_policies()
    hidden = {"schema": "contact", "actions": ["read"], "fields": {"email": "hidden"}}
    await policies.put(read_policy("support", hidden))
    await policies.put(read_policy("abroad", {**hidden, "firewall": {"mode": "mask"}}))
    await policies.put(
        read_policy(
            "elsewhere", {"schema": "other", "actions": ["read"], "firewall": {"mode": "mask"}}
        )
    )
    async with serving(services(catalog=catalog, policies=policies, **given)) as client:
        yield client


@pytest.fixture
async def client():
    async with documented() as client:
        yield client


async def test_the_document_of_the_interface_is_open(client: Client):
    answer = await client("GET", "/openapi.json", "")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json["openapi"] == "3.1.0"
    assert not [name for name in answer.json["components"]["schemas"] if name.startswith("model.")]


async def test_with_a_token_it_has_the_schemas_that_there_are(client: Client):
    document = (await client("GET", "/openapi.json")).json
    assert "model.contact" in document["components"]["schemas"]
    assert (await client("GET", "/openapi.json", "nobody")).status == 401


async def test_a_client_under_policies_is_shown_what_it_may_use(client: Client):
    document = (await client("GET", "/openapi.json", "under:support")).json
    assert "email" not in document["components"]["schemas"]["model.contact"]["properties"]
    assert (
        "email"
        in (await client("GET", "/openapi.json")).json["components"]["schemas"]["model.contact"][
            "properties"
        ]
    )
    nothing = (await client("GET", "/openapi.json", "under:gone")).json
    assert "model.contact" not in nothing["components"]["schemas"]


async def test_who_is_kept_out_of_the_country_learns_of_no_schema():
    firewall = Firewall(Mode.BLOCK, "se", (), None, Trusted(()))
    async with documented(firewall=firewall) as client:
        assert (await client("GET", "/openapi.json", "", headers=ABROAD)).status == 200
        for kept_out in ("writer", "under:support", "under:gone"):
            answer = await client("GET", "/openapi.json", kept_out, headers=ABROAD)
            assert (answer.status, answer.json["code"]) == (403, "outside_country"), kept_out
        for let_in, shown in (("under:abroad", True), ("under:elsewhere,support", False)):
            answer = await client("GET", "/openapi.json", let_in, headers=ABROAD)
            assert answer.status == 200
            assert ("model.contact" in answer.json["components"]["schemas"]) is shown, let_in
        assert (
            "model.contact" in (await client("GET", "/openapi.json")).json["components"]["schemas"]
        )


@pytest.mark.usefixtures("limits_clock")
async def test_who_shows_a_token_is_counted():
    one = RateLimit(RatePolicy("credential", 1, 1))
    async with documented(quotas=Quotas(credential=one)) as client:
        assert [(await client("GET", "/openapi.json")).status for _ in range(2)] == [200, 429]
        assert (await client("GET", "/openapi.json", "")).status == 200


async def test_the_page_and_its_files_may_speak_with_this_listener_alone(client: Client):
    page = await client("GET", "/docs", "")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert page.body.startswith(b"<!doctype html>")
    assert b"<script>" not in page.body
    assert b"<style" not in page.body
    files = re.findall(r'(?:src|href)="docs/([^"]+)"', page.body.decode())
    assert len(files) == 4
    for answer in (page, *[await client("GET", f"/docs/{name}", "") for name in files]):
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


async def test_the_page_is_found_with_a_slash_behind_it(client: Client):
    answer = await client("GET", "/docs/", "")
    assert (answer.status, answer.body) == (200, (await client("GET", "/docs", "")).body)


@pytest.mark.parametrize("name", ["LICENSE", "openapi.yaml", "..%2fopenapi.yaml", "SHA256SUMS"])
async def test_only_files_of_the_page_are_given_out(client: Client, name: str):
    assert (await client("GET", f"/docs/{name}", "")).status == 404


def test_the_files_of_the_viewer_are_those_of_its_release():
    folder = ROOT / "proxy/api/viewer"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    assert {"LICENSE", "NOTICE", "swagger-ui-bundle.js"} <= listed.keys()
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


DESCRIBED = source(OPERATIONS).described
BARE = interface_document(OPERATIONS)
FULL = interface_document(OPERATIONS, [read_definition("contact", CONTACT)])
SCHEMAS = BARE["components"]["schemas"]
SHOWN = [
    (f"{method} {path}", operation)
    for path, methods in BARE["paths"].items()
    for method, operation in methods.items()
]


def references(node: object) -> set[str]:
    """Every reference in a document."""
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def fits(schema: Any, value: object) -> bool:
    assert schema is not None
    return bool(Draft202012Validator({**schema, "components": FULL["components"]}).is_valid(value))


def test_the_document_is_not_read_before_somebody_asks_for_it():
    script = "import proxy.api.operation_table, proxy.api.openapi as one; print(one.source.cache_info()[3])"
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, cwd=ROOT, capture_output=True, check=True).stdout == b"0\n"


def test_every_operation_is_described_and_nothing_else_is():
    assert DESCRIBED.keys() == {operation.name for operation in OPERATIONS}
    names = [operation["operationId"] for _, operation in SHOWN]
    assert sorted(names) == sorted(DESCRIBED)


@table("name, described", DESCRIBED.items())
def test_every_description_says_what_why_and_what_comes_back(name, described):
    assert described.summary
    assert described.description.endswith(".")
    assert described.answered.endswith(".")


def test_every_operation_has_an_example_of_its_success():
    without = {"token_slash"}  # it is the one without the slash
    for operation in OPERATIONS:
        statuses = {example.status for example in DESCRIBED[operation.name].examples}
        assert operation.success in statuses or operation.name in without, operation.name
        assert statuses <= {operation.success, *operation.also, *operation.failures}


@table("operation", OPERATIONS)
def test_an_operation_is_shown_with_its_parameters_and_statuses(operation):
    entry = resolved(BARE, BARE["paths"][operation.path][operation.method.lower()])
    named = {(parameter["in"], parameter["name"]) for parameter in entry.get("parameters", ())}
    assert {name for place, name in named if place == "path"} == set(
        re.findall(r"\{(\w+)\}", operation.path)
    )
    assert {name for place, name in named if place == "query"} == set(operation.query)
    conditional = {name for _, name in named} & {"If-Match", "If-None-Match"}
    assert bool(conditional) == (412 in operation.failures)
    statuses = {
        str(operation.success),
        *map(str, (*operation.also, *operation.failures, *COMMON_STATUSES)),
        "5XX",
    }
    assert statuses <= entry["responses"].keys() <= statuses | {"408"}
    assert all(answer["description"].endswith(".") for answer in entry["responses"].values())
    assert ("security" in entry) == (operation.access is Access.OPEN)
    assert ("Idempotency-Key" in {name for _, name in named}) == is_repeatable(operation)


@table("whole", [BARE, FULL])
def test_every_reference_leads_somewhere(whole):
    places = {
        f"#/components/{kind}/{name}"
        for kind, components in whole["components"].items()
        for name in components
    }
    assert references(whole) <= places


def test_no_component_is_there_for_nothing():
    unused = {"Record", "RecordExpiry"}  # the schemas of users refer to them
    for kind in ("schemas", "parameters", "responses"):
        named = {f"#/components/{kind}/{name}" for name in BARE["components"][kind]}
        assert {one.rpartition("/")[2] for one in named - references(BARE)} <= unused


@table(("name", "schema"), FULL["components"]["schemas"].items())
def test_every_component_is_json_schema(name, schema):
    Draft202012Validator.check_schema(schema)


@table("place, operation", SHOWN)
def test_every_example_fits_the_schema_beside_it(place, operation):
    contents = [*operation.get("requestBody", {}).get("content", {}).values()]
    for answer in operation["responses"].values():
        contents += answer.get("content", {}).values()
    for content in contents:
        Draft202012Validator.check_schema(content["schema"])
        for example in content.get("examples", {}).values():
            assert fits(content["schema"], example["value"]), example


def test_schemas_of_users_are_components_and_the_names_that_paths_take():
    schemas = FULL["components"]["schemas"]
    assert schemas["model.contact"]["required"] == ["id"]
    assert schemas["Record"]["anyOf"] == [{"$ref": "#/components/schemas/model.contact"}]
    assert "anyOf" not in SCHEMAS["Record"]


def test_only_operations_on_records_are_bound_to_the_schemas_that_there_are():
    bound = {
        path
        for path, methods in FULL["paths"].items()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter.get("name") == "schema" and "enum" in parameter["schema"]
    }
    assert "/api/models/{schema}" in bound
    assert not [path for path in bound if path.startswith("/api/schemas/")]


def test_the_document_is_json():
    assert json.loads(render(BARE)) == json.loads(json.dumps(BARE))


def test_every_tag_stands_in_one_family_and_the_native_ones_come_first():
    tags = [tag["name"] for tag in BARE["tags"]]
    groups = BARE["x-tagGroups"]
    assert [name for group in groups for name in group["tags"]] == tags
    assert {operation["tags"][0] for _, operation in SHOWN} == set(tags)
    assert "Records" in groups[0]["tags"]
    assert groups[-1]["tags"] == ["Record-based family", "Rehash", "Point of presence"]


MODEL = FULL["components"]["schemas"]["model.contact"]


@table("record", RECORDS)
def test_a_record_fits_the_model_of_its_schema(record):
    assert fits(MODEL, record)
    assert fits(MODEL, {**record, "name": None, "expires_at": "2030-01-01T00:00:00.000Z"})


@table(
    "record",
    [
        {},
        {"id": ""},
        {"id": None},
        {"id": "k" * 129},
        {"id": "k", "other": 1},
        {"id": "k", "age": 1.5},
        {"id": "k", "age": 2**63},
        {"id": "k", "email": "e" * 257},
        {"id": "k", "active": "yes"},
        {"id": "k", "profile": []},
    ],
)
def test_what_the_service_would_refuse_does_not_fit(record):
    assert not fits(MODEL, record)


def test_what_can_be_asked_of_a_field_is_told():
    assert "search_keys" in MODEL["properties"]["email"]["description"]
    assert "search_keys" not in MODEL["properties"]["manager"]["description"]
    assert "cannot be asked" in MODEL["properties"]["name"]["description"]


def test_every_type_and_storage_of_a_field_is_described():
    fields = source(OPERATIONS).fields
    assert fields["types"].keys() == {str(kind) for kind in FieldType}
    assert fields["storage"].keys() == {*map(str, Storage), "partial_match"}


def test_the_records_of_the_examples_fit_their_schema():
    schema = read_definition("contact", CONTACT)
    drafts = read_drafts(schema, parse_json(encode_json(RECORDS)), partial=False, limits=DEFAULTS)
    assert [draft.key for draft in drafts] == ["c-1", "c-2", "c-3"]


def test_an_error_of_the_program_is_a_problem():
    body = json.loads(problem(400, Code.INVALID_INPUT, "No.", (Detail("/a", "Is wrong."),)))
    assert fits(SCHEMAS["Problem"], body)
    del body["code"]
    assert not fits(SCHEMAS["Problem"], body)


# What is written out in the document and stands in the program, too.


def _values(*members: str) -> Any:
    """What stands at that place of the schemas."""
    node: Any = SCHEMAS
    for member in members:
        node = node[member]
    return node


@table(
    ("written", "known"),
    [
        (("Problem", "properties", "code", "enum"), [*map(str, Code)]),
        (("Field", "properties", "type", "enum"), [*map(str, FieldType)]),
        (("Field", "properties", "storage", "enum"), [*map(str, Storage)]),
        (("Schema", "properties", "origin", "enum"), [*map(str, Origin)]),
        (("Migration", "properties", "state", "enum"), [*map(str, Phase), "done", "failed"]),
        (
            ("Changed", "items", "properties", "effect", "enum"),
            [str(Effect.AT_ONCE), str(Effect.REWRITES)],
        ),
        (("Policy", "properties", "actions", "items", "enum"), [*map(str, Act)]),
        (("Policy", "properties", "fields", "maxProperties"), MOST_POLICY_FIELDS),
        (("Policy", "properties", "cors", "properties", "origins", "maxItems"), MOST_ORIGINS),
        (("Fields", "maxProperties"), MOST_SCHEMA_FIELDS),
        (
            ("RehashRules", "additionalProperties", "properties", "strategy", "enum"),
            strategy_names(),
        ),
        (
            (
                "KeyRing", "properties", "data", "items", "properties", "reseal", "properties",
                "state", "enum",
            ),
            [*map(str, JobState)],
        ),
    ],
)  # fmt: skip
def test_what_is_written_out_is_what_the_program_knows(written, known):
    assert _values(*written) == known


def test_the_numbers_in_texts_are_those_of_the_program():
    text = _values("Field", "properties", "max_length", "description")
    assert f"{LONGEST_STRING:,}" in text
    redacted = json.dumps(_values("Visibility"))
    assert f"at most {LONGEST_TEMPLATE_TEXT} characters" in redacted
    assert redacted.count(f'"maximum": {MOST_READABLE},') == 2
    assert "`domicile_alarms_total`" in DESCRIBED["put_bait"].description
    assert "domicile_alarms_total" in METRICS


def test_kinds_of_keys_and_their_uses_are_those_there_are():
    request = DESCRIBED["rotate_key"].request
    assert request is not None
    assert request["properties"]["key"]["enum"] == [str(kind) for kind in KeyKind]
    keys = _values("KeyRing", "properties", "data", "items", "properties", "keys", "items")
    assert keys["properties"]["used_by"]["properties"].keys() == set(USAGE_KINDS)


def test_the_pattern_of_ids_of_environments_is_that_of_the_vault():
    described = DESCRIBED["create_environment"].request
    assert described is not None
    pattern = described["properties"]["environment_id"]["pattern"]
    assert pattern == f"^{IDENT.pattern}$"
    assert re.search(pattern, DEFAULT)


def test_an_aggregation_names_every_function_in_both_spellings():
    for name, more in (("aggregate_records", set()), ("records_aggregate", {"country"})):
        request = DESCRIBED[name].request
        assert request is not None
        whole, *pages = request["anyOf"]
        assert set(whole["properties"]) == {"metrics", "filter", "group_by"} | more
        assert whole["additionalProperties"] is False
        metric = whole["properties"]["metrics"]["additionalProperties"]["properties"]
        assert sorted(metric["func"]["enum"]) == sorted(
            name for one in MetricFunction for name in (one.value, one.value.upper())
        )
        assert [page["required"] for page in pages] == [["next"], ["cursor"]]


def test_comparisons_are_those_of_the_vault():
    assert {op.value for op in Op} <= _values("Condition", "properties").keys()
    instants = _values("InstantFilter", "anyOf")[2]
    assert instants["propertyNames"]["enum"] == [op.value for op in Op]


def test_the_records_family_has_every_field_of_an_answer_and_no_other():
    record = FULL_RIGHTS.render(Record(1, "r", {}, 1, 0, 0))
    answer = record_json(record, "se")
    assert set(_values("KeptRecord", "required")) == answer.keys()
    assert _values("KeptRecord", "properties").keys() == answer.keys()
    example = DESCRIBED["records_create"].examples[0].answer
    assert example.keys() == answer.keys()
    assert (example["key"], example["range_key"]) == (
        example["record_key"],
        example["range_key1"],
    )
    (history,) = DESCRIBED["records_history"].examples
    version = history.answer["data"][0]["record"]
    assert version.keys() == legacy_version_json(record)["record"].keys()


def test_every_field_of_the_records_schema_is_described_with_its_storage():
    for field in records_schema().fields:
        if field.name in (STATED_VERSION, IS_ENCRYPTED):
            continue
        described = _values("RecordToKeep", "properties", field.name)
        encrypted = field.name in (BODY, PRECOMMIT_BODY)
        text = source(OPERATIONS).fields["storage"][field.storage]
        assert encrypted or described["description"].endswith(text), field.name
        assert described.get("maxLength") == (
            None
            if encrypted or field.type is FieldType.INTEGER or field.type is FieldType.DECIMAL
            else DEFAULTS.key
            if field.type is FieldType.PRIMARY_KEY
            else field.max_length or DEFAULTS.string
        ), field.name


def test_a_policy_that_is_read_is_described_and_so_is_what_is_shown():
    assert fits(DESCRIBED["put_policy"].request, EXAMPLE)
    assert fits(DESCRIBED["show_policy"].answer, write_policy(read_policy("support", EXAMPLE)))


@table(
    "change",
    [
        {"actions": []},
        {"actions": ["fly"]},
        {"fields": {"a": "redacted"}},
        {"fields": {"a": {"valueType": "redacted"}}},
        {"fields": {"a": {"valueType": "masked", "mask": {"first": -1}}}},
        {"rows": {"filter": {}}},
        {"firewall": {"mode": "off"}},
        {"cors": {"origins": []}},
        {"more": 1},
    ],
)
def test_a_policy_that_is_refused_is_not_described(change):
    assert not fits(DESCRIBED["put_policy"].request, {**EXAMPLE, **change})
    with pytest.raises(VaultError):
        read_policy("support", {**EXAMPLE, **change})


def test_the_examples_tell_the_hash_and_size_of_the_file_that_is_there():
    (example,) = DESCRIBED["replace_attachment"].examples
    assert (example.answer["hash"], example.answer["size"]) == (
        hashlib.sha256(FILE[1]).hexdigest(),
        len(FILE[1]),
    )


def test_every_upload_says_that_it_takes_a_name_and_needs_one_part():
    uploads = [operation for operation in OPERATIONS if operation.path.endswith("/files")]
    assert upload_attachment in [operation.handler for operation in uploads]
    for operation in uploads:
        described = DESCRIBED[operation.name]
        assert described.headers == ["x-filename"]
        assert "required" not in BARE["components"]["parameters"]["x-filename"]
        assert described.request is not None
        assert SCHEMAS[described.request["$ref"].rpartition("/")[2]]["required"] == ["file"]


def test_examples_of_files_are_those_of_a_record_of_their_family():
    for example in DESCRIBED["records_upload"].examples:
        assert example.path == {"country": "se", "record_key": "r-1"}
    assert DESCRIBED["records_move_files"].examples[0].path == {
        "country": "se",
        "source": "r-1",
        "destination": "r-2",
    }


def test_every_operation_of_the_point_of_presence_names_the_environment_and_shows_it():
    own = {name: one for name, one in DESCRIBED.items() if one.tag == "Point of presence"}
    assert own.keys() == {one.name for one in POP_OPERATIONS if one.name.startswith("pop_")}
    for name, described in own.items():
        assert "x-env-id" in described.headers, name
        assert "x-filename" not in described.headers, name
        assert any("x-env-id" in example.headers for example in described.examples), name
    assert BARE["components"]["parameters"]["x-env-id"]["required"] is True
    assert "X-Encrypted-Storage" in own["pop_write"].headers
    assert {one.headers.get("X-Encrypted-Storage") for one in own["pop_write"].examples} == {
        "true",
        None,
    }


def test_the_cursor_of_an_export_is_there_on_every_page():
    answer = DESCRIBED["export_records"].answer
    assert answer is not None
    assert "next" in answer["properties"]["meta"]["required"]


def test_callers_are_told_what_stays_when_a_function_fails():
    assert "What it wrote until then stays" in DESCRIBED["call_function"].description
