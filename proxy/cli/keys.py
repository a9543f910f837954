"""``domicile keys``: list the keys of a vault, rotate one, or check that all open their data.

With ``--url`` a running instance does it; without, the command opens the vault of the settings
while no instance runs. Data under older keys is re-encrypted by the running instance, or by the
next one that starts.
"""

import asyncio
import os
from typing import Any, Final

from proxy.cli import SUMMARIES, command
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list
from proxy.cli.options import instance_arguments
from proxy.cli.remote import administered, ask_once, stopped_first
from proxy.config import load_settings
from proxy.errors import VaultError
from proxy.model.record import DEFAULT, KeyKind


def list_keys_command(arguments: Arguments) -> int:
    """Print every key by its id; never a key."""
    data = _listed(arguments)
    return command.show(arguments, data, _text(data))


def rotate(arguments: Arguments) -> int:
    """Make another key of that kind the one in use."""
    kind = KeyKind(arguments.key)
    data = _rotate(arguments, kind)
    return command.show(arguments, data, f"Another {kind} key is in use.\n{_text(data)}")


def _rotate(arguments: Arguments, kind: KeyKind) -> Any:
    body = {"key": str(kind)}
    if kind.of_environment:
        body["environment_id"] = arguments.environment
    return ask_once(administered(arguments), "POST", "/api/keys/rotate", body)


def replace_keys(arguments: Arguments) -> int:
    """Rotate every kind of key of every environment; a failed rotation stops no other."""
    steps = [(kind, DEFAULT) for kind in KeyKind if not kind.of_environment]
    for one in _listed(arguments)["data"]:
        steps += [(kind, one["environment_id"]) for kind in KeyKind if kind.of_environment]
    report, lines = [], []
    for kind, arguments.environment in steps:
        fault = _fault_of(arguments, kind)
        name = f"{kind} of {arguments.environment}" if kind.of_environment else str(kind)
        lines.append(f"{name}: {'replaced' if fault is None else fault}")
        report.append({"key": str(kind), "environment_id": arguments.environment, "fault": fault})
    data = _listed(arguments)
    text = "\n".join([*lines, _text(data)])
    command.show(arguments, {**data, "replaced": report}, text)
    return OK if all(step["fault"] is None for step in report) else FAULT


def _fault_of(arguments: Arguments, kind: KeyKind) -> str | None:
    """Rotate a key; why it was not, if so."""
    try:
        _rotate(arguments, kind)
    except VaultError as error:
        return error.message
    return None


def rewrap_keys(arguments: Arguments) -> int:
    """Seal the key file again, or take over the keys of another source."""
    from proxy.crypto.key_sources import open_source

    keys = load_settings(arguments.config, os.environ).keys
    source = open_source(keys.uri)
    former = source if arguments.source is None else open_source(arguments.source)
    master = source.rewrap(former)
    data = {"master": {"key_id": master.id, "older": list(master.others)}, "keys": keys.described}
    text = (
        f"{keys.described} holds the master key {master.id} and "
        f"{command.count_noun(len(master.others), 'older one')}.\n"
        "Back that file up, and destroy what held them before."
    )
    return command.show(arguments, data, text)


def verify_keys(arguments: Arguments) -> int:
    """Open every keyset, and count what each data key has sealed."""
    from proxy.bootstrap.offline import sealed_with

    with stopped_first():
        counted = asyncio.run(sealed_with(load_settings(arguments.config, os.environ)))
    data = _listed(arguments)
    data["environments"] = [
        {"environment_id": environment, "sealed": sealed} for environment, sealed in counted.items()
    ]
    lines = []
    for one in data["environments"]:
        use = "; ".join(f"{key} sealed {counts(sealed)}" for key, sealed in one["sealed"].items())
        lines.append(f"{one['environment_id']}: {use or 'nothing is sealed'}")
    return command.show(arguments, data, ["Every keyset opens.", *lines])


def _listed(arguments: Arguments) -> Any:
    return ask_once(administered(arguments), "GET", "/api/keys")


