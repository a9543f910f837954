"""Rules and what they do to messages: find the values that a rule names, tokenize them, restore
tokens.

Everything that protects a value on its way is a pure function of rule, bytes and tokens, tested
without sockets, stores and clocks. ``load`` makes a frozen ``RuleSet`` of rule files; ``routing``
finds the operation of a request; ``plan``, ``select``, ``json`` and ``form`` find places in bodies;
``redact`` and ``restore`` change them; ``exchange`` alone talks to the vault. It may touch model,
tokenization and below. Only ``load`` reads files. Face: ``rules`` and ``message`` (the types),
``load``, ``views``, ``exchange.runtime``; each tool for rule files has a module of its own.
"""
