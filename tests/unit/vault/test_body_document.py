from decimal import Decimal

from proxy.model.record import Action
from proxy.vault.body import RecordBody, TokenizedBody, is_document, pack_document, unpack_document
from proxy.vault.body import pack_tokenized as pack_content


def test_what_is_packed_comes_back_exactly() -> None:
    fields = {
        "a": "ä",
        "b": 2**63 - 1,
        "c": Decimal("0.0001"),
        "d": None,
        "e": {"x": [1, Decimal("1.50"), True]},
    }
    document = RecordBody(fields, Action.UPDATE, "client")
    assert unpack_document(pack_document(document)) == document


def test_a_decimal_keeps_its_digits_and_never_goes_through_binary_floating_point() -> None:
    assert b"999999999999.9999" in pack_document(RecordBody({"sum": Decimal("999999999999.9999")}))


def test_a_document_is_told_from_what_the_proxy_collects() -> None:
    assert is_document(pack_document(RecordBody({})))
    assert not is_document(pack_content(TokenizedBody({})))
