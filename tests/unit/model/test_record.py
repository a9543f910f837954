import msgspec

from proxy.model.record import Draft


def test_a_draft_tells_nothing_said_from_never() -> None:
    assert Draft("k", {}).expires_at is msgspec.UNSET
    assert Draft("k", {}, None).expires_at is None
