import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from proxy.demo.contacts import as_json, contact_id, end_request, validation_failed
from proxy.demo.validation import ContactFault


def test_json_is_utf8_and_asked_for_again() -> None:
    answer = as_json({"name": "Åsa"}, 201, {"Location": "/x"})
    assert (answer.status, answer.body) == (201, '{"name": "Åsa"}'.encode())
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["Location"] == "/x"
    assert answer.headers["Cache-Control"] == "no-cache"


def test_a_refusal_names_the_fields_and_repeats_what_came() -> None:
    answer = validation_failed([ContactFault("email", "must be one")], {"email": "ann@"})
    assert answer.status == 422
    assert answer.content_type == "application/problem+json"
    content = json.loads(answer.text or "")
    assert content["errors"] == [{"field": "email", "message": "must be one"}]
    assert content["input"] == {"email": "ann@"}


def test_stop_ends_the_request_with_problem_details() -> None:
    with pytest.raises(web.HTTPNotFound) as ended:
        end_request(web.HTTPNotFound, "There is none.")
    assert ended.value.content_type == "application/problem+json"
    assert json.loads(ended.value.text or "") == {"title": "There is none.", "status": 404}


def test_the_number_is_the_id_of_the_path() -> None:
    assert contact_id(make_mocked_request("GET", "/contacts/17", match_info={"id": "17"})) == 17
