"""Settings file, environment and defaults → ``Settings``, or one ``VaultError`` of all faults."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from proxy.config import document as environment
from proxy.config.document import APPLICATIONS, SECTIONS, GivenSetting, SettingsDocument, general
from proxy.config.parsers import Setting
from proxy.config.schema import SETTINGS
from proxy.config.settings import Settings, UpstreamSettings
from proxy.errors import Code, Detail, VaultError

#: Read from the current folder where no other file is named and it is there.
DEFAULT_FILE: Final = Path("domicile.yaml")

_POSITION: Final = re.compile(r".*:(\d+):(\d+)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{(env|file):[^{}]+\}")

_LISTENERS: Final = ("listen.proxy", "listen.vault", "listen.admin", "listen.metrics")
#: Those that can speak TLS.
_SECURED: Final = _LISTENERS[:2]


def load_settings(file: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read the settings; the environment counts before the file, the file before the defaults.

    ``file`` is the one an operator named, and must be there; ``None`` takes ``domicile.yaml`` where
    present. Raises ``VaultError`` with ``Code.BAD_SETTINGS`` and one detail per fault.
    """
    written, faults = _from_file(file)
    variables, more = environment.read_environment(environ)
    faults += more
    values = _read_all(written | variables, faults)
    faults += _together(values, written | variables)
    if faults:
        count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
        details = tuple(sorted(faults, key=_position))
        raise VaultError(
            Code.BAD_SETTINGS, f"The settings have {count}: fix what is listed.", details
        )
    own = {
        name: _built(UpstreamSettings, "upstream", merged)
        for name, merged in _applications(values).items()
    }
    settings: Settings = _built(Settings, "", {**values, APPLICATIONS: own})
    return settings


def _from_file(file: Path | None) -> tuple[dict[str, GivenSetting], list[Detail]]:
    if file is None:
        if not DEFAULT_FILE.exists():
            return {}, []
        file = DEFAULT_FILE
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return {}, [
            Detail(str(file), "there is no such file: name the settings file with --config")
        ]
    except IsADirectoryError:
        return {}, [Detail(str(file), "this is a folder: name the settings file in it")]
    except OSError as error:
        return {}, [Detail(str(file), f"cannot be read ({error.strerror}): let this user read it")]
    document = SettingsDocument(str(file), content)
    return document.settings, document.faults


def _position(fault: Detail) -> tuple[int, int, int]:
    """Sort key of a fault: those of the file by line and column, then those of variables."""
    at = _POSITION.fullmatch(fault.source)
    return (0, int(at[1]), int(at[2])) if at else (1, 0, 0)


def _read_all(settings: Mapping[str, GivenSetting], faults: list[Detail]) -> dict[str, Any]:
    """The value of every setting whose text can be read; each of the others leaves a fault."""
    values: dict[str, Any] = {}
    own = {name: SETTINGS[general(name)] for name in settings if name not in SETTINGS}
    for name, setting in (SETTINGS | own).items():
        text, source = settings.get(name, GivenSetting(setting.default, f"the default of {name}"))
        if "{data}" in text and "data" not in values and name != "data":
            continue  # the fault of the data folder is reported already
        try:
            values[name] = setting.read(_expanded(text, values, setting))
        except ValueError as error:
            faults.append(Detail(source, f"{name}: {error}; write {setting.form}"))
    return values


