from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.vault.records.sent_back import refuse_stated, without


def test_fields_that_are_taken_out_of_a_draft_stay_as_they_are():
    draft = RecordDraft("k", {"id": "k", "a": 1, "b": 2})
    left = without(draft, {"a"})
    assert left.fields == {"id": "k", "b": 2}
    assert left.preserved == {"a"}
    assert without(left, {"b"}).preserved == {"a", "b"}
    assert without(draft, ()) is draft


def test_every_member_that_only_the_service_sets_is_a_fault_of_a_new_record():
    stated: dict[str, Any] = {"version": 1, "created_at": None}
    refuse_stated([RecordDraft("k", {})])
    with pytest.raises(VaultError) as refused:
        refuse_stated([RecordDraft("k", {}), RecordDraft("l", {}, at="/1", stated=stated)])
    assert refused.value.code is Code.INVALID_RECORD
    assert [detail.source for detail in refused.value.details] == ["/1/version", "/1/created_at"]
