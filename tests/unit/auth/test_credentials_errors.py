import pytest

from proxy.auth.credentials import DESCRIPTION, invalid_client, invalid_request, slow_down


@pytest.mark.parametrize(
    "error", [invalid_request("The body is no form."), invalid_client(), slow_down(3)]
)
def test_a_description_has_only_the_characters_of_rfc_6749(error):
    assert DESCRIPTION.fullmatch(error.description)


def test_who_did_not_prove_itself_is_told_how():
    error = invalid_client()
    assert (error.status, error.error) == (401, "invalid_client")
    assert error.challenge is not None
    assert error.challenge.startswith("Basic ")


def test_who_is_slowed_is_told_for_how_long():
    assert (slow_down(3).status, slow_down(3).retry_after) == (429, 3)
    assert slow_down(1, 503).status == 503
