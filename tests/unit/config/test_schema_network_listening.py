from proxy.config.schema import SETTINGS
from proxy.config.schema_network import LISTEN


def test_they_are_settings_like_all_others():
    assert list(SETTINGS.items())[2 : 2 + len(LISTEN)] == list(LISTEN.items())


def test_by_default_nothing_can_be_reached_from_other_machines_and_nobody_is_trusted():
    assert all(
        LISTEN[f"listen.{name}"].default.startswith("127.0.0.1:")
        for name in ("proxy", "vault", "admin")
    )
    assert (LISTEN["listen.insecure"].default, LISTEN["trusted_proxies"].default) == ("false", "[]")
