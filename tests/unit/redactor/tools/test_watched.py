import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.redactor.coverage import WatchedMember, joined_members
from proxy.redactor.load import load_text
from proxy.redactor.tools.proposal import propose, propose_from
from proxy.redactor.tools.watched import (
    Observation,
    WatchedPath,
    learn_watched,
    watched_members,
    whole_json,
)
from tests.support.rules import fields_searched
from tests.support.table import table

PERSON = {"id": 7, "fullName": "Ann Quibble", "email": "ann@quibble.example", "city": {"ann": "x"}}
LIST = json.dumps({"total": 2, "items": [PERSON, PERSON]})


def learnt(*paths: WatchedPath) -> str:
    return propose(learn_watched(paths), "crm").text


def test_what_passes_becomes_a_proposal_that_loads():
    create = watched_members(Observation("", json.dumps(PERSON), json.dumps(PERSON)))
    listed = watched_members(Observation("email=ann%40quibble.example&page=2", "", LIST))
    text = learnt(
        WatchedPath("POST", "/contacts", 3, create, ["email"]),
        WatchedPath("GET", "/contacts", 5, listed, ["email"]),
        WatchedPath("DELETE", "/contacts/{id}", 1, [], []),
        WatchedPath("GET", "/{word}/{id}", 1, listed, ["email"]),
        WatchedPath("GET", "/static", 9, [], []),
    )
    (create_rule, list_rule, delete_rule) = load_text(text).operations
    assert (str(create_rule.verb), {*create_rule.entity.fields}) == (
        "create",
        {"fullName", "email"},
    )
    assert fields_searched(list_rule) == {"email": "email"}
    assert str(delete_rule.verb) == "delete"
    assert "met 3 x" in text
    assert "/{part}/{id}, because " in text
    assert '- {match: "GET /static", pass: true}' in text
    assert "uibble" not in text
    assert "ann:" not in text, "a member that might be somebody's name"


def test_a_code_in_place_of_an_address_is_no_reason_to_let_a_request_pass():
    met = watched_members(Observation("", "", json.dumps({"id": 7, "email": "VERIFIED"})))
    text = learnt(WatchedPath("GET", "/settings", 3, met, []))
    assert "pass: true" not in text
    assert "left out: GET /settings, answer the body, because only codes in capitals" in text


def test_forms_uploads_and_queries_are_told_by_their_names():
    form = watched_members(
        Observation("", "email=ann%40quibble.example&ok=1", "<p>ann@quibble.example</p>")
    )
    assert form == [WatchedMember("form", (), ("email",), "email", 1)]
    assert watched_members(Observation("", "--b\r\nContent-Disposition: form-data", "")) == [
        WatchedMember("files", (), (), "", 1)
    ]
    assert joined_members(form, form) == [WatchedMember("form", (), ("email",), "email", 2)]
    assert watched_members(Observation("search=ann@quibble.example", "", "")) == [
        WatchedMember("query", (), ("search",), "email", 1)
    ]


@table("at", range(1, len(LIST)))
def test_a_list_that_is_cut_off_tells_of_the_elements_that_are_whole(at):
    cut = whole_json(LIST[:at])
    whole = LIST[:at].count("}}")
    if whole:
        assert len(json.loads(cut)["items"]) >= whole
    assert all(
        "uibble" not in part
        for one in watched_members(Observation("", "", LIST[:at]))
        for part in one.member
    )


@given(
    st.recursive(
        st.none() | st.text('a\\"{[]},é'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('a"{'), inner),
    ),
    st.data(),
)
def test_whatever_is_cut_off_is_json_or_nothing(document, data):
    text = json.dumps(document)
    cut = whole_json(text[: data.draw(st.integers(0, len(text)))])
    assert whole_json(text) == text
    if cut[:1] in ("{", "[") and cut[-1:] in ("}", "]"):
        json.loads(cut)


def test_a_form_that_was_answered_by_a_redirect_is_proposed_with_the_id_in_it():
    form = watched_members(
        Observation("", "email=ann%40quibble.example", "", "", 303, "/contacts/{id}")
    )
    (create,) = load_text(learnt(WatchedPath("POST", "/contacts", 2, form, ["email"]))).operations
    assert create.response.success == {303}
    assert create.response.id is not None
    assert create.response.id.name == "location"


