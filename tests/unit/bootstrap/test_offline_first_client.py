import pytest

from proxy.bootstrap.instance import prepare_instance, running
from proxy.bootstrap.offline import first_client, mounted_client
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError

SECRET = "Zm9yIHRlc3RzIGFsb25lLCBuZXZlciB1c2VkIGVsc2V3aGVyZQ=="


@pytest.fixture
def mounted(tmp_path):
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "id").write_text("first-administrator\n")
    (folder / "secret").write_text(SECRET + "\n")
    return folder


@pytest.fixture
def settings(tmp_path, mounted) -> Settings:
    listen = {f"DOMICILE__LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "VAULT", "ADMIN")}
    given = {"DATA": tmp_path / "data", "COUNTRY": "se", "AUTH__FIRST_CLIENT": mounted}
    return load_settings(
        None, {**listen, **{f"DOMICILE__{name}": str(value) for name, value in given.items()}}
    )


async def clients_of(settings: Settings) -> list[tuple[str, bool, str]]:
    async with running(settings) as started:
        return [(one.id, one.admin, one.environment) for one in started.auth.clients.listed()]


async def test_a_vault_without_a_client_makes_the_one_that_is_mounted(settings):
    async with running(settings) as started:
        (client,) = started.auth.clients.listed()
        assert (client.id, client.admin, client.environment) == (
            "first-administrator", True, "default",
        )  # fmt: skip
        assert SECRET not in client.secret
        assert await started.auth._secret_checks.matches(client.secret, SECRET)
    lines = b"".join(path.read_bytes() for path in settings.audit.folder.glob("*.jsonl"))
    assert b'"operation":"create_client"' in lines
    assert SECRET.encode() not in lines


async def test_it_is_made_once_and_never_looked_at_again(settings, mounted):
    first = await clients_of(settings)
    (mounted / "id").write_text("another")
    assert await clients_of(settings) == first
    (mounted / "secret").unlink()
    assert await clients_of(settings) == first


async def test_a_vault_that_has_a_client_makes_none(settings):
    await prepare_instance(settings)
    made = await first_client(settings)
    assert made is not None
    assert await clients_of(settings) == [(made.client.id, True, "default")]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("secret", "short", "could be guessed"),
        ("secret", "a" * 64, "could be guessed"),
        ("secret", "", "holds no secret"),
        ("secret", None, "cannot be read"),
        ("id", "a/b", "the id has"),
        ("id", "ab", "the id has"),
        ("id", None, "cannot be read"),
    ],
)
def test_what_is_no_client_is_refused_and_not_quoted(mounted, name, content, text):
    if content is None:
        (mounted / name).unlink()
    else:
        (mounted / name).write_text(content)
    with pytest.raises(VaultError) as caught:
        mounted_client(mounted)
    assert caught.value.code is Code.BAD_SETTINGS
    (detail,) = caught.value.details
    assert detail.source == "auth.first_client"
    assert text in detail.text
    assert not content or content not in detail.text.replace("a secret", "")


async def test_a_start_with_a_weak_secret_is_refused_and_leaves_no_client(settings, mounted):
    (mounted / "secret").write_text("password")
    with pytest.raises(VaultError):
        await clients_of(settings)
    (mounted / "secret").write_text(SECRET)
    assert [ident for ident, _, _ in await clients_of(settings)] == ["first-administrator"]
