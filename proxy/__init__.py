"""Domicile: a data-residency proxy with an embedded vault.

Each room's own ``__init__`` says why it exists and what it may touch. Imports point downwards only;
``make check`` proves it.

    cli             the commands; ``cli/__init__`` names the file of each
    bootstrap       settings in, running applications out; the only room that names engines
    config          settings file and environment, parsed once into frozen ``Settings``
    gateway         the proxy listener: pass, redact or refuse
    api             the vault's own interface over HTTP
    admin           health, metrics, readiness, and the console for rules and coverage
    demo            the sample application
    edge            firewall, rate limits, limits of connections and concurrency
    net             HTTP/1 codec, server, client, TLS, PROXY protocol, bounded bodies
    redactor        rules, routing, redact and restore; ``exchange`` alone meets the vault
    functions       the operator's code beside the vault, each call in a process of its own
    vault           use cases on records: staged writes, interface, keys, maintenance
    auth            clients, access tokens, policies, effective rights
    tokenization    value + key + options -> token, one file a family of shapes
    storage         engines for sealed rows (not trusted)
    objectstore     stores of sealed attachments (not trusted)
    crypto          AEAD, PRF, keysets, key sources; the only importer of ``cryptography``
    model           schemas, records, filters, policies as data
    audit           the chained log
    telemetry       every metric and log field, named in one table
    offload         long work off the event loop
    clock errors    the time port and the one error taxonomy
"""

__version__ = "0.1.0"
