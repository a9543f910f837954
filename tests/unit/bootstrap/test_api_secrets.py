import pytest

from proxy.bootstrap.api import read_secret, scraper_secret
from proxy.config import load_settings
from proxy.config.settings import SecretSource
from proxy.errors import Code, VaultError


def test_a_secret_comes_from_its_place_without_the_end_of_the_line(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("id:s3cret\n")
    monkeypatch.setenv("THE_SECRET", " id:other ")
    assert read_secret(SecretSource("file", str(tmp_path / "secret")), "a.b") == "id:s3cret"
    assert read_secret(SecretSource("env", "THE_SECRET"), "a.b") == "id:other"


@pytest.mark.parametrize("content", [b"", b" \n", b"a\nb", b"\xff", b"x" * 4097])
def test_what_is_no_secret_is_told_with_its_setting_and_without_itself(tmp_path, content):
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(VaultError) as caught:
        read_secret(SecretSource("file", str(tmp_path / "secret")), "a.b")
    (detail,) = caught.value.details
    assert (caught.value.code, detail.source) == (Code.BAD_SETTINGS, "a.b")
    assert "xxx" not in detail.text


@pytest.mark.parametrize(
    "place", [SecretSource("file", "/nowhere/at/all"), SecretSource("env", "NOWHERE_AT_ALL")]
)
def test_a_place_that_is_not_there_is_told(place):
    with pytest.raises(VaultError) as caught:
        read_secret(place, "a.b")
    assert place.place in caught.value.details[0].text


def test_the_secret_of_scrapers_may_change_while_the_instance_runs(tmp_path):
    place = tmp_path / "token"
    settings = load_settings(None, {"DOMICILE__ADMIN__METRICS_TOKEN": f"file://{place}"})
    place.write_text("the first of two secrets\n")
    secret = scraper_secret(settings)
    assert secret() == "the first of two secrets"
    place.write_text("the second of two secrets\n")
    assert secret() == "the second of two secrets"
    for unfit in ("", "short"):
        place.write_text(unfit)
        assert secret() is None
    place.unlink()
    assert secret() is None
    assert scraper_secret(load_settings(None, {}))() is None


@pytest.mark.parametrize("content", [None, "", "too short"])
def test_a_secret_that_cannot_be_used_ends_the_start(tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    settings = load_settings(
        None, {"DOMICILE__ADMIN__METRICS_TOKEN": f"file://{tmp_path / 'token'}"}
    )
    with pytest.raises(VaultError) as caught:
        scraper_secret(settings)
    assert caught.value.details[0].source == "admin.metrics_token"
