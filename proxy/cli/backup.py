"""``domicile backup``: all that an instance keeps, in one sealed file, also while it runs; and
``domicile restore``: an instance from a backup, or the proof that one would bring it back.
"""

import argparse
import contextlib
import math
import os
import re
import signal
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import SUMMARIES, command
from proxy.cli.command import (
    FAULT,
    OK,
    Arguments,
    Command,
    argument,
    argument_list,
    number_option,
    parsed_by,
    progress,
)
from proxy.cli.store import store_text, verification_json
from proxy.config import Settings, load_settings
from proxy.config.parsers import duration
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from proxy.bootstrap.backup import BackupContent, BackupPath
    from proxy.bootstrap.restore import RestoreFindings

#: How a backup in a folder is named: names in order are backups in order.
_STAMP: Final = "domicile-%Y%m%dT%H%M%SZ.backup"
#: Milliseconds between two backups, at least.
_LEAST: Final = 60_000
_NAME: Final = re.compile(r"domicile-\d{8}T\d{6}Z\.backup", re.ASCII)


def run(arguments: Arguments) -> int:
    """Exit status 0 when the backup is complete; 1 also where rows name files that were lost."""
    settings = load_settings(arguments.config, os.environ)
    folder: BackupPath | None = arguments.target if arguments.target.is_dir() else None
    if folder is None and (arguments.keep or arguments.every):
        raise VaultError(
            Code.BAD_SETTINGS,
            "--keep and --every look at the backups of a folder: name a folder that is there.",
        )
    if folder is None or not arguments.every:
        return _back_up(settings, arguments, folder)
    signal.signal(signal.SIGTERM, _stop)
    while (status := _back_up_when_due(settings, arguments, folder)) == OK:
        pass
    return status


def _stop(_number: int, _frame: object) -> None:
    raise SystemExit(OK)


def _back_up_when_due(settings: Settings, arguments: Arguments, folder: "BackupPath") -> int:
    """Wait until the newest backup of the folder is old enough, and make another one."""
    if backups := _backups(folder):
        newest = datetime.strptime(backups[-1].name, _STAMP).replace(tzinfo=UTC).timestamp()
        time.sleep(max(0.0, newest + arguments.every / 1000 - time.time()))
    return _back_up(settings, arguments, folder)


def _back_up(settings: Settings, arguments: Arguments, folder: "BackupPath | None") -> int:
    from proxy.bootstrap.backup import make_backup

    name = datetime.now(UTC).strftime(_STAMP)
    target: BackupPath = arguments.target if folder is None else folder / name
    size = 0

    def advance(count: int) -> None:
        nonlocal size
        size += count
        bar.update(count)

    bar = progress("backup", None, "bytes")
    with contextlib.closing(bar):
        content = make_backup(settings, target, advance)
    keys = _copy_keys(settings, arguments.keys)
    removed = _expire(folder, arguments.keep) if folder is not None and arguments.keep else []
    data = {
        "file": str(target),
        "bytes": size,
        **content_json(content),
        "keys": keys,
        "removed": [path.name for path in removed],
    }
    command.show(arguments, data, _text(data, settings))
    sys.stdout.flush()
    return FAULT if content.lost else OK


def content_json(content: "BackupContent") -> dict[str, Any]:
    """Return the content of a backup as JSON."""
    return {
        "at": content.head.at,
        "country": content.head.country,
        "master": content.head.master,
        "database": content.database,
        "attachments": content.objects,
        "audit_files": content.audit,
        "declared_files": content.declared,
        "lost": content.lost,
    }


def _copy_keys(settings: Settings, target: Path | None) -> str | None:
    """Copy the key file; return the path of the copy."""
    if target is None:
        return None
    from proxy.crypto.master_key import read_key_file, write_new

    if settings.keys.source != "file":
        raise VaultError(
            Code.BAD_SETTINGS,
            f"The master key comes from {settings.keys.uri}, which is no file: keep a copy where "
            "that comes from.",
        )
    if target.is_dir():
        target = target / Path(settings.keys.locator).name
    content = read_key_file(settings.keys.locator)
    if not (target.exists() and read_key_file(str(target)) == content):
        write_new(str(target), content)
    return str(target)


def _expire(folder: "BackupPath", keep: int) -> "list[BackupPath]":
    """Remove the oldest backups of a folder, but for so many."""
    expired = _backups(folder)[:-keep]
    for path in expired:
        path.unlink()
    return expired


