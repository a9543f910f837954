"""The audit log: who did what with which record, one chained line each.

Every reveal, write, delete, change of rights and refusal leaves a line before its answer leaves. No
line, no reveal: while the log cannot be written, ``AuditLog.put`` raises. A line goes to the folder
first and is shipped to collectors afterwards. A request's ``AuditContext`` is handed on explicitly.

It may touch the clock, telemetry and a folder of its own; it knows no record, no store and no HTTP.
Face: ``events``, ``services``, ``log``, ``verify``.
"""
