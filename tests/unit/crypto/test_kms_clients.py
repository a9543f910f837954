"""Every key service by its own client, against a stand-in that seals in earnest."""

import json
import subprocess
import sys

import pytest

from proxy.crypto import kms
from proxy.crypto.kms import ADVICE, KINDS, Reason, SealedKeys, parse_kms_address
from proxy.crypto.kms_clients import CLIENTS
from proxy.errors import Code, VaultError
from tests.support.bucket import shared
from tests.support.kms import STAND_INS, standing_in

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(kms, "_WAITS", (0.01, 0.01))


@pytest.fixture(params=STAND_INS)
def service(request, tmp_path, monkeypatch):
    with standing_in(request.param, tmp_path) as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started


def keys_of(service) -> SealedKeys:
    address = parse_kms_address(service.address("/nowhere/keys.json"))
    return SealedKeys(address, CLIENTS[address.scheme])


def refusal(act, *given) -> VaultError:
    with pytest.raises(VaultError) as caught:
        act(*given)
    return caught.value


def test_every_service_there_is_has_a_client_and_a_stand_in():
    assert set(KINDS) == set(CLIENTS) == set(STAND_INS)


def test_a_key_is_sealed_opened_by_another_process_and_nowhere_in_the_clear(service):
    entry = keys_of(service).entry(KEY)
    assert keys_of(service).key(entry) == KEY
    assert KEY not in json.dumps(entry).encode()
    assert keys_of(service).entry(KEY) != entry


def test_what_was_opened_once_is_not_asked_for_again(service):
    keys = keys_of(service)
    entry = keys.entry(KEY)
    before = len(service.asked)
    service.fault = "down"
    assert keys.key(entry) == KEY
    assert len(service.asked) == before


@pytest.mark.parametrize("reason", ["denied", "credentials", "disabled", "absent"])
def test_a_refusal_says_what_to_do_and_nothing_of_the_message(service, reason):
    service.fault = reason
    error = refusal(keys_of(service).entry, KEY)
    assert error.code is Code.BAD_KEYS
    advice = ADVICE[Reason(reason)].format(rights=KINDS[service.scheme].rights)
    assert error.message.endswith(f"): {advice}.")
    assert f"The key {service.scheme}:" in error.message
    for secret in service.environment().values():
        assert secret not in error.message


def test_what_another_key_has_sealed_is_told_as_such(service, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    entry = keys_of(service).entry(KEY)
    with standing_in(service.scheme, tmp_path / "other") as other:
        for name, value in other.environment().items():
            monkeypatch.setenv(name, value)
        error = refusal(keys_of(other).key, entry)
    assert error.code is Code.BAD_KEYS
    assert ADVICE[Reason.FOREIGN] in error.message


def test_a_service_that_fails_twice_is_asked_again(service):
    service.failures = 2
    keys = keys_of(service)
    assert keys.key(keys.entry(KEY)) == KEY


@pytest.mark.parametrize("fault", ["down", "silent", "gone"])
def test_a_service_that_does_not_answer_is_given_up_in_time(service, fault):
    service.fault = fault
    keys = keys_of(service)
    if fault == "gone":
        service.close()
        service._servers.clear()
    error = refusal(keys.entry, KEY)
    assert error.code is Code.VAULT_DOWN
    assert ADVICE[Reason.UNREACHABLE] in error.message


def test_the_server_of_moto_takes_the_same_requests(monkeypatch):
    server = shared()
    key = server.client("kms").create_key()["KeyMetadata"]
    query = f"key={key['Arn']}&endpoint={server.endpoint}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    address = parse_kms_address(f"aws-kms:///keys.json?{query}")
    entry = SealedKeys(address, CLIENTS["aws-kms"]).entry(KEY)
    assert SealedKeys(address, CLIENTS["aws-kms"]).key(entry) == KEY
    other = parse_kms_address(f"aws-kms:///keys.json?{query}".replace(key["KeyId"], "none"))
    error = refusal(SealedKeys(other, CLIENTS["aws-kms"]).key, entry)
    assert ADVICE[Reason.ABSENT] in error.message


def test_a_token_comes_from_a_file_that_somebody_renews(tmp_path, monkeypatch):
    token = tmp_path / "token"
    with standing_in("hashicorp-vault", tmp_path) as service:
        monkeypatch.delenv("VAULT_TOKEN", raising=False)
        address = parse_kms_address(f"{service.address('/keys.json')}&token_file={token}")
        keys = SealedKeys(address, CLIENTS["hashicorp-vault"])
        assert "FileNotFoundError" in refusal(keys.entry, KEY).message
        token.write_text("an old one")
        assert ADVICE[Reason.CREDENTIALS] in refusal(keys.entry, KEY).message
        token.write_text(service.environment()["VAULT_TOKEN"] + "\n")
        assert keys.key(keys.entry(KEY)) == KEY


def test_without_its_extra_a_service_says_what_to_install(service, monkeypatch):
    for name in ("botocore", "google.api_core", "azure.identity", "hvac"):
        monkeypatch.setitem(sys.modules, name, None)
    error = refusal(keys_of(service).entry, KEY)
    assert error.code is Code.BAD_KEYS
    assert f"pip install 'domicile[{service.scheme}]'" in error.message


def test_no_client_is_loaded_before_its_service_is_asked():
    code = (
        "import sys; from proxy.crypto.key_sources import open_source; "
        "open_source('aws-kms:///k?key=arn:aws:kms:eu-north-1:111122223333:key/1').exists(); "
        "print([one for one in sys.modules if one in ('botocore', 'google', 'azure', 'hvac', 'requests')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