def test_nothing_met_is_a_fault():
    with pytest.raises(VaultError) as caught:
        learn_watched([WatchedPath("other", "other", 4)])
    assert caught.value.code is Code.BAD_REQUEST


def written(*paths: tuple[str, str]) -> bytes:
    """A coverage file with these endpoints and paths."""
    unknown = [
        {"endpoint": endpoint, "method": "GET", "path": path, "since": 1, "count": 2, "kinds": []}
        for endpoint, path in paths
    ]
    return json.dumps({"unknown": unknown, "ruled": [], "rules": "x"}).encode()


def test_files_of_several_workers_are_one_and_the_endpoint_is_told_apart():
    text = propose_from([written(("crm", "/notes")), written(("crm", "/notes"))], (), None).text
    assert "name: crm" in text
    assert "met 4 x" in text
    several = [written(("crm", "/notes"), ("erp", "/orders"))]
    with pytest.raises(VaultError, match="one of crm, erp"):
        propose_from(several, (), None)
    assert "/notes" not in propose_from(several, (), "erp").text
    for other in (b'{"openapi": "3.0.0"}', b"[1]", b'{"log": {"entries": 1}}', b"openapi: 3"):
        with pytest.raises(VaultError, match="Only HAR files, or only coverage files, may be"):
            propose_from([b'{"log": {"entries": []}}', other], (), None)


def test_several_recordings_are_one():
    paths = ("/api/people/17", "/api/people/18"), ("/api/companies/5", "/api/companies/6")
    files = [
        json.dumps(
            {
                "log": {
                    "entries": [
                        {
                            "request": {"method": "GET", "url": f"http://crm.local:3000{path}"},
                            "response": {
                                "status": 200,
                                "content": {"text": '{"id": 1, "email": "a@x.example"}'},
                            },
                        }
                        for path in some
                    ]
                }
            }
        ).encode()
        for some in paths
    ]
    text = propose_from(files, (), None).text
    assert "GET /api/people/{id}" in text
    assert "GET /api/companies/{id}" in text


#: What no instance writes, and another program may.
ODD = (
    "", "a b", "a\nINJECTED: x", "}}{", '"', "#", "*", "\u2028", "\0", "$.x", "[*]", "..",
    "x" * 9999, "%ff", "<<",
)  # fmt: skip


@table("odd", ODD)
@table("part", ["request", "response", "form", "query", "column", "redirect"])
def test_a_file_that_another_program_wrote_gives_a_proposal_that_loads(odd, part):
    usual = {"part": "request", "owner": [], "member": ["email"], "kind": "email", "count": 1}
    path = {"method": "POST", "path": "/contacts", "count": 1, "kinds": ["email"]}
    members = [{"part": part, "member": [odd]}, {"part": part, "owner": [odd]}]
    strange: list[dict[str, object]] = []
    if part == "request":  # what has no part is tried once
        members.append({"kind": odd})
        strange = [{"kinds": [odd]}, {"path": f"/{odd}"}, {"endpoint": odd}, {"method": odd}]
    several = [{**path, "members": [usual, usual | one]} for one in members]
    for one in [*several, *({**path, **other, "members": [usual]} for other in strange)]:
        both = [one, {**path, "path": "/people", "members": [usual]}]
        text = propose_from([json.dumps({"unknown": both, "ruled": []}).encode()], (), "crm").text
        load_text(text)
        assert not [
            line for line in text.splitlines() if line.startswith(("INJECTED", "  INJECTED"))
        ]


def test_very_many_shapes_are_refused():
    with pytest.raises(VaultError, match="smaller recording"):
        learnt(*[WatchedPath("GET", f"/p{number}", 1) for number in range(2_001)])


@table(
    ("upstreams", "upstream"),
    [
        ({"crm": "http://10.0.0.7:8000", "other": "http://b"}, "http://10.0.0.7:8000"),
        ({"other": "http://b"}, "http://127.0.0.1:3000"),
        ({"crm": "http://ann@b/?x"}, "http://127.0.0.1:3000"),
    ],
)
def test_a_proposal_has_the_address_that_the_instance_was_told(upstreams, upstream):
    met = {"method": "GET", "path": "/people", "count": 1, "endpoint": "crm"}
    content = {"unknown": [met], "ruled": [], "upstreams": upstreams}
    text = propose_from([json.dumps(content).encode()], [], None).text
    assert f'upstream: "{upstream}"' in text
