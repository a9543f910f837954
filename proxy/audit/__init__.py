"""The audit log: who did what with which record, one chained line each.

Every reveal, write, delete, change of rights and refusal leaves a line before its answer leaves. No
line, no reveal: while the log cannot be written, ``AuditLog.put`` raises. A line goes to the folder
first and is shipped to collectors afterwards.

It may touch the clock, telemetry and a folder of its own. It knows no record, no store and no HTTP:
the keyed hash of the chain and the memory that outlives the folder are given to it. Face:
``events``, ``honeytokens``, ``log``, ``sinks``.
"""
