from typing import Any, cast

import pytest

from proxy.api.context import ApiRequest, ApiResponse, Shows
from proxy.auth.policies import FREE, open_policies
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.model.policy import Act
from proxy.model.policy_reader import read_policy
from proxy.model.record import Record
from proxy.model.rights import FULL, Principal
from proxy.storage.changes import Release
from proxy.vault.collection import TableSpec
from proxy.vault.records.repository import Records
from proxy.vault.vault import VaultOptions, new_vault
from tests.support.api import services
from tests.support.audit import audit_context
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.table import table
from tests.unit.model.test_policy import SCHEMA

RECORD = Record(1, "k", {"id": "k"}, 1, 0, 0)


def call(keep=None) -> ApiRequest:
    nothing = cast(Any, None)
    return ApiRequest(
        nothing, nothing, Principal("c", "default"), audit_context(), nothing, keep=keep
    )


def test_without_an_idempotency_key_a_write_commits_nothing_besides_its_own():
    def render(_records):
        raise AssertionError("nobody keeps the answer")

    assert call().closing(render)([RECORD]) == ()


def test_with_one_the_answer_is_kept_in_the_commit_of_the_write():
    kept: list[Any] = []

    def keep(answer: ApiResponse, shows: Any) -> list[Release]:
        kept.append((answer, shows))
        return [Release(b"", 1, 1)]

    assert call(keep).closing(lambda records: ApiResponse(201, b"%d" % len(records)))([RECORD]) == [
        Release(b"", 1, 1)
    ]
    assert kept == [(ApiResponse(201, b"1"), [Shows("k", RECORD.rid, False)])]


# ---------------------------------------------------------------------- rights


class Schemas:
    """A catalog of one schema."""

    def __init__(self, collection: Any) -> None:
        self.known = {"contact": Records(collection)}

    def records(self, name: str) -> Records:
        if name not in self.known:
            raise VaultError(Code.UNKNOWN_SCHEMA, "There is no schema of this name.")
        return self.known[name]


async def scene(*policies: str, outside: bool = False) -> ApiRequest:
    store, keyset = MemoryStore(), Keyset.create("default")
    vault = new_vault(
        keyset, store, ManualClock(), lambda *_: None, VaultOptions("default", "SE", 1)
    )
    catalog = Schemas(await vault.collection(TableSpec(SCHEMA, {}, None, addressed=False)))
    kept = await open_policies(store, keyset)
    await kept.put(
        read_policy("p", {"schema": "contact", "actions": ["read"], "fields": {"age": "hidden"}})
    )
    made = services(catalog=catalog, policies=kept)
    nothing = cast(Any, None)
    return ApiRequest(
        nothing,
        made,
        Principal("c", "default", policies=policies),
        audit_context(),
        nothing,
        outside=outside,
    )


async def test_a_client_without_policies_has_every_right_and_the_very_records():
    one = await scene()
    assert (
        one.records("contact", *Act).collection is one.space.catalog.records("contact").collection
    )
    assert one.rights(one.records("contact")) is FULL
    assert one.standing is FREE


async def test_a_client_under_policies_has_records_that_know_its_rights():
    one = await scene("p")
    records = one.records("contact", Act.READ)
    assert records.rights is one.rights(records)
    assert "age" not in {field.name for field in records.full_schema.fields}
    assert one.standing.mark


@table(
    ("schema", "acts"),
    [("contact", (Act.WRITE,)), ("contact", (Act.READ, Act.DELETE)), ("none", ())],
)
async def test_what_policies_do_not_allow_and_what_does_not_exist_are_refused_alike(schema, acts):
    with pytest.raises(VaultError) as refused:
        (await scene("p")).records(schema, *acts)
    assert (refused.value.code, refused.value.details) == (Code.ACCESS_DENIED, ())


async def test_a_client_without_policies_is_told_that_there_is_no_schema():
    with pytest.raises(VaultError) as refused:
        (await scene()).records("none")
    assert refused.value.code is Code.UNKNOWN_SCHEMA


async def test_from_outside_nobody_has_more_than_what_is_left_there():
    for names in ((), ("p",)):
        one = await scene(*names, outside=True)
        records = one.records("contact", Act.READ)
        assert not records.rights.files
        assert not records.rights.shows_value("city")
