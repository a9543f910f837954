"""Rules and their effect on messages: find protected values, tokenize, restore.

Protection of values in transit is a pure function of rule, bytes and tokens, tested without
sockets, stores and clocks. ``load`` makes a frozen ``RuleSet`` of rule files; ``routing`` finds the
operation of a request; ``plan``, ``select``, ``json`` and ``form`` find places in bodies;
``redact`` and ``restore`` change them; only ``exchange`` uses the vault. It may touch model,
tokenization and below. Only ``load`` reads files. Face: ``rules`` and ``message`` (the types),
``load``, ``views``, ``exchange.runtime``; each tool for rule files has its own module.
"""
