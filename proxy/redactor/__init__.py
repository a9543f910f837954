"""Rules and their effect on messages: find protected values, tokenize, restore.

Protection of values in transit is a pure function of rule, bytes and tokens, tested without
sockets, stores and clocks. ``load`` makes a frozen ``RuleSet`` of rule files; ``routing`` finds the
operation of a request; ``plan``, ``select``, ``json``, ``form``, ``bodies``, ``graphql`` and
``search`` find places; ``redact`` and ``restore`` change them; only ``exchange`` uses the vault.
Only ``load`` reads files; ``tools`` helps those who write them. May touch model, tokenization and
below. Face: ``rules`` and ``message`` (the types), ``load``, ``views``, ``exchange.runtime``.
"""
