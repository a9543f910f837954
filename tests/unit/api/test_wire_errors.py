import pytest

from proxy.api.wire import BY_ROUTE, HERE, api_status, error_answer
from proxy.errors import Code, VaultError
from proxy.net.errors import STATUS


def test_every_exception_is_one_and_belongs_to_an_operation():
    assert {code: status for code, status in HERE.items() if STATUS[code] == status} == {}
    assert [
        place
        for place, status in BY_ROUTE.items()
        if HERE.get(place[1], STATUS[place[1]]) == status
    ] == []


@pytest.mark.parametrize(
    ("operation", "code", "status"),
    [
        ("clone_record", Code.PARTIAL_MATCH_DISABLED, 403),
        ("find_records", Code.PARTIAL_MATCH_DISABLED, 401),
        ("clone_record", Code.NO_MATCH, 403),
        ("delete_records", Code.NO_MATCH, 404),
        ("clone_record", Code.CANNOT_OPEN, 422),
        ("", Code.INTERNAL, 500),
    ],
)
def test_statuses_are_those_of_the_specification(operation, code, status):
    assert api_status(operation, code) == status


def test_who_may_try_again_is_told_when():
    error = VaultError(Code.OVERLOADED, "Later.")
    assert error_answer("", error).headers == {"Retry-After": "1"}


def test_who_did_not_prove_itself_is_told_how():
    error = VaultError(Code.UNAUTHORIZED, "Who is it?")
    assert error_answer("", error).headers == {"WWW-Authenticate": "Bearer"}
    error.challenge = 'Bearer realm="domicile"'
    assert error_answer("", error).headers == {"WWW-Authenticate": 'Bearer realm="domicile"'}
