"""The proxy listener: pass, redact or refuse each request.

``gateway`` asks the rules once a request; ``passthrough`` streams what no rule names, ``redacted``
reads whole what one names, within the memory budget, or restores its answer part by part;
``websockets`` relays messages both ways. ``ports`` names what it needs from the redactor and from
whoever counts. It may touch sockets through ``net``; rules, vault and keys are known by their ports
alone, bodies are opaque here. Face: ``gateway``, ``callers``, ``forwarded``, ``metrics``.
"""
