import dataclasses
from pathlib import Path

from proxy.bootstrap.front import certified_names, is_front
from proxy.config import Worker, load_settings

ALT = (("DNS", "a.example"), ("IP Address", "10.0.0.1"), ("DNS", "b.example"))
SUBJECT = ((("countryName", "SE"),), (("commonName", "old.example"),))


def test_a_certificate_is_for_its_dns_names_and_without_any_for_its_common_name():
    assert certified_names({"subject": SUBJECT, "subjectAltName": ALT}) == {
        "a.example",
        "b.example",
    }
    assert certified_names({"subject": SUBJECT}) == {"old.example"}
    assert certified_names({"subject": SUBJECT, "subjectAltName": ALT[1:2]}) == {"old.example"}
    assert certified_names({}) == set()


def test_a_process_has_a_vault_unless_settings_or_supervisor_say_otherwise():
    settings = load_settings(None, {})
    assert not is_front(settings)
    for role, front in (("front", True), ("owner", False), ("replica", False)):
        worker = Worker(1, Path("/w"), role)
        assert is_front(dataclasses.replace(settings, worker=worker)) is front
    names = ("AUTHORITIES", "CERTIFICATE", "KEY")
    remote = {f"DOMICILE__REMOTE__{name}": "/x" for name in names}
    assert is_front(load_settings(None, {"DOMICILE__REMOTE__VAULT": "vault:1", **remote}))
