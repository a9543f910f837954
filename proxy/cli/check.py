"""``domicile check``: every fault that a start would meet, at once, without listening.

Settings come first, for without them nothing else can be found. The other parts stand in ``PARTS``;
each looks at the settings it is given and raises ``VaultError``, and one part's fault does not hide
another's.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final

from proxy.cli import SUMMARIES, command, health
from proxy.cli.command import FAULT, OK, Arguments, Command, argument
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError

#: Checks one part; returns its description, or an empty text.
SettingsCheck = Callable[[Settings], str]


def _rules(settings: Settings) -> str:
    from proxy.bootstrap.rules import load_rules

    rules = load_rules(settings)
    return (
        str(settings.rules)
        if rules.endpoints
        else f"none at {settings.rules}: the vault alone is in use"
    )


def _records(settings: Settings) -> str:
    from proxy.bootstrap.rules import load_rules
    from proxy.model.schema import records_schema
    from proxy.redactor.exchange.runtime import refuse_unfit

    try:
        rules = load_rules(settings)
    except VaultError:
        return ""  # told by the part that looks at rules
    refuse_unfit(rules.entities, records_schema(settings.records))
    return ""


def _keys(settings: Settings) -> str:
    from proxy.bootstrap.open_vault import check_keys, key_source

    if settings.remote.vault is not None:
        return f"that of {settings.remote.vault}"
    check_keys(settings)
    there = settings.keys.source != "file" or key_source(settings.keys).exists()
    return settings.keys.described + ("" if there else ", made at the first start")


def _store(settings: Settings) -> str:
    from proxy.bootstrap.open_vault import check_store

    if settings.remote.vault is not None:
        return f"that of {settings.remote.vault}"
    left_out = check_store(settings)
    bucket = [] if settings.files.folder else [f"files at {settings.files.label}"]
    return ", ".join([settings.store.label, *bucket, *([left_out] if left_out else [])])


def _audit(settings: Settings) -> str:
    from proxy.audit import check_folder, last_instant
    from proxy.clock import system_clock

    if settings.remote.vault is not None:
        return f"that of {settings.remote.vault}"
    folder = settings.audit.folder
    check_folder(folder)
    if not folder.exists():
        return f"{folder}, made at the first start"
    behind = (last_instant(settings.chain_folder) - system_clock()) // 1000
    clock = f", the clock of this machine is {behind} s behind its last line" if behind > 0 else ""
    return f"{folder}{clock}"


def _schemas(settings: Settings) -> str:
    from proxy.config.declarations import read_schemas

    if settings.schemas is None:
        return ""
    read_schemas([settings.schemas])
    return str(settings.schemas)


def _policies(settings: Settings) -> str:
    from proxy.config.declarations import read_policies

    if settings.policies is None:
        return ""
    read_policies([settings.policies])
    return str(settings.policies)


def _upstream(settings: Settings) -> str:
    from proxy.bootstrap.rules import check_upstream, load_rules

    try:
        rules = load_rules(settings)
    except VaultError:
        check_upstream(settings, None)
        raise
    check_upstream(settings, rules)
    addresses = sorted({one.upstream for one in rules.endpoints})
    return f"whether it answers was not tried: {', '.join(addresses)}" if addresses else ""


def _access(settings: Settings) -> str:
    from proxy.bootstrap.api import check_asking
    from proxy.bootstrap.offline import mounted_client
    from proxy.bootstrap.open_vault import has_vault

    if settings.auth.first_client is not None and not has_vault(settings):
        mounted_client(settings.auth.first_client)
    return check_asking(settings)


def _firewall(settings: Settings) -> str:
    if settings.firewall.country_database is None:
        return ""
    from proxy.bootstrap.edge import check_firewall

    return check_firewall(settings.firewall.country_database)


def _tls(settings: Settings) -> str:
    from proxy.bootstrap.network import check_listeners

    check_listeners(settings)
    return ", ".join(map(str, settings.listen.tls.certificate))


def _remote(settings: Settings) -> str:
    from proxy.bootstrap.network import check_remote

    check_remote(settings)
    return str(settings.remote.vault or settings.remote.listen or "")


def _functions(settings: Settings) -> str:
    from proxy.bootstrap.functions import check_functions

    return check_functions(settings)


#: The checks after the settings, by name, in this order.
PARTS: Final[dict[str, SettingsCheck]] = {
    "rules": _rules,
    "schemas": _schemas,
    "records": _records,
    "policies": _policies,
    "keys": _keys,
    "store": _store,
    "audit": _audit,
    "upstream": _upstream,
    "access": _access,
    "firewall": _firewall,
    "tls": _tls,
    "functions": _functions,
    "remote": _remote,
}


def run(arguments: Arguments) -> int:
    """Exit status 0 when everything is in order."""
    if arguments.url is not None:
        return _running(arguments)
    places: dict[str, str] = {}
    faults = run_checks(lambda: load_settings(arguments.config, os.environ), PARTS, places)
    names = ["settings", *PARTS]
    data = {
        name: command.fault(faults[name]) if name in faults else None
        for name in names
        if name == "settings" or "settings" not in faults
    }
    warned = [] if faults else _warnings(load_settings(arguments.config, os.environ))
    lines = [line for name in data for line in _lines(name, faults, places)]
    lines += [f"  warning: {text}" for text in warned]
    report = {"ok": not faults, "faults": data, "places": places, "warnings": warned}
    command.show(arguments, report, lines)
    return FAULT if faults else OK


def _running(arguments: Arguments) -> int:
    """Print the checks of a running instance, and its stale parts."""
    data = health.readiness(arguments.url)
    lines = [
        f"{name}: {command.in_order('in order') if state == 'ok' else command.painted_fault(state)}"
        for name, state in data["checks"].items()
    ]
    well = data["status"] == "ok" and not data["stale"]
    command.show(arguments, {"ok": well, **data}, lines)
    return OK if well else FAULT


_arguments: Final = argument("--url", type=health.http_address, metavar="URL",
    help="the admin listener of a running instance, to ask it (default: look at the "
    "settings)")  # fmt: skip


def run_checks(
    settings: Callable[[], Settings],
    parts: Mapping[str, SettingsCheck],
    places: dict[str, str] | None = None,
) -> dict[str, VaultError]:
    """The fault of each part that has one; of the settings alone where they have one.

    ``places`` collects the checked parts.
    """
    try:
        loaded = settings()
    except VaultError as error:
        return {"settings": error}
    faults: dict[str, VaultError] = {}
    for name, part in parts.items():
        try:
            described = part(loaded)
            if places is not None and described:
                places[name] = described
        except VaultError as error:
            faults[name] = error
    return faults


def _warnings(settings: Settings) -> list[str]:
    """Warn of settings that are allowed but reveal more than many expect."""
    from proxy.config.declarations import read_schemas
    from proxy.model import schema_warnings
    from proxy.model.schema import records_schema

    declared = () if settings.schemas is None else read_schemas([settings.schemas]).declared
    schemas = (*declared, records_schema(settings.records))
    return [text for schema in schemas for text in schema_warnings(schema)]


def _lines(name: str, faults: Mapping[str, VaultError], places: Mapping[str, str]) -> list[str]:
    error = faults.get(name)
    if error is None:
        where = f" ({places[name]})" if name in places else ""
        return [f"{name}: {command.in_order('in order')}{where}"]
    first = next(
        other
        for other, earlier in faults.items()
        if (earlier.message, earlier.details) == (error.message, error.details)
    )
    if first != name:  # the store cannot be opened without its key: one sentence is enough
        return [f"{name}: cannot be looked at; fix {first} first"]
    lines = [f"{name}: {command.painted_fault(error.message)}"]
    if error.code is not Code.BAD_RULES:
        return lines + command.detail_lines(error.details)
    return lines + command.rule_faults(error.details)


COMMAND: Final = Command(
    SUMMARIES["check"], "domicile check --config domicile.yaml", run, _arguments
)
