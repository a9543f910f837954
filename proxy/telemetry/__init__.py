"""Log lines and metrics for operators, with every name of both in one table.

Free names in log lines are how proxies of this kind leaked values, so there are none:
``metrics.METRICS`` lists every metric with its labels, ``logs.FIELDS`` every field of a log line.
No name holds content of a request, an answer or a record. It may touch standard error and memory,
and opens no file and no socket. Face: ``logs``, ``metrics``, ``tracing``, ``reloads``.
"""
