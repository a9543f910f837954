"""What an operator sees from outside: log lines and metrics, every name of both in one table.

Why it exists: a line that somebody adds in a hurry is how proxies of this kind leaked personal values. So there are
no free names here. ``metrics.METRICS`` lists every metric with its labels, ``logs.FIELDS`` every field of a log line;
whoever needs another adds it to the table, where a reviewer reads it. No name in either table holds content of a
request, an answer or a record: endpoints, operations, entities and fields are named as the rule file names them.

What it may touch: standard error and memory. It opens no file and no socket; ``web`` serves ``Metrics.render()``.
It knows no other room but ``errors``.
"""
