import sys

import pytest

from proxy.bootstrap.functions import installed
from proxy.errors import Code, VaultError
from tests.support.functions import install


def test_what_packages_declare_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "path", [str(install(tmp_path, {"b": "mod:b", "a": "pack.mod:Class.a"})), *sys.path]
    )
    assert list(installed().items()) == [("a", "pack.mod:Class.a"), ("b", "mod:b")]


def test_nothing_is_loaded_by_looking(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(install(tmp_path)), *sys.path])
    assert "echo" in installed()
    assert "sample_functions" not in sys.modules


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ({"a/b": "mod:a"}, "letters"),
        ({"a": "mod"}, "package.module:function"),
        ({"9": "mod:a"}, "begins with a letter"),
    ],
)
def test_what_cannot_be_called_is_refused(tmp_path, monkeypatch, points, told):
    monkeypatch.setattr(sys, "path", [str(install(tmp_path, points)), *sys.path])
    with pytest.raises(VaultError) as caught:
        installed()
    assert caught.value.code is Code.BAD_SETTINGS
    assert told in caught.value.details[0].text
    assert caught.value.details[0].source.startswith("sample: ")


def test_a_name_belongs_to_one_package(tmp_path, monkeypatch):
    folders = [str(install(tmp_path / name, {"a": f"{name}:a"}, name)) for name in ("one", "two")]
    monkeypatch.setattr(sys, "path", [*folders, *sys.path])
    with pytest.raises(VaultError) as caught:
        installed()
    assert "another package" in caught.value.details[0].text
