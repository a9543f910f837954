import os
import random
import uuid

from proxy.model.schema import Value
from proxy.tokenization.sealed import read_uuid, write_uuid
from tests.support.shapes import bound


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
