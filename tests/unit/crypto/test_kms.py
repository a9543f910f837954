import pytest

from proxy.crypto.key_sources import open_source
from proxy.crypto.kms import KmsRefusal, Reason, SealedKeys, parse_kms_address
from proxy.errors import Code, VaultError
from tests.support.table import table

AWS = "aws-kms:///a%20b/keys.json?key=arn:aws:kms:eu-north-1:111122223333:alias/vault"


class Careless:
    """A service that opens another key than it has sealed."""

    def __init__(self, _address: object) -> None:
        self.asked = 0

    def seal(self, key: bytes) -> str:
        return key.hex()

    def open(self, sealed: str) -> bytes:
        self.asked += 1
        if self.asked == 3:
            raise KmsRefusal(Reason.OTHER, "ItWantsNoMore")
        return bytes(32)


def refuse(code: Code, act, *given) -> str:
    with pytest.raises(VaultError) as caught:
        act(*given)
    assert caught.value.code is code
    return caught.value.message


def test_an_address_has_its_parts():
    address = parse_kms_address(f"{AWS}&timeout=20&endpoint=https://kms.example.com")
    assert address.path == "/a b/keys.json"
    assert address.label == "aws-kms:arn:aws:kms:eu-north-1:111122223333:alias/vault"
    assert (address.timeout, address.endpoint) == (20.0, "https://kms.example.com")
    assert parse_kms_address(AWS).timeout == 5.0


def test_what_a_service_does_not_open_again_is_written_nowhere():
    keys = SealedKeys(parse_kms_address(AWS), Careless)
    assert "opens another key" in refuse(Code.BAD_KEYS, keys.entry, bytes(range(32)))
    assert keys.key(keys.entry(bytes(32))) == bytes(32)
    assert "(ItWantsNoMore)" in refuse(Code.BAD_KEYS, keys.entry, bytes(32))


def test_keys_are_neither_printed_nor_travel():
    keys = SealedKeys(parse_kms_address(AWS), Careless)
    assert repr(keys) == "<SealedKeys: key bytes not shown>"


@table(
    "rest",
    [
        "//keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1",
        "///keys.json",
        "///folder/?key=arn:aws:kms:eu-north-1:111122223333:key/1",
        "///keys.json?key=alias/mine",
        "///keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1&region=eu",
        "///keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1&timeout=0",
        "///keys.json?key=arn:aws:kms:eu-north-1:111122223333:key/1&endpoint=http://kms.example.com",
        "///keys.json?key",
    ],
)  # fmt: skip
def test_an_address_of_a_key_service_that_is_none_is_refused(rest):
    refuse(Code.BAD_KEYS, open_source, f"aws-kms:{rest}")


@table(
    "uri",
    [
        "hashicorp-vault:///k?key=http://vault.example.com:8200/transit/master",
        "hashicorp-vault:///k?key=https://vault.example.com:8200/master",
        "hashicorp-vault:///k?key=https://user@vault.example.com/transit/master",
        "hashicorp-vault:///k?key=https://vault.example.com/transit/master&token_file=token",
        "azure-keyvault:///k?key=http://127.0.0.1/keys/master",
        "azure-keyvault:///k?key=https://x.vault.azure.net/keys/master/78deebed173b48e48f55abf87ed4cf71",
        "google-kms:///k?key=cryptoKeys/master",
    ],
)  # fmt: skip
def test_a_key_of_a_service_is_named_whole_and_asked_over_tls(uri):
    refuse(Code.BAD_KEYS, open_source, uri)
