from contextlib import closing

import pytest

from proxy.cli.remote import Remote, RemoteAnswer, refusal_of
from proxy.errors import Code, VaultError
from tests.support.fakevault import fake_vault

pytestmark = pytest.mark.usefixtures("hurried")


def test_one_token_serves_until_it_has_expired():
    with fake_vault() as vault:
        instance = Remote(vault.url, "client", "secret")
        assert [instance.ask("GET", "/api/schemas/contact").status for _ in range(2)] == [200, 200]
        vault.expired.add("t1")
        assert instance.ask("GET", "/api/schemas/contact").status == 200
        assert vault.tokens == 2
        instance.close()


def test_credentials_that_count_for_nothing_are_told_by_the_names_of_their_variables():
    with fake_vault() as vault, closing(Remote(vault.url, "client", "wrong")) as instance:
        with pytest.raises(VaultError) as caught:
            instance.ask("GET", "/api/schemas/contact")
    assert caught.value.code is Code.UNAUTHORIZED
    assert "DOMICILE_CLIENT_SECRET" in caught.value.message
    assert "wrong" not in caught.value.message


def test_another_environment_than_that_of_the_client_is_told_as_such():
    with fake_vault() as vault, closing(Remote(vault.url, "client", "secret", "acme")) as instance:
        with pytest.raises(VaultError, match="--environment"):
            instance.ask("GET", "/api/schemas/contact")


def test_a_busy_instance_is_asked_again():
    with fake_vault() as vault:
        vault.busy = 2
        instance = Remote(vault.url, "client", "secret")
        assert instance.ask("GET", "/api/schemas/contact").status == 200
        instance.close()


def test_no_answer_is_told_with_the_address():
    with fake_vault() as vault:
        url = vault.url
    with pytest.raises(VaultError) as caught:
        Remote(url, "client", "secret").ask("GET", "/")
    assert caught.value.code is Code.VAULT_DOWN
    assert url in caught.value.message


def test_a_refusal_carries_its_faults_and_an_unknown_one_is_still_told():
    told = RemoteAnswer(
        400,
        {
            "code": "invalid_record",
            "detail": "no",
            "errors": [{"source": "/0/a", "detail": "text"}],
        },
    )
    assert (refusal_of(told).code, refusal_of(told).details) == (
        Code.INVALID_RECORD,
        (("/0/a", "text"),),
    )
    assert refusal_of(RemoteAnswer(418, None)).message == "The answer has status 418."