def _backups(folder: "BackupPath") -> "list[BackupPath]":
    """The backups of a folder, oldest first."""
    paths: list[BackupPath] = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: path.name)


def backup_path(text: str, *, file: bool = False) -> "BackupPath":
    """A path, or the address of a bucket, of a ``file`` in it where one is meant."""
    if not text.startswith("s3://"):
        return Path(text)
    from proxy.objectstore.bucket_path import parse_bucket_path

    return parsed_by(partial(parse_bucket_path, file=file))(text)


def _text(data: dict[str, Any], settings: Settings) -> str:
    count = command.count_noun
    summary = (
        f"{data['file']}: {count(data['bytes'], 'byte')} with the database, "
        f"{count(data['attachments'], 'attachment')}, {count(data['audit_files'], 'file')} of the "
        f"audit log and {count(data['declared_files'], 'file')} of rules, schemas and policies."
    )
    lines = [summary]
    if data["keys"]:
        lines.append(
            f"A copy of the master key is in {data['keys']}: keep it apart from the backup."
        )
    else:
        lines.append(
            f"The master key ({settings.keys.locator}) is not in it, and nothing opens it without "
            "that key: keep a copy of it apart (--keys FILE)."
        )
    if lost := data["lost"]:
        lines.append(
            f"{command.count_noun(len(lost), 'attachment')} could not be copied, for the content "
            "is lost: see `domicile store verify`."
        )
    return "\n".join(lines)


def _duration(text: str) -> int:
    """Milliseconds, as settings have them."""
    try:
        length = duration(text)
    except ValueError:
        length = 0
    if length < _LEAST:
        raise argparse.ArgumentTypeError("a number and a unit, such as 24h; a minute at least")
    return length


_arguments: Final = argument_list(
    argument("target", type=backup_path, metavar="TARGET",
        help="the file to make, or a folder for it, or s3://bucket/prefix for one in a bucket"),
    argument("--keys", type=Path, metavar="FILE",
        help="copy the key file there, apart from the backup"),
    argument("--keep", type=number_option(1, math.inf, "a whole number from 1 on"), metavar="N",
        help="leave the newest N backups in that folder"),
    argument("--every", type=_duration, metavar="TIME",
        help="go on until SIGTERM: another one whenever the newest in that folder is so old"),
)  # fmt: skip

BACKUP_COMMAND: Final = Command(
    SUMMARIES["backup"], "domicile backup /backups --keep 14", run,
    _arguments)  # fmt: skip


def restore(arguments: Arguments) -> int:
    """Exit status 0 when everything in the backup opens, belongs together and is in place."""
    from proxy.bootstrap.restore import restore_backup

    settings = load_settings(arguments.config, os.environ)
    bar = progress("restore", None, "bytes")
    with contextlib.closing(bar):
        findings = restore_backup(settings, arguments.source, bar.update, check=arguments.check)
    data = {
        **content_json(findings.content),
        **verification_json(findings.vault),
        "ok": findings.sound,
        "audit_lines": findings.audit_lines,
        "audit_faults": findings.audit_faults,
        "restored": [str(path) for path in findings.restored],
    }
    command.show(arguments, data, _restore_text(findings, data))
    return OK if findings.sound else FAULT


def _restore_text(findings: "RestoreFindings", data: dict[str, Any]) -> str:
    lines = [
        f"A backup of {data['at']} ({data['country']}).",
        store_text(findings.vault),
        f"{command.count_noun(findings.audit_lines, 'line')} of the audit log.",
        *[f"  {text}" for text in findings.audit_faults],
        *[f"  The content of the attachment {name} is not in it." for name in data["lost"]],
    ]
    if findings.restored:
        lines.append("Restored: " + ", ".join(data["restored"]))
        lines.append(
            "What was written, changed or erased after the backup is as it was then: erase again "
            "who has asked for it since."
        )
    elif not findings.sound:
        lines.append("Nothing was put in place.")
    return "\n".join(lines)


_restore_arguments: Final = argument_list(
    argument("source", type=lambda text: backup_path(text, file=True), metavar="SOURCE",
        help="a file of `domicile backup`, also as s3://bucket/prefix/NAME"),
    argument("--check", action="store_true",
        help="unpack and verify it in a temporary folder (TMPDIR), and put nothing in place"),
)  # fmt: skip

RESTORE_COMMAND: Final = Command(
    SUMMARIES["restore"],
    "domicile restore --check /backups/domicile-20261122T020000Z.backup", restore,
    _restore_arguments)  # fmt: skip
