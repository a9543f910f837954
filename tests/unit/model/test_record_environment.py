from proxy.model.record import DEFAULT, IDENT
from tests.support.table import table


@table("ident", [DEFAULT, "a", "acme2", "e" * 32])
def test_ids_are_lower_case_letters_and_digits(ident):
    assert IDENT.fullmatch(ident)


@table("ident", ["", "2acme", "Acme", "ac_me", "ac-me", "ac:me", "é", "٢", "e" * 33, "acme\n"])
def test_nothing_else_becomes_part_of_the_name_of_a_table(ident):
    assert not IDENT.fullmatch(ident)
