"""Words of recordings that are nobody's, found without being told."""

import json
from typing import Any

import yaml

from proxy.redactor.load import load_text
from proxy.redactor.tools.proposal import propose_from
from proxy.redactor.tools.public_words import RecordedRequest, public_words
from tests.support.table import table


def person(number: int) -> dict[str, Any]:
    return {
        "firstName": f"Zorbina{number}", "lastName": "Quibble",
        "emailAddress": f"z{number}@wexlomere.example", "mobilePhone": "+46 70 918 27 36",
        "phone2": "+46 70 918 27 37", "addressLine1": f"Flumpergatan {number}",
        "dateOfBirth": "1931-02-27", "nationalId": "19121212-1212",
        "cardNumber": "4111 1111 1111 1111", "favouriteColour": "green", "vip": True,
    }  # fmt: skip


KINDS = {
    "firstName": "name", "lastName": "name", "emailAddress": "email", "mobilePhone": "phone",
    "phone2": "phone", "addressLine1": "text", "dateOfBirth": "date",
    "nationalId": "national_id", "cardNumber": "card",
}  # fmt: skip


def entry(method: str, path: str, sent: Any, answered: Any) -> dict[str, Any]:
    posted = {"mimeType": "application/json", "text": json.dumps(sent)}
    return {
        "request": {
            "method": method, "url": f"http://crm.example{path}",
            **({} if sent is None else {"postData": posted}),
        },
        "response": {
            "status": 200, "headers": [],
            "content": {"mimeType": "application/json", "text": json.dumps(answered)},
        },
    }  # fmt: skip


def recording(base: str) -> bytes:
    people = [{"id": n, **person(n)} for n in (1, 2)]
    entries = [
        *(entry("POST", base, person(n), people[n - 1]) for n in (1, 2)),
        entry("GET", base, None, people),
        *(entry("GET", f"{base}/{n}", None, people[n - 1]) for n in (1, 2)),
        *(entry("PUT", f"{base}/{n}", person(n), people[n - 1]) for n in (1, 2)),
    ]
    return json.dumps({"log": {"entries": entries}}).encode()


@table("base", ["/api/v1/applicants", "/kunder", "/insurance/fahrgaeste"])
def test_a_recording_of_a_usual_application_needs_no_word(base):
    text, left_out = propose_from([recording(base)], (), None)
    rules = yaml.safe_load(text)
    (entity,) = rules["entities"].values()
    assert {name: one["kind"] for name, one in entity["fields"].items()} == KINDS
    assert {one["match"] for one in rules["operations"]} == {
        f"POST {base}", f"GET {base}", f"GET {base}/{{id}}", f"PUT {base}/{{id}}",
    }  # fmt: skip
    assert not any("--word" in str(one) for one in left_out)
    assert load_text(text).entities
    assert not any(one in text for one in ("Zorbina", "Quibble", "wexlomere", "Flumper", "4111"))


def submitted(path: str, number: int) -> dict[str, Any]:
    person = {
        "first_name": "Zorbina",
        "email": f"z{number}@wexlomere.example",
        "address_line1": "x",
    }
    params = [{"name": f"anmalan[{name}]", "value": text} for name, text in person.items()]
    posted = {"mimeType": "application/x-www-form-urlencoded", "params": params}
    location = [{"name": "Location", "value": f"/anmalningar/{number}"}]
    return {
        "request": {"method": "POST", "url": f"http://crm.example{path}", "postData": posted},
        "response": {"status": 302, "headers": location, "content": {"text": ""}},
    }


def test_forms_with_a_name_around_their_members_need_no_word():
    entries = [
        *(submitted("/anmalningar", number) for number in (1, 2)),
        *(submitted(f"/anmalningar/{number}/edit", number) for number in (1, 2)),
    ]
    text, left_out = propose_from([json.dumps({"log": {"entries": entries}}).encode()], (), None)
    forms = {one["match"]: one["request"]["form"] for one in yaml.safe_load(text)["operations"]}
    names = {f"anmalan[{name}]" for name in ("first_name", "email", "address_line1")}
    assert {match: set(form) for match, form in forms.items()} == {
        "POST /anmalningar": names, "POST /anmalningar/{id}/edit": names,
    }  # fmt: skip
    assert not any("--word" in str(one) for one in left_out)
    assert load_text(text).entities


def request(method: str, path: str, answered: Any = None, *texts: str) -> RecordedRequest:
    return RecordedRequest(method, path, texts, None, answered)


def test_names_of_people_stay_hidden():
    rows = [{"id": 1, "name": "Ivan Fox"}, {"id": 2, "name": "Ann"}]
    public = public_words(
        [
            request("GET", "/users/zorbina", {"id": 1}),
            request("GET", "/ivan", rows),  # a word of a value
            request("GET", "/ivan/1"), request("GET", "/ivan/2"),
            request("GET", "/quill/1"), request("GET", "/quill/2"),  # nothing lists it
            request("GET", "/flumper", rows), request("GET", "/flumper/1"),  # one record
            request("GET", "/Bob", rows), request("GET", "/Bob/1"), request("GET", "/Bob/2"),
        ]
    )  # fmt: skip
    assert public.paths == frozenset()


def test_names_in_maps_by_people_stay_hidden():
    votes = {"id": 1, "votes": {"quill": 3, "flumper": 4}, "zorbina": 1, "Ann": 2}
    public = public_words(
        [
            request("GET", "/polls/1", {**votes, "colour": "red"}),
            request("GET", "/polls/2", {"id": 2, "votes": {"quill": 3}, "colour": "red"}),
        ]
    )
    assert public.members == {"id", "votes", "colour"}


def test_a_collection_below_a_hidden_word_stays_hidden():
    rows = [{"id": 1}, {"id": 2}]
    lists = [request("GET", "/quill/saker", rows)]
    below = [request("GET", f"/quill/saker/{n}") for n in (1, 2)]
    assert public_words([*lists, *below]).paths == frozenset()
    assert public_words([*lists, *below], ["quill"]).paths == {"saker"}
