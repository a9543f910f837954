import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.exchange.wire import Fault


def test_an_error_is_the_same_at_the_other_end():
    error = VaultError(Code.VALUE_UNFIT, "No.", (Detail("/a", "why"),))
    error.retry_after = 3
    again = Fault.of(error).error()
    assert (again.code, again.message, again.details, again.retry_after) == (
        Code.VALUE_UNFIT,
        "No.",
        (Detail("/a", "why"),),
        3,
    )
    with pytest.raises(ValueError, match="nowhere"):
        Fault("nowhere", "").error()
