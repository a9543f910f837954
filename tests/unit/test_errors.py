import re

from proxy.errors import Code
from tests.support.table import table


@table("code", Code)
def test_a_code_is_a_stable_word_of_the_interface(code):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert code == code.name.lower()
