"""``domicile restore``: an instance from a backup, or the proof that one would bring it back."""

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from proxy.cli import command
from proxy.cli.backup import backup_path, content_json
from proxy.cli.command import FAULT, OK, Arguments, Command, argument, argument_list, progress
from proxy.cli.store import store_text, verification_json
from proxy.config import load_settings

if TYPE_CHECKING:
    from proxy.bootstrap.restore import RestoreFindings


def run(arguments: Arguments) -> int:
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
    command.show(arguments, data, _text(findings, data))
    return OK if findings.sound else FAULT


def _text(findings: "RestoreFindings", data: dict[str, Any]) -> str:
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


_arguments: Final = argument_list(
    argument("source", type=lambda text: backup_path(text, file=True), metavar="SOURCE",
        help="a file of `domicile backup`, also as s3://bucket/prefix/NAME"),
    argument("--check", action="store_true",
        help="unpack and verify it in a temporary folder (TMPDIR), and put nothing in place"),
)  # fmt: skip

COMMAND: Final = Command(
    "Bring a vault back from a backup: verified first, and never over what is there.",
    "domicile restore --check /backups/domicile-20261122T020000Z.backup", run,
    _arguments)  # fmt: skip
