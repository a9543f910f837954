import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.bootstrap.functions import check_functions, installed, runner, start_functions
from proxy.cli import main
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from tests.support.functions import NAMES, install
from tests.support.tree import ROOT


def settings(**functions: str) -> Settings:
    return load_settings(
        None, {f"DOMICILE__FUNCTIONS__{name}": text for name, text in functions.items()}
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(ROOT))))
    monkeypatch.chdir(tmp_path)
    return folder


def test_functions_have_the_bounds_of_the_settings() -> None:
    bounds = runner(settings(TIME="2500ms", MEMORY="128MiB", RUNNING="3"))._bounds
    assert (bounds.time, bounds.memory, bounds.running) == (2.5, 128 << 20, 3)
    assert (bounds.isolated, bounds.network, bounds.user) == (True, False, None)
    other = runner(settings(ISOLATION="best", NETWORK="true"))._bounds
    assert (other.isolated, other.network) == (False, True)


def test_what_holds_keys_and_rows_is_private() -> None:
    environ = {
        "DOMICILE__KEYS": "file:///run/secrets/keys.json",
        "DOMICILE__LISTEN__TLS__CERTIFICATE": "/tls/tls.crt",
        "DOMICILE__LISTEN__TLS__KEY": "/tls/tls.key",
        "DOMICILE__ADMIN__METRICS_TOKEN": "file:///run/secrets/scraper",
    }
    private = set(map(str, runner(load_settings(None, environ))._bounds.private))
    assert private >= {"/run/secrets/keys.json", "/tls/tls.key", "/run/secrets/scraper"}
    assert str(Path.cwd() / "data") in private


def test_a_store_on_a_server_has_no_file_to_be_private() -> None:
    store = {"DOMICILE__STORE": "postgresql://vault@db.example.com/vault?sslmode=verify-full"}
    made = runner(load_settings(None, store))
    assert Path.cwd() / "data" in made._bounds.private


@pytest.mark.parametrize("name", ["no-such-user", "4000000000"])
def test_a_user_that_there_is_not_is_a_fault_and_so_is_any_without_root(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for us, text in ((0, "no such user"), (1000, "only root")):
        monkeypatch.setattr(os, "geteuid", lambda us=us: us)
        with pytest.raises(VaultError) as caught:
            runner(settings(USER=name))
        assert caught.value.details[0].source == "functions.user"
        assert text in caught.value.details[0].text


@pytest.mark.usefixtures("landlock", "seccomp")
async def test_a_start_says_in_log_and_metrics_what_isolates_functions(site: Path) -> None:
    metrics, functions = Metrics(), runner(settings())
    with capture_logs() as lines:
        await start_functions(functions, metrics)
    await functions.close()
    told: dict[str, Any] = {line["layer"]: line["event"] for line in lines if "layer" in line}
    assert told["landlock"] == told["seccomp"] == "resident functions have a layer of isolation"
    text = metrics.render().decode()
    for layer, event in told.items():
        holds = float("have" in event)
        assert f'domicile_functions_isolation{{layer="{layer}"}} {holds}' in text


async def test_without_functions_a_start_starts_nothing() -> None:
    functions = runner(settings())
    await start_functions(functions, Metrics())
    assert functions._spare is None
    await functions.close()


@pytest.mark.usefixtures("landlock", "seccomp")
def test_check_names_what_isolates_functions_and_what_they_could_read(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = check_functions(settings())
    assert text.startswith(f"{len(NAMES)} installed; isolated by ")
    assert "landlock, seccomp" in text
    (site / "domicile.yaml").write_text(f"data: {site}/data\n")
    assert main(["check", "--config", str(site / "domicile.yaml")]) == 1
    shown = capsys.readouterr().out
    assert "functions: Resident functions cannot run as the settings ask for.\n" in shown
    assert f"functions may read {site}, because packages are there, and so {site}/data: " in shown
    (site / "domicile.yaml").write_text(f"data: {site}/data\nfunctions: {{isolation: best}}\n")
    text = check_functions(load_settings(site / "domicile.yaml", {}))
    assert f"; functions may read {site}, because packages are there" in text


async def test_where_isolation_is_not_required_a_start_warns_of_what_is_reached(site: Path) -> None:
    here = {"DOMICILE__DATA": str(site / "data"), "DOMICILE__FUNCTIONS__ISOLATION": "best"}
    functions = runner(load_settings(None, here))
    with capture_logs() as lines:
        await start_functions(functions, Metrics())
    await functions.close()
    warned = [line for line in lines if line["event"] == "resident functions are not isolated"]
    assert {line["source"] for line in warned} == {"functions.isolation"}
    assert any(f"and so {site}/data: move one of the two" in line["text"] for line in warned)


# ---- installed


def test_what_packages_declare_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "path", [str(install(tmp_path, {"b": "mod:b", "a": "pack.mod:Class.a"})), *sys.path]
    )
    assert list(installed().items()) == [("a", "pack.mod:Class.a"), ("b", "mod:b")]


def test_what_an_archive_on_the_path_declares_is_found(tmp_path, monkeypatch):
    folder = install(tmp_path / "there", {"a": "mod:a"})
    archive = shutil.make_archive(str(tmp_path / "packages"), "zip", folder)
    monkeypatch.setattr(sys, "path", [archive, *sys.path])
    assert dict(installed()) == {"a": "mod:a"}


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
