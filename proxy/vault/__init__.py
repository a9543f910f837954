"""The use cases on records: seal, stage, settle, reveal, reconcile, reap.

Above this room are clear records; below it, sealed rows that any engine may hold. ``seal`` is the barrier:
the one file where clear text and keys meet. A write of the proxy has two steps, each one durable transaction
(``staging``): values are kept *before* the application sees a token, and bound, promoted (``promotion``) or dropped by its
answer. What an answer left in doubt is decided by a later one (``reconcile``, ``joining``), or reported and reaped
(``janitor``). Versions that were just replaced stay in memory, sealed, for answers under way (``retired``). ``anywhere`` resolves
tokens of running text. The room knows no HTTP and no rule file; it is given schemas and token shapes.

Over the vault's own interface records are found and added up: ``asking`` turns what a caller asks, in terms of fields, into what
an engine can answer, in terms of columns and hashes; ``find`` and ``aggregate`` open what comes back. ``records`` is their way to
rows, as ``collection`` is the proxy's.

They come and go by ``write`` (with ``drafting`` and ``closing``), ``update``, ``clone``, ``migrate`` and ``delete``, each one commit; ``history``
and ``export`` read them back, ``within`` says which of them there are for a caller under policies, and ``idempotency`` keeps the first answer.

``catalog`` has the schemas of an environment; ``transition`` and ``migration`` rewrite records where one changes, and ``grams`` are
the parts by which hashed texts are found. ``environments`` is the book of key spaces; ``rekeying`` gives one other keys, ``reseal`` seals anew what
older ones have sealed. ``rehash`` (``rehash_job`` for all records) makes new tokens for whoever keeps some outside.

``hosted`` keeps what the proxy collects of an entity in the table of the program's own schema (``model.builtin``), where the rules say so.

Attachments of records: ``attachments`` has the use cases, ``attached`` what is known of a file (sealed beside its record's row), ``contents`` the
content (sealed in chunks in the object store; the second file where clear text and keys meet). ``objectsweep`` removes objects that no
row names, ``belonging`` keeps a vault from another one's, and ``verify`` looks at everything that a stopped vault holds.

Keys: ``rekeying`` puts another data key in use, takes one away, and wraps keysets anew; ``reseal`` brings everything under the key of now in the
background, page by page (``anew``), looks through all of it (``keyuse``) and lets go of what nothing needs; ``fence`` keeps out what comes too late.
"""
