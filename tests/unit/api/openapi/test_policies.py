import pytest
from jsonschema import Draft202012Validator

from proxy.api.openapi.policies import DESCRIBED
from proxy.errors import VaultError
from proxy.model.policy import read_policy, write_policy
from tests.unit.model.test_policy import EXAMPLE

REQUEST = DESCRIBED["put_policy"].request
SHOWN = DESCRIBED["show_policy"].answer


def fits(schema, value) -> bool:
    assert schema is not None
    return bool(Draft202012Validator(schema).is_valid(value))


def test_what_is_read_is_described_and_so_is_what_is_shown():
    assert fits(REQUEST, EXAMPLE)
    assert fits(SHOWN, write_policy(read_policy("support", EXAMPLE)))


@pytest.mark.parametrize(
    "change",
    [
        {"actions": []},
        {"actions": ["fly"]},
        {"fields": {"a": "redacted"}},
        {"fields": {"a": {"valueType": "redacted"}}},
        {"fields": {"a": {"valueType": "masked", "mask": {"first": -1}}}},
        {"rows": {"filter": {}}},
        {"firewall": {"mode": "off"}},
        {"cors": {"origins": []}},
        {"more": 1},
    ],
)
def test_what_is_refused_is_not_described(change):
    assert not fits(REQUEST, {**EXAMPLE, **change})
    with pytest.raises(VaultError):
        read_policy("support", {**EXAMPLE, **change})
