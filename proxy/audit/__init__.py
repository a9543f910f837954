"""The audit log: who did what with which record, one chained line each.

Every reveal, write, delete, change of rights and refusal leaves a line before its answer leaves. No
line, no reveal: while the log cannot be written, ``AuditLog.put`` raises. A line goes to the folder
first and is shipped to collectors afterwards. A request's ``AuditContext`` is handed on explicitly.

It may touch the clock, telemetry and its own folder; it knows no record, no store and no HTTP.
Face: what stands here, ``events`` and ``services``.
"""

from proxy.audit.chain import LogFindings, LogKey, parse_line, recall
from proxy.audit.files import last_instant, log_end, log_segments
from proxy.audit.log import AuditLog, AuditOptions, check_folder, open_log
from proxy.audit.signatures import Signatures, key_id
from proxy.audit.verify import Auditor, LineFilter, LogReader, log_lines, shipped_lines, verify_log

__all__ = [
    "AuditLog", "AuditOptions", "Auditor", "LineFilter", "LogFindings", "LogKey", "LogReader",
    "Signatures", "check_folder", "key_id", "last_instant", "log_end", "log_lines",
    "log_segments", "open_log", "parse_line", "recall", "shipped_lines", "verify_log",
]  # fmt: skip
