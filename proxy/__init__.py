"""Domicile: a data-residency proxy with an embedded vault.

One page to find your way; each room's own ``__init__`` says more:

========================  =========================================================================
``bootstrap``             settings in, running applications out; the only file that names engines
``composition``           the larger parts of it: what the vault's interface and the ways to applications are made of
``config``                settings file and environment, parsed once into frozen ``Settings``
``cli``                   one file per command of ``domicile``
``web``                   sockets and HTTP: the gateway, the upstream connection, the vault's interface, the admin listener
``demo``                  the contacts application and the two-view page of ``domicile demo``
``redactor``              rules, routing, selectors, splicing: pure functions, no I/O
``functions``             code of the operator that runs beside the vault, each call in a process of its own
``vault``                 the use cases on records: stage and settle for the proxy, write and find for its own interface
``auth``                  clients, their secrets, and the access tokens they are given
``tokenization``          value + key + options -> token, one file per family of shapes
``storage``               engines for sealed rows; treated as untrusted
``objectstore``           backends for sealed attachments; treated as untrusted
``crypto``                AEAD, PRF, keysets and where keys come from; the only importer of cryptography
``model``                 the nouns: schema, field, value, path; no I/O
``audit``                 the log of who did what with which record, chained so that a gap shows
``telemetry``             every metric and log field, named in one table
``clock`` ``errors``      the time port and the one error taxonomy
``offload``               long work: on a worker thread, or in slices with turns of the event loop between them
========================  =========================================================================

Imports point downwards only; ``make check`` proves it.
"""

__version__ = "0.1.0"
