"""A document of XML as JSON: what stands where in it, and how another text is written there."""

import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.elements import Document
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import read_xml_document
from tests.support.table import table


def read(text: str, kind: DocumentKind = DocumentKind.ELEMENTS) -> Document:
    return read_xml_document(text.encode(), 64, kind)


def pieces(text: str, document: Document) -> list[str]:
    """The bytes of the texts, in order of the JSON."""
    return [text.encode()[one.start : one.end].decode() for one in document.pieces.values()]


def test_elements_attributes_and_texts_have_their_places():
    text = "<a:r xmlns:a='u' b:x = \"1\" xmlns:b='v'>\n <n> Ann </n><n/><o>t<!--c--></o><z nil='1'/></a:r>"
    document = read(text)
    assert json.loads(document.content) == {
        "r": [{
            "#element": ["n", "n", "o", "z"], "@x": "1", "#text": [],
            "n": [{"#element": [], "#text": "Ann"}, {"#element": [], "#text": ""}],
            "o": [{"#element": [], "#text": [0]}], "z": [None],
        }]
    }  # fmt: skip
    assert pieces(text, document) == ["1", "Ann", "/>"]


def test_the_name_of_a_lone_element_is_told():
    (root,) = json.loads(read("<a><b><c/><d/></b></a>").content)["a"]
    assert (root["#element"], root["b"][0]["#element"]) == ("b", ["c", "d"])


@table(
    "text,value,written",
    [
        ("<a> x </a>", "<&>'\"\r", "<a> &lt;&amp;&gt;'\"&#13; </a>"),
        ("<a>x</a>", " y ", "<a>&#32;y&#32;</a>"),
        ("<a><![CDATA[x]]></a>", "<]]>", "<a><![CDATA[<]]]]><![CDATA[>]]></a>"),
        ("<a>x<![CDATA[x]]></a>", "<", "<a>&lt;</a>"),
        ("<a ></a>", "y", "<a >y</a>"),
        ("<p:a xmlns:p='u' />", "y", "<p:a xmlns:p='u' >y</p:a>"),
        ("<a/>", "", "<a/>"),
    ],
)
def test_a_text_is_written_where_one_stood(text: str, value: str, written: str):
    (piece,) = read(text).pieces.values()
    new = text.encode()[: piece.start] + piece.write(Value(value)) + text.encode()[piece.end :]
    assert new.decode() == written


CALL = "<methodCall><methodName>m</methodName><params>%s</params></methodCall>"


@table(
    "value,meaning",
    [
        ("<value>a</value>", "a"),
        ("<value><string> a </string></value>", "a"),
        ("<value><nil/></value>", None),
        ("<value><base64>YQ==</base64></value>", [0]),
        ("<value><array><data><value>a</value><value><i4>1</i4></value></data></array></value>", ["a", "1"]),
        ("<value><struct><member><name>n</name><value>a</value></member></struct></value>", {"n": "a"}),
        ("<value><struct/></value>", {}),
    ],
)  # fmt: skip
def test_a_call_is_read_as_the_values_that_it_spells_out(value: str, meaning: Any):
    document = read(CALL % f"<param>{value}</param>", DocumentKind.CALL)
    assert json.loads(document.content) == {"methodName": "m", "params": [meaning]}


def test_a_fault_is_a_value():
    fault = "<methodResponse><fault><value><int>4</int></value></fault></methodResponse>"
    assert json.loads(read(fault, DocumentKind.CALL).content) == {"fault": "4"}


@table(
    "text",
    [
        "<a/>", CALL % "<param/>", CALL % "x", CALL % "<value>a</value>",
        CALL % "<param><value><array/></value></param>", "<methodCall><x/></methodCall>",
        CALL % "<param><value>a</value><value>b</value></param>", "<methodCall>x</methodCall>",
    ],
)  # fmt: skip
def test_what_is_no_call_is_refused(text: str):
    with pytest.raises(VaultError) as raised:
        read(text, DocumentKind.CALL)
    assert raised.value.code is Code.UNREADABLE_BODY
