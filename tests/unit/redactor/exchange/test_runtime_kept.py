import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import RecordKeys, records_schema
from proxy.redactor.exchange.runtime import refuse_unfit, unfit_fields
from proxy.redactor.load import load_text
from tests.support.rules import with_fields


def entities(more: str = ""):
    return load_text(
        with_fields(f"email: {{kind: email, keep_as: key3{more}}}", entity="schema: records")
    ).entities


def test_a_key_that_is_hashed_takes_any_value():
    refuse_unfit(entities(), records_schema())
    refuse_unfit(entities(", stored: plain"), records_schema())
    assert (
        unfit_fields(
            load_text(with_fields("key3: {kind: email}")).entities,
            records_schema(RecordKeys(frozenset(("key3",)))),
        )
        == ()
    )


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        (RecordKeys(plain=frozenset(("key3",))), "stored: plain"),
        (RecordKeys(partial_match=frozenset(("key3",))), "parts"),
    ],
)
def test_a_key_that_is_kept_otherwise_is_told(keys: RecordKeys, word: str):
    with pytest.raises(VaultError) as caught:
        refuse_unfit(entities(), records_schema(keys))
    assert caught.value.code is Code.BAD_RULES
    assert [detail.source for detail in caught.value.details] == ["person.email"]
    assert word in caught.value.details[0].text
    if keys.plain:
        refuse_unfit(entities(", stored: plain"), records_schema(keys))
