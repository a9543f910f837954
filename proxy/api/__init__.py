"""The vault's own interface over HTTP: one table of operations, and one handler for each.

Why it exists: applications, and people's own programs, talk to the vault without the proxy. What they may ask stands in
one literal table (``operations.OPERATIONS``): routes, the checks before a handler, statuses, and the OpenAPI document are made
of it, so that they cannot disagree.

A handler is ``async def name(call: Call) -> Answer``. It reads the call, asks one use case of ``proxy.vault``, and says the
answer; ``app`` does what all have in common: the token, content types, sizes, parameters, idempotency, and every error.

To add an operation: write its handler, add one line to ``operations.OPERATIONS`` and its description to ``document``.

What it may touch: aiohttp, the use cases of the vault, access. Never a key, a row, or SQL.
"""
