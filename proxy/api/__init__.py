"""The vault's own interface over HTTP: one table of operations, one handler each.

``operation_table.OPERATIONS`` holds routes, checks and statuses; ``dispatch`` does what all
operations share; ``openapi`` makes the document. A handler is ``async def name(call: ApiRequest) ->
ApiResponse`` and asks one use case of the vault. To add an operation: its handler, one line in
``operation_table``, its entry in ``openapi.yaml``, its test. May touch aiohttp, the use cases of
the vault and access, never a key, a row or SQL. Face: ``app``, ``context``,
``access``, ``connection``, ``wire``.
"""
