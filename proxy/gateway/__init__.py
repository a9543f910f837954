"""Sockets and HTTP: the gateway that callers talk to, the way to the application, the vault's own interface, the administration listener.

Why it exists: whatever no rule names must pass as if the proxy were not there, and whatever a rule names must be read
whole, rewritten, and forwarded by no other way. Both need the bytes of HTTP under our own control.

aiohttp's server keeps the connections of callers (``server``). What its parser would lose or refuse (trailers, methods of
one's own, fields that stand twice) is read by ``request_reader``, ``request_head`` and ``body`` instead; what its answer
objects would change (spelling and order of fields, interim answers, upgrades) is written to the transport by ``writer``.
``fields`` knows what each field name means to a proxy. ``gateway`` asks the rules once per
request, and by ``overriding`` once more where a body may name another method; ``passing`` streams what no rule names,
``matched`` reads whole what one names (within the ``room`` that there is), ``relay`` carries other protocols, and ``quick`` sends
on in the moment it came what has no body and is named by no rule.
``secure`` is TLS towards callers, and what they pass before they are HTTP (``preamble``).
``forwarding`` holds the header rules of both directions. ``upstream`` is the way to the application, behind a port of its own.
``own`` writes the answers that the proxy gives itself, by the table in ``errors``; ``ports`` names what the gateway needs
from the redactor and from whoever counts. ``admin`` serves health and metrics on another listener.

``api`` is the vault's own interface: one table of operations, and one handler for each. ``guard`` says who is let in at both
listeners, from where and how often: the data firewall and the limits. ``peers`` and ``proxyprotocol`` tell whose address counts, and ``outbound`` (with
``acl_client`` and ``issuer_client``) asks services of the customer.

What it may touch: sockets. Rules, vault and keys are known by their ports alone; bodies are opaque here.
"""
