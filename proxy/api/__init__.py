"""The vault's own interface over HTTP: one table of operations, one handler each.

``operations.OPERATIONS`` holds routes, checks and statuses; the OpenAPI document is made of it, so
that they cannot disagree. A handler is ``async def name(call: ApiRequest) -> ApiResponse`` and asks
one use case of the vault; ``dispatch`` does what all have in common. To add an operation: its
handler, one line in ``operations``, its description in ``openapi``, its test. It may touch aiohttp,
the use cases of the vault, access. Never a key, a row, or SQL.
"""
