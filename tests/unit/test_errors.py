import re

from proxy.errors import CannotOpen, Code, Detail, VaultError, coded
from proxy.vault.seal import Tampered
from tests.support.table import table


@table("code", Code)
def test_a_code_is_a_stable_word_of_the_interface(code):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert code == code.name.lower()


@table("code", list(Code))
def test_an_error_is_of_the_class_of_its_code_and_of_no_other(code):
    error = VaultError(code, "It is so.", (Detail("/a", "is wrong"),))
    assert [other for other in Code if isinstance(error, coded(other))] == [code]
    assert (error.code, error.message, str(error)) == (code, "It is so.", "It is so.")
    assert error.details == (Detail("/a", "is wrong"),)


def test_what_does_not_open_has_a_class_whose_own_errors_are_of_its_code():
    assert coded(Code.CANNOT_OPEN) is CannotOpen
    assert isinstance(Tampered(), CannotOpen)
    assert Tampered().code is Code.CANNOT_OPEN
