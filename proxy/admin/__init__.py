"""The administration listener: health, readiness, metrics, and the console.

The console is a page in the browser and the interface that it asks: the rules in force, what they
cover, and drafts of rule files that are checked, tested, explained and compared before they are
shipped. It changes nothing. May touch ``api`` (errors), ``net`` (coverage) and ``redactor``; never
the vault.

Face: ``app`` (``admin_app``, ``metrics_app``, ``Watchers``), ``console`` (``Console``).
"""
