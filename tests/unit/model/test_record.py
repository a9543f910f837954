import msgspec

from proxy.model.record import RecordDraft


def test_a_draft_tells_nothing_said_from_never() -> None:
    assert RecordDraft("k", {}).expires_at is msgspec.UNSET
    assert RecordDraft("k", {}, None).expires_at is None
