"""The proxy listener: pass, redact or refuse each request.

``gateway`` asks the rules once a request; ``passthrough`` streams what no rule names, ``redacted``
reads whole what one names, within the memory budget; ``streams`` and ``websockets`` carry answers
that have no end, part by part. ``ports`` names what it needs from the redactor and from whoever
counts. It may touch sockets through ``net``; rules, vault and keys are known by their ports alone,
bodies are opaque here.
"""
