from decimal import Decimal

from proxy.model.record import Action
from proxy.vault.content import Content
from proxy.vault.content import pack as pack_content
from proxy.vault.document import Document, is_document, pack, unpack


def test_what_is_packed_comes_back_exactly() -> None:
    fields = {"a": "ä", "b": 2**63 - 1, "c": Decimal("0.0001"), "d": None, "e": {"x": [1, Decimal("1.50"), True]}}
    document = Document(fields, Action.UPDATE, "client")
    assert unpack(pack(document)) == document


def test_a_decimal_keeps_its_digits_and_never_goes_through_binary_floating_point() -> None:
    assert b"999999999999.9999" in pack(Document({"sum": Decimal("999999999999.9999")}))


def test_a_document_is_told_from_what_the_proxy_collects() -> None:
    assert is_document(pack(Document({})))
    assert not is_document(pack_content(Content({})))
