import re

import pytest

from proxy.errors import Code, Detail, VaultError


def test_an_error_carries_code_message_and_details():
    error = VaultError(Code.BAD_RULES, "Mend it.", (Detail("a.yaml:1:2", "write b"),))
    assert error.code is Code.BAD_RULES
    assert str(error) == error.message == "Mend it."
    assert error.details[0].source == "a.yaml:1:2"


def test_details_are_optional():
    assert VaultError(Code.INTERNAL, "Mend it.").details == ()


@pytest.mark.parametrize("code", Code)
def test_a_code_is_a_stable_word_of_the_interface(code):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert code == code.name.lower()
