"""Domicile: a data-residency proxy with an embedded vault.

Each room's own ``__init__`` says why it exists and what it may touch. Imports point downwards only;
``make check`` proves it.

    cli             one file a command
    bootstrap       settings in, running applications out; the only room that names engines
    config          settings file and environment, parsed once into frozen ``Settings``
    gateway         the proxy listener: pass, redact or refuse          admin   health, metrics,
    readiness api             the vault's own interface over HTTP                 demo    the sample
    application edge            who is let in, from where, how often: firewall, rate and connection
    limits net             sockets: HTTP/1 codec, server, client, TLS, PROXY protocol, bounded
    bodies redactor        rules, routing, selectors, redact and restore: pure functions;
    ``exchange`` meets the vault functions       code of the operator that runs beside the vault,
    each call in a process of its own vault           use cases on records: staged writes of the
    proxy, records of the interface, keys, upkeep auth            clients, access tokens, policies,
    effective rights tokenization    value + key + options -> token, one file a family of shapes
    storage         engines for sealed rows     objectstore  sealed attachments (both untrusted)
    crypto          AEAD, PRF, keysets, key sources; the only importer of ``cryptography``
    model           schemas, records, filters, policies as data         audit   the chained log
    telemetry       every metric and log field, named in one table
    clock errors    the time port and the one error taxonomy            offload long work off the
    event loop
"""

__version__ = "0.1.0"
