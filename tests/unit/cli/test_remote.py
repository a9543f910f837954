from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from proxy.cli.remote import Remote, RemoteAnswer, below, refusal_of, stopped_first
from proxy.errors import Code, VaultError
from tests.support.fakevault import fake_vault
from tests.support.table import table

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
        vault.busy = 1
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


NAMES = ("a", "b", "c", "d", "e")


class Instance(Remote):
    """It answers two at a time, ``ends`` with an empty page at that offset."""

    def __init__(self, ends: int = 9) -> None:
        super().__init__("http://127.0.0.1:9", "id", "secret")
        self.asked: list[str] = []
        self.ends = ends

    def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> RemoteAnswer:
        self.asked.append(f"{method} {path}")
        at = int(path.partition("?offset=")[2])
        page = [{"name": name} for name in NAMES[at : at + 2] if at < self.ends]
        return RemoteAnswer(200, {"data": page, "meta": {"total": len(NAMES)}})


@table(("ends", "names", "offsets"), [(9, "abcde", (0, 2, 4)), (2, "ab", (0, 2))])
def test_a_list_is_of_all_pages_and_ends_with_an_empty_one(ends, names, offsets):
    instance = Instance(ends)
    assert [item["name"] for item in instance.listed("/api/things")] == [*names]
    assert instance.asked == [f"GET /api/things?offset={at}" for at in offsets]


def test_a_name_leads_to_no_other_operation():
    assert below("/api/things", "x/../b") == "/api/things/x%2F..%2Fb"


@table(
    ("code", "begins"),
    [
        (Code.STORE_BUSY, "An instance runs on this vault: name it with --url"),
        (Code.BAD_STORE, "so"),
    ],
)
def test_only_of_an_instance_in_the_way_it_says_what_to_do(code, begins):
    with pytest.raises(VaultError) as caught, stopped_first():
        raise VaultError(code, "so")
    assert caught.value.code is code
    assert caught.value.message.startswith(begins)