def _text(data: Any) -> str:
    lines = [f"master   {data['master']['key_id']}"]
    lines += [
        f"signing  {one['key_id']}{'' if one['signs'] else '  (verifies)'}"
        for one in data["signing"]
    ]
    lines += [
        f"audit    {one['key_id']}{'' if one['writes'] else '  (verifies)'}"
        for one in data.get("audit", ())
    ]
    for one in data["data"]:
        lines.append(
            f"data     {one['environment_id']}: {one['sealings']} sealings, wrapped by "
            f"{one['wrapped_by']}"
        )
        lines += [f"         {_named(key)}{_opens(key)}" for key in one["keys"]]
        run = one["reseal"]
        if run["state"] != "none":
            figures = ", ".join(
                f"{run[kind]} {kind}" for kind in ("records", "versions", "contents", "unreadable")
            )
            lines.append(f"         re-encryption:  {run['state']}, {figures}")
            lines += _waiting(run)
        lines += _roots(one, "hash", "older, still asked")
        run = one["hash"]["rehash"]
        if run["state"] != "none":
            figures = ", ".join(f"{run[kind]} {kind}" for kind in ("records", "versions"))
            left = f"; needed for {counts(run['left'])}" if run["left"] else ""
            lines.append(f"         rehashing: {run['state']}, {figures}{left}")
            lines += _waiting(run)
        lines += _roots(one, "token", "resolves only")
    return "\n".join(lines)


def _roots(one: Any, kind: str, older: str) -> list[str]:
    """The roots of hashes, or of tokens, of an environment."""
    return [
        f"{kind:<9}{_named(root)}{'' if root['makes'] else f'  ({older})'}"
        for root in one[kind]["keys"]
    ]


def _named(key: Any) -> str:
    """The id of a key or root, and the day on which it was made."""
    created = key.get("created_at")
    return f"{key['key_id']}, of {created[:10]}" if created else str(key["key_id"])


def _waiting(run: Any) -> list[str]:
    """The instances that an unused older key waits for."""
    return [f"         waits for {instance}" for instance in run.get("blocked_by", ())]


def _opens(key: Any) -> str:
    """Describe why an older key is still there."""
    if key["seals"]:
        return ""
    if key["used_by"] == {}:
        return "  (opens nothing that is left: dropped when all instances have agreed)"
    return f"  (opens {counts(key['used_by'])})" if key["used_by"] else "  (opens)"


def counts(sealed: Any) -> str:
    """Join the number of each kind."""
    return ", ".join(f"{count} {kind}" for kind, count in sealed.items())


_rotate_arguments: Final = argument_list(
    instance_arguments,
    argument("key", choices=[str(kind) for kind in KeyKind], help="which kind of key"),
)  # fmt: skip

_rewrap_arguments: Final = argument("--from", dest="source", metavar="KEYS",
    help="where the keys are now, as the setting keys would say it (default: as it says "
    "it)")  # fmt: skip

COMMAND: Final = Command(SUMMARIES["keys"],
    "domicile keys list", children={
        "list": Command("List every key by its id, and what older ones are still needed for.",
            "domicile keys list --json", list_keys_command, instance_arguments),
        "rotate": Command("Use another data, master, signing or audit key, or another root of "
            "hashes or tokens, from now on; nothing is lost.",
            "domicile keys rotate data --url https://vault.example.com", rotate, _rotate_arguments),
        "replace": Command("Rotate every kind of key of every environment, as after a loss, and "
            "tell what came of each.", "domicile keys replace --url https://vault.example.com",
            replace_keys, instance_arguments),
        "rewrap": Command("Seal the key file anew with the key service of the settings, or take "
            "over the keys of another source.",
            "domicile keys rewrap --from file:///var/lib/domicile/keys.json", rewrap_keys,
            _rewrap_arguments),
        "verify": Command("Open every keyset of a stopped vault, and count everything that each "
            "data key has sealed.", "domicile keys verify", verify_keys,
            lambda parser: parser.set_defaults(url=None, stopped=True)),
    },
)  # fmt: skip
