"""Records of the record-based family as answers have them."""

from decimal import Decimal

from proxy.api.legacy_records import (
    group_name,
    groups,
    legacy_version_json,
    record_json,
    stated_version,
)
from proxy.model.record import Attachment, Record
from proxy.model.rights import FULL, Rights
from proxy.model.schema import DECIMAL_KEYS, KEYS, RANGE_KEYS, SERVICE_KEYS, records_schema
from proxy.vault.records.aggregate import Figures

FIELDS = {
    "record_key": "r/1",
    "key1": "a",
    "range_key1": 3,
    "decimal_key1": Decimal("1.5"),
    "is_encrypted": True,
}
RECORD = Record(
    1, "r/1", FIELDS, 2, 0, 1, attachments=(Attachment("f", "a.txt", "00", "text/plain", 1, 0, 0),)
)


def test_every_field_is_there_and_null_without_a_value() -> None:
    made = record_json(FULL.shown(RECORD), "se")
    names = {
        "record_key",
        "key",
        "body",
        "precommit_body",
        "profile_key",
        "parent_key",
        "range_key",
        "version",
        "created_at",
    }
    names |= {
        "updated_at",
        "expires_at",
        "country",
        "attachments",
        *KEYS,
        *SERVICE_KEYS,
        *RANGE_KEYS,
        *DECIMAL_KEYS,
    }
    assert made.keys() == names
    assert (made["key"], made["range_key"], made["country"], made["version"]) == ("r/1", 3, "se", 2)
    assert made["updated_at"] == "1970-01-01T00:00:00.001Z"
    values = {name for name, value in made.items() if value is not None}
    assert values == {
        "record_key", "key", "range_key1", "range_key", "key1", "decimal_key1", "version", "created_at", "updated_at", "country", "attachments",
    }  # fmt: skip
    assert made["attachments"][0]["download_link"] == "/api/records/se/r%2F1/files/f"


def test_what_policies_hide_is_left_out_under_both_names() -> None:
    rights = Rights(FULL.actions, records_schema(), frozenset(("record_key", "key1")))
    seen = rights.shown(RECORD)
    assert not {"range_key1", "range_key", "body"} & record_json(seen, "se", rights).keys()
    assert (record_json(seen, "se", rights)["key"], record_json(seen, "se", rights)["key1"]) == (
        "r/1",
        "a",
    )
    assert legacy_version_json(seen, rights)["record"].keys() == {
        "record_key",
        "key",
        "key1",
        "version",
    }


def test_a_version_that_was_stated_counts() -> None:
    stated = Record(1, "r", {"record_key": "r", "stated_version": 0}, 7, 0, 0)
    assert (stated_version(RECORD), stated_version(stated)) == (2, 0)
    entry = legacy_version_json(FULL.shown(stated))
    assert (entry["version"], entry["record"]["version"], entry["record"]["key"]) == (7, 0, "r")


def test_no_two_groups_have_one_name() -> None:
    values = (None, "null", "a|b", "a", "b", "\\", "|", "\\null", "", 1, Decimal("1.5"))
    pairs = [{"x": one, "y": other} for one in values for other in values]
    assert len({group_name(pair) for pair in pairs}) == len(pairs)
    assert group_name({}) == "all"
    assert groups([Figures({"key1": "a"}, {"n": 1})]) == {
        "a": {"group": {"keys": {"key1": "a"}}, "metrics": {"n": 1}}
    }
