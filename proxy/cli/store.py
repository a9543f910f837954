"""``domicile store``: look after the store of an instance, and move it."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxy.cli import SUMMARIES, command
from proxy.cli.command import (
    FAULT,
    OK,
    Arguments,
    Command,
    Progress,
    argument,
    argument_list,
    progress,
)
from proxy.config import Settings, load_settings, parsers
from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULT

if TYPE_CHECKING:
    from proxy.bootstrap.migrate import MoveResult
    from proxy.vault.maintenance import VaultFault, VaultFindings

_Parsed = TypeVar("_Parsed")

#: Faults that are printed one by one; further ones are counted.
_MOST_FAULTS: Final = 1_000


def verify_store(arguments: Arguments) -> int:
    """Exit status 0 when everything opens and belongs together."""
    import asyncio

    findings = asyncio.run(_verify(load_settings(arguments.config, os.environ)))
    command.show(arguments, verification_json(findings), store_text(findings))
    return FAULT if findings.faults or findings.notes else OK


def accept_notes_command(arguments: Arguments) -> int:
    """Take the notes of the store as they are now."""
    import asyncio

    from proxy.bootstrap.offline import OfflineChanges, accept_stored_notes

    settings = load_settings(arguments.config, os.environ)
    names = asyncio.run(accept_stored_notes(settings, OfflineChanges("accept_notes", DEFAULT)))
    lines = [f"Taken as it is: {name}" for name in names]
    text = "\n".join(lines or ["Every note was as it was written last."])
    return command.show(arguments, {"accepted": names}, text)


async def _verify(settings: Settings) -> "VaultFindings":
    from proxy.bootstrap.offline import stopped_vaults
    from proxy.vault.maintenance import extent, verify_vault

    async with stopped_vaults(settings) as vaults:
        bars: Mapping[str, Progress] = {
            "records": progress("records", await extent(vaults), "records"),
            "attachments": progress("attachments", None, "attachments"),
        }
        try:
            return await verify_vault(vaults, lambda what, count: bars[what].update(count))
        finally:
            for bar in bars.values():
                bar.close()


def migrate_store(arguments: Arguments) -> int:
    """Copy the vault to another store, or finish its move there."""
    import asyncio

    from proxy.bootstrap.migrate import Move

    settings = load_settings(arguments.config, os.environ)
    files = None if arguments.files is None else _address("--files", parsers.files, arguments.files)
    move = Move(settings, _address("--to", parsers.store, arguments.to), files)
    bars: dict[str, Progress] = {}

    def advance(what: str, count: int) -> None:
        if what not in bars:
            bars[what] = progress(what, None, "bytes" if what == "bytes" else "rows")
        bars[what].update(count)

    try:
        work = move.finish if arguments.finish else move.copy
        result = asyncio.run(work(advance))
    finally:
        for bar in bars.values():
            bar.close()
    return command.show(arguments, dataclasses.asdict(result), _move_text(result))


def _address(option: str, parse: "Callable[[str], _Parsed]", text: str) -> "_Parsed":
    try:
        return parse(text)
    except ValueError as error:
        raise VaultError(Code.BAD_SETTINGS, f"{option}: {error}.") from None


def _move_text(result: "MoveResult") -> str:
    count = command.count_noun
    changes = [sum(changed.values()) for changed in result.rounds]
    copied = f"{count(sum(changes), 'change')} copied in {count(len(changes), 'round')}"
    lines = [f"{copied}, and {count(result.attachments, 'attachment')}."]
    if result.finished:
        compared = (
            f"{count(result.rows, 'row')} compared: each is the same. "
            f"{count(result.objects, 'attachment')} there, {result.samples} compared byte by byte."
        )
        lines += [compared, "The vault has moved: write its new place in the settings, and start."]
    else:
        lines.append(
            f"The last round found {count(changes[-1], 'change')}. Stop the instance, and finish "
            "the move with --finish."
        )
    return "\n".join(lines)


_migrate_arguments: Final = argument_list(
    argument("--to", required=True, metavar="ADDRESS", help="as the setting store will name it"),
    argument("--files", metavar="ADDRESS",
        help="as the setting files will name it; else they stay"),
    argument("--finish", action="store_true",
        help="of a stopped instance: copy what is left, compare everything, and cut over"),
)  # fmt: skip


def verification_json(findings: "VaultFindings") -> dict[str, Any]:
    """The findings as JSON tells them."""
    faults = [
        {
            "environment": fault.environment,
            "schema": fault.schema,
            "record": fault.rid,
            "text": fault.text,
        }
        for fault in findings.faults
    ]
    counts = {
        name: findings.counts[name]
        for name in ("records", "versions", "staged", "attachments", "bytes")
    }
    return {
        "ok": not faults and not findings.notes,
        **counts,
        "left": {name: findings.left[name] for name in ("doomed", "orphaned")},
        "notes": findings.notes,
        "faults": faults,
    }


def store_text(findings: "VaultFindings") -> str:
    """The same for people."""
    counts = findings.counts
    looked = (
        f"Looked at {command.count_noun(counts['records'], 'record')} with "
        f"{command.count_noun(counts['versions'], 'past version')} "
        f"and {command.count_noun(counts['staged'], 'staged change')}, "
        f"and at {command.count_noun(counts['attachments'], 'attachment')} of "
        f"{command.count_noun(counts['bytes'], 'byte')}."
    )
    lines = [looked]
    if nameless := findings.left.total():
        lines.append(
            f"{nameless} objects are left over; a running instance removes them by itself."
        )
    lines += [
        f"  {_table_of(fault)}, record {fault.rid}: {fault.text}"
        for fault in findings.faults[:_MOST_FAULTS]
    ]
    if more := findings.faults[_MOST_FAULTS:]:
        lines.append(f"  and {len(more)} faults more; --json tells them all.")
    lines += [f"  The note {name} is not as it was written last." for name in findings.notes]
    count = len(findings.faults) + len(findings.notes)
    text = f"{command.count_noun(count, 'fault')} in all."
    lines.append(text if count else "Everything is in order.")
    return "\n".join(lines)


def _table_of(fault: "VaultFault") -> str:
    return fault.schema if fault.environment == DEFAULT else f"{fault.environment}:{fault.schema}"


COMMAND: Final = Command(SUMMARIES["store"],
    "domicile store verify", children={
        "verify": Command("Open every record and every attachment, and name what is damaged, "
            "exchanged or lost; changes nothing.", "domicile store verify --config domicile.yaml",
            verify_store),
        "migrate": Command("Copy the vault to another store and object store while an instance "
            "serves, and with --finish move it there; go on where an earlier call was ended.",
            "domicile store migrate --to postgresql://domicile@db.internal/vault", migrate_store,
            _migrate_arguments),
        "accept-notes": Command("Take clients, policies, keys and other notes as they are, after "
            "`verify` or a start has told that some were changed; leaves a line in the audit log.",
            "domicile store accept-notes", accept_notes_command),
    },
)  # fmt: skip
