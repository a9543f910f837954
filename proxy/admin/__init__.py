"""The administration listener: health, readiness, metrics, and the console.

The console is a page in the browser with its own interface: the active rules, their coverage, and
drafts of rule files, which it checks, tests, explains and compares before they are shipped. It
changes nothing. May touch ``api`` (errors), ``net`` (coverage) and ``redactor``; never the vault.

Face: ``app`` (``admin_app``, ``metrics_app``, ``Watchers``, ``Console``).
"""
