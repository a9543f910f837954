import pytest

from proxy.config.schema_network import LIMIT_SETTINGS


@pytest.mark.parametrize(
    "text",
    [
        "memory", "redis://cache", "redis://cache:6379/0", "rediss://me:secret@cache:6380",
        "redis://[::1]:6379",
    ],
)  # fmt: skip
def test_a_store_of_limits_is_a_word_or_an_address(text):
    assert LIMIT_SETTINGS["limits.store"].read(text) == (None if text == "memory" else text)


@pytest.mark.parametrize(
    "text",
    [
        "", "redis", "redis://", "http://cache", "redis://cache/a", "redis://cache?db=1",
        "redis://cache:port",
    ],
)  # fmt: skip
def test_a_reason_does_not_quote_it_for_it_may_hold_a_password(text):
    with pytest.raises(
        ValueError, match=r"^this is neither the word memory nor the address of a Redis$"
    ):
        LIMIT_SETTINGS["limits.store"].read(text)