def _applications(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all settings of each application that overrides some of the general ones."""
    merged: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name != general(name):
            merged.setdefault(name.split(".")[1], dict(values))[general(name)] = value
    return merged


def _expanded(text: str, values: Mapping[str, Any], setting: Setting) -> str:
    if "data" in values:
        text = text.replace("{data}", str(values["data"]))
    rest = _REFERENCE.sub("", text) if setting.references else text
    if "{" in rest or "}" in rest:
        raise ValueError(
            "the only thing that may stand in braces is {data}, outside the setting data itself"
        )
    return text


def _together(values: Mapping[str, Any], settings: Mapping[str, GivenSetting]) -> list[Detail]:
    """Faults that concern two settings.

    A listener of the defaults is always on loopback, so it never has one.
    """
    faults = _in_the_clear(values, settings)
    for first, second in itertools.combinations(_LISTENERS, 2):
        address = values.get(first)
        if address is not None and address == values.get(second) and address.port != 0:
            name = second if second in settings else first
            faults.append(
                Detail(
                    settings[name].source,
                    f"{first} and {second} are the same: give each its own port",
                )
            )
    if values.get("listen.proxy_protocol") and values.get("trusted_proxies") == ():
        text = (
            "listen.proxy_protocol counts only from trusted_proxies, and none is named: name the "
            "proxies in front there"
        )
        faults.append(Detail(settings["listen.proxy_protocol"].source, text))
    faults += _issuer(values, settings)
    faults += _firewall(values, settings)
    faults += _callers_tls(values, settings)
    faults += _remote(values, settings)
    faults += _tls("upstream", values, settings)
    for name, merged in _applications(values).items():
        faults += _tls(f"{APPLICATIONS}.{name}", merged, settings)
    return faults


def _in_the_clear(values: Mapping[str, Any], written: Mapping[str, GivenSetting]) -> list[Detail]:
    """Refuse a listener that others reach and that speaks plain HTTP, unless it is named."""
    insecure = values.get("listen.insecure")
    if insecure is None or "listen.tls.at" not in values:
        return []
    certified = values.get("listen.tls.certificate") != ()
    faults = []
    for name in _LISTENERS:
        listener = name.removeprefix("listen.")
        secured = certified and name in _SECURED and values["listen.tls.at"] in (listener, "both")
        address = values.get(name)
        if address is None or address.loopback or secured or listener in insecure:
            continue
        certificate = "name a certificate in listen.tls.certificate, " if name in _SECURED else ""
        text = (
            f"{name} can be reached from other machines and speaks plain HTTP: {certificate}"
            f"listen at 127.0.0.1, or write insecure: [{listener}] under listen where something "
            "in front does TLS"
        )
        faults.append(Detail(written[name].source, text))
    return faults


def _issuer(values: Mapping[str, Any], settings: Mapping[str, GivenSetting]) -> list[Detail]:
    """Refuse an issuer without a name, and optional claims with verification by keys."""
    issuer, optional = (
        values.get("auth.issuer"),
        values.get("auth.introspection_optional_claims", frozenset()),
    )
    introspected = issuer is not None and issuer.how == "introspection"
    faults = []
    if (
        issuer is not None
        and values.get("auth.issuer_name", "") is None
        and not (introspected and "iss" in optional)
    ):
        otherwise = (
            ", or write iss in auth.introspection_optional_claims where its answers have none"
            if introspected
            else ""
        )
        text = (
            "tokens may be those of other issuers, too: name this one with "
            f"auth.issuer_name{otherwise}"
        )
        faults.append(Detail(settings["auth.issuer"].source, text))
    if optional and not introspected:
        text = (
            "auth.introspection_optional_claims is for auth.issuer: introspection:… alone: "
            "remove it"
        )
        faults.append(Detail(settings["auth.introspection_optional_claims"].source, text))
    return faults


def _firewall(values: Mapping[str, Any], settings: Mapping[str, GivenSetting]) -> list[Detail]:
    """Refuse a firewall that admits nobody: a mistake."""
    none = (
        values.get("firewall.country_database", "") is None and values.get("firewall.allow") == ()
    )
    if not none or values.get("firewall.mode") not in ("block", "mask"):
        return []
    text = (
        "firewall.mode would leave nobody inside but this machine: name a database of countries "
        "with firewall.country_database, or networks with firewall.allow"
    )
    return [Detail(settings["firewall.mode"].source, text)]


def _callers_tls(values: Mapping[str, Any], settings: Mapping[str, GivenSetting]) -> list[Detail]:
    """Faults among the settings for TLS towards callers."""
    certificates, keys = values.get("listen.tls.certificate"), values.get("listen.tls.key")
    if certificates is None or keys is None:
        return []  # told already
    if not certificates:
        idle = [
            name
            for name in ("listen.tls.key", "listen.tls.clients", "listen.tls.clients_crl")
            if values.get(name)
        ]
        text = "does nothing without a certificate: name its file with listen.tls.certificate"
        return [Detail(settings[name].source, f"{name} {text}") for name in idle]
    if values.get("listen.tls.clients_crl") and not values.get("listen.tls.clients"):
        text = "listen.tls.clients_crl does nothing without listen.tls.clients: name both"
        return [Detail(settings["listen.tls.clients_crl"].source, text)]
    at, clients_at = values.get("listen.tls.at"), values.get("listen.tls.clients_at")
    if values.get("listen.tls.clients") and at not in (None, "both", clients_at):
        text = (
            f"listen.tls.clients_at is {clients_at} and listen.tls.at is {at}: where no TLS is "
            "spoken, callers show no certificate; name the same listeners in both"
        )
        return [Detail(settings["listen.tls.clients"].source, text)]
    if keys and len(keys) != len(certificates):
        text = (
            f"listen.tls.key names {len(keys)} and listen.tls.certificate {len(certificates)}: "
            "name one key for each"
        )
        return [Detail(settings["listen.tls.key"].source, text)]
    return []


def _remote(values: Mapping[str, Any], settings: Mapping[str, GivenSetting]) -> list[Detail]:
    """Faults among the settings of a vault that processes of several machines use."""
    ends = [name for name in ("remote.listen", "remote.vault") if values.get(name) is not None]
    files = ("remote.authorities", "remote.certificate", "remote.key")
    if not ends:
        idle = [name for name in ("remote.clients", *files) if values.get(name)]
        text = "does nothing without remote.listen or remote.vault"
        return [Detail(settings[name].source, f"{name} {text}") for name in idle]
    needed = [name for name in files if values.get(name) is None]
    if "remote.listen" in ends and not values.get("remote.clients"):
        needed.append("remote.clients")
    faults = [
        Detail(settings[ends[0]].source, f"{ends[0]} needs {name}: both sides prove who they are")
        for name in needed
    ]
    if len(ends) == 2:
        text = "an instance has a vault that others use, or uses that of another one: set one"
        faults.append(Detail(settings["remote.vault"].source, text))
    return faults


def _tls(
    section: str, values: Mapping[str, Any], settings: Mapping[str, GivenSetting]
) -> list[Detail]:
    """Faults among TLS settings of one section; ``values``: what counts there, by general name."""

    def fault(name: str, text: str) -> Detail:
        return Detail(
            settings.get(
                f"{section}.{name}", settings.get(f"upstream.{name}", GivenSetting("", section))
            ).source,
            text,
        )

    faults: list[Detail] = []
    if (
        values.get("upstream.tls.key") is not None
        and values.get("upstream.tls.certificate", "") is None
    ):
        text = (
            f"{section}.tls.key belongs to a certificate: name its file with "
            f"{section}.tls.certificate"
        )
        faults.append(fault("tls.key", text))
    if values.get("upstream.tls.verify") is False and values.get("upstream.tls.ca") is not None:
        text = (
            f"{section}.tls.ca is not asked where {section}.tls.verify is false: remove one of "
            "the two"
        )
        faults.append(fault("tls.ca", text))
    return faults


def _built(kind: type[Any], section: str, values: Mapping[str, Any]) -> Any:
    """The settings object of a section, with those inside it."""
    members = {}
    for field in dataclasses.fields(kind):
        name = f"{section}.{field.name}" if section else field.name
        if name not in SECTIONS and name not in values:
            continue  # it has a default: the command line says it
        members[field.name] = (
            _built(cast("type[Any]", field.type), name, values)
            if name in SECTIONS
            else values[name]
        )
    return kind(**members)
