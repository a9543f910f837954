import asyncio
from pathlib import Path

import pytest

from proxy.bootstrap.backup import make_backup, read_head
from proxy.bootstrap.instance import prepare_instance
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those of a vault that is there, with rules, in ``tmp_path/home``."""
    home = tmp_path / "home"
    (home / "rules" / "more").mkdir(parents=True)
    (home / "rules" / "people.yaml").write_text("version: 1")
    (home / "rules" / "more" / "orders.yaml").write_text("version: 1")
    (home / "rules" / ".draft.yaml").write_text("not ours")
    made = load_settings(
        None,
        {
            "DOMICILE__COUNTRY": "se",
            "DOMICILE__DATA": str(home / "data"),
            "DOMICILE__RULES": str(home / "rules"),
        },
    )
    asyncio.run(prepare_instance(made))
    return made


def test_its_first_line_tells_what_it_is_and_the_rest_is_sealed(tmp_path, settings):
    told: list[int] = []
    content = make_backup(settings, tmp_path / "b", told.append)
    head = read_head(tmp_path / "b")
    assert (head.domicile, head.version, head.country) == ("backup", 1, "se")
    assert (content.head, content.declared, content.audit, content.lost) == (head, 2, 0, [])
    assert sum(told) > content.database > 0
    written = (tmp_path / "b").read_bytes()
    assert b"SQLite" not in written
    assert b"version: 1" not in written
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "home"], "no draft, no copy"


def test_a_file_that_is_there_is_not_overwritten(tmp_path, settings):
    (tmp_path / "b").write_text("a letter")
    with pytest.raises(VaultError, match="is there already"):
        make_backup(settings, tmp_path / "b", lambda _: None)
    assert (tmp_path / "b").read_text() == "a letter"


def test_without_a_vault_or_a_place_to_write_there_is_no_backup(tmp_path, settings):
    with pytest.raises(VaultError, match="cannot be written") as refused:
        make_backup(settings, tmp_path / "nowhere" / "b", lambda _: None)
    assert refused.value.code is Code.NOT_WRITABLE
    settings.store.file.unlink()
    with pytest.raises(VaultError, match="There is no vault"):
        make_backup(settings, tmp_path / "b", lambda _: None)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"{}\n", b'{"domicile": "export"}\n', b"\xff" * 9_000]
)
def test_any_other_file_is_no_backup(tmp_path, content):
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(VaultError, match="is not a backup"):
        read_head(tmp_path / "b")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(VaultError, match="cannot be read"):
        read_head(tmp_path / "b")
