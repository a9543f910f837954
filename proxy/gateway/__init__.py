"""The proxy listener: pass, redact or refuse each request.

``gateway`` asks the rules once per request; ``passthrough`` streams unmatched requests,
``redacted`` buffers matched ones within the memory budget, or restores their answers part by part;
``fast_path_request`` drives the ordinary ones by callbacks, without a task; ``streams`` relays
messages and streams of events. ``ports`` names its needs from the redactor and from metrics and
log. It may touch sockets through ``net``; rules, vault and keys are known only by their ports,
bodies are opaque here. Face: ``gateway``, ``callers``, ``forwarded``, ``metrics``.
"""
