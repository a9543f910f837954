import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.api.request import Preconditions, preconditions
from proxy.errors import Code, VaultError


def conditions(**headers: str) -> Preconditions | None:
    return preconditions(
        make_mocked_request(
            "GET", "/", headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
    )


def refused(found: Preconditions | None, tag: str | None) -> bool:
    assert found is not None
    try:
        found.changes(tag)
    except VaultError as error:
        return error.code is Code.PRECONDITION_FAILED
    return False


def test_a_request_without_conditions_asks_nothing():
    assert conditions() is None


@pytest.mark.parametrize("text", ["a", '"a', '"a" "b"', '"a",b', "", "*, x", '"a\nb"'])
def test_what_is_no_list_of_tags_is_refused(text):
    with pytest.raises(VaultError) as fault:
        conditions(If_Match=text)
    assert fault.value.code is Code.INVALID_INPUT


def test_if_match_compares_strongly_and_if_none_match_weakly():
    found = conditions(If_Match='"a", W/"b"')
    assert [refused(found, tag) for tag in ('"a"', '"b"', None)] == [False, True, True]
    assert [refused(conditions(If_Match="*"), tag) for tag in ('"a"', None)] == [False, True]
    found = conditions(If_None_Match='"a", W/"b"')
    assert [refused(found, tag) for tag in ('"a"', '"b"', '"c"', None)] == [
        True,
        True,
        False,
        False,
    ]
    assert [refused(conditions(If_None_Match="*"), tag) for tag in ('"a"', None)] == [True, False]


def test_a_read_is_unchanged_for_who_has_its_tag():
    found = conditions(If_None_Match='W/"a"')
    assert found is not None
    assert (found.unchanged('"a"'), found.unchanged('"b"')) == (True, False)
    match = conditions(If_Match='"a"')
    assert match is not None
    assert not match.unchanged('"a"')
    with pytest.raises(VaultError):
        match.unchanged('"b"')
