from proxy.errors import Code, VaultError
from proxy.net.problem import STATUS, proxy_status
from proxy.redactor.rules import OnError, Verb
from tests.support.table import table


def test_every_code_has_a_status_of_a_failure():
    assert set(STATUS) == set(Code)
    assert all(400 <= status <= 599 for status in STATUS.values())


@table(
    ("code", "on_error", "verb", "status"),
    [
        (Code.TOO_LARGE, None, None, 413),
        (Code.TOO_LARGE, OnError(too_large=400), Verb.READ, 400),
        (Code.UNREADABLE_BODY, OnError(unreadable_body=422), Verb.CREATE, 422),
        (Code.AMBIGUOUS_JSON, OnError(ambiguous_json=422), Verb.CREATE, 422),
        (Code.VAULT_DOWN, None, None, 503),
        (Code.VAULT_DOWN, OnError(vault_down_write=500), Verb.UPDATE, 500),
        (Code.VAULT_DOWN, OnError(vault_down_read="500"), Verb.READ, 500),
        (Code.VAULT_DOWN, OnError(), Verb.READ, 503),
        (Code.UPSTREAM_TIMEOUT, OnError(), Verb.READ, 504),
        (Code.UNREADABLE_ANSWER, OnError(), Verb.READ, 502),
        (Code.UNREADABLE_ANSWER, OnError(unreadable_answer="500"), Verb.UPDATE, 500),
    ],
)
def test_the_rule_of_the_operation_comes_before_the_table(code, on_error, verb, status):
    assert proxy_status(VaultError(code, "x"), on_error, verb) == status
