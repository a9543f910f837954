import math
import os
import random
import uuid

import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from proxy.tokenization.sealed import read_uuid, write_uuid
from tests.support.shapes import bound, is_email
from tests.support.table import table


@table("name", ["opaque", "lower", "prepended"])
def test_words_never_run_out_and_are_sealed_unless_same(name):
    assert make_shape(name, {}).capacity() == math.inf
    assert make_shape(name, {}).resolution is Resolution.SEALED
    assert make_shape(name, {"same": True}).resolution is Resolution.INDEXED


@table("name", ["opaque", "lower", "prepended"])
@table("source", ["42", "1.0", "true", '{"a": 1}', "[]"])
def test_any_json_becomes_a_text_token(name, source):
    for tokenizer in (bound(name), bound(name, same=True)):
        token = tokenizer.mint(Value(source, json=True), 7, 8)
        assert token.json is False
        assert tokenizer.resembles(token.text)


def test_the_number_of_a_value_alone_makes_another_token():
    tokenizer = bound("opaque")
    assert len({tokenizer.mint(Value("Ann"), 1, number).text for number in range(100)}) == 100


def test_a_token_of_another_prefix_is_not_taken_for_ours():
    token = bound("prepended", prefix="cust").mint(Value("Ann"), 1, 2).text
    assert bound("prepended", prefix="cust").identify(token) == (1, 2)
    assert bound("prepended").identify(token) is None
    assert bound("opaque").identify(token[4:]) == (1, 2)


@table("prefix", ["a1", "a b", "é", "x" * 17])
def test_a_prefix_is_letters(prefix):
    with pytest.raises(ValueError, match="prefix"):
        make_shape("prepended", {"prefix": prefix})


# ---- email


def test_the_domain_is_reserved_unless_the_rule_names_another():
    assert bound("email").mint(Value("x"), 1, 1).text.endswith("@example.org")
    token = bound("email", domain="crm.example.net").mint(Value("x"), 1, 1).text
    assert token.endswith("@crm.example.net")
    assert is_email(token)
    assert bound("email").identify(token) is None


def test_letter_case_of_an_address_does_not_matter_to_its_same_token():
    tokenizer = bound("email", "email", same=True)
    assert tokenizer.mint(Value("Ann@Example.COM"), 1, 1) == tokenizer.mint(
        Value("ann@example.com "), 2, 2
    )


@table(
    "domain",
    [
        "", "localhost", "Example.org", "a..b", "-a.se", "a.se.", "a b.se", "x@y.se", "1.2.3.4",
        "a." * 130 + "se",
    ],
)  # fmt: skip
def test_a_domain_that_is_none_is_refused(domain):
    with pytest.raises(ValueError, match="domain"):
        make_shape("email", {"domain": domain})


def test_a_longer_domain_or_local_part_is_another_address():
    tokenizer = bound("email")
    token = tokenizer.mint(Value("x"), 1, 1).text
    for text in (f"{token}.uk", f"{token}-x", f"x.{token}", f"x-{token}"):
        assert tokenizer.pattern.search(text) is None
        assert tokenizer.identify(text) is None
    found = tokenizer.pattern.search(f"Write to <{token}>.")
    assert found is not None
    assert found[0] == token


# ---- uuid


def test_all_bits_survive_and_the_text_is_a_uuid_of_version_4():
    for bits in (
        0,
        1,
        2**122 - 1,
        2**61,
        *(int.from_bytes(os.urandom(16), "big") >> 6 for _ in range(200)),
    ):
        text = write_uuid(bits)
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)
        assert read_uuid(text) == bits


def test_tokens_say_nothing_of_the_order_of_their_records():
    tokens = [bound("uuid").mint(Value("x"), rid, 0).text for rid in range(100)]
    assert tokens != sorted(tokens)
    assert len({token[:8] for token in tokens}) == 100


def test_uuids_of_others_are_not_taken_for_ours():
    tokenizer, chance = bound("uuid"), random.Random(4)
    for _ in range(500):
        foreign = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        assert tokenizer.resembles(foreign)
        assert tokenizer.identify(foreign) is None
    for foreign in (
        str(uuid.uuid1()),
        str(uuid.UUID(int=0xA << 124, version=4)).upper(),
        uuid.uuid4().hex,
    ):
        assert not tokenizer.resembles(foreign)
        assert tokenizer.identify(foreign) is None
