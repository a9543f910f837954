"""The elements of a document: how many of them are read."""

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import read_xml_document
from tests.support.table import table


@table(
    ("text", "kind"),
    [
        ("<r>" + 30_000 * "<a/>" + "</r>", DocumentKind.ELEMENTS),
        ("<r>" + 20_000 * "<a b='' c=''/>" + "</r>", DocumentKind.ELEMENTS),
        ("<r>" + 900 * f"<address-data>BEGIN:VCARD\nN:{60 * ';'}\nEND:VCARD</address-data>" + "</r>",
            DocumentKind.ELEMENTS),
        (f"BEGIN:VCARD\r\n{200 * ('N:' + 199 * ';' + chr(10))}\r\nEND:VCARD", DocumentKind.VOBJECT),
        (f"BEGIN:VCARD\r\n{300 * ('A' + 199 * ';X=' + ':x' + chr(10))}\r\nEND:VCARD", DocumentKind.VOBJECT),
    ],
)  # fmt: skip
def test_a_document_of_more_elements_than_its_size_explains_is_too_large(
    text: str, kind: DocumentKind
):
    with pytest.raises(VaultError) as caught:
        read_xml_document(text.encode(), 64, kind)
    assert caught.value.code is Code.TOO_LARGE
