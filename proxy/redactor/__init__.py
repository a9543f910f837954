"""Rules and what they do to messages: find the values a rule names, swap them for tokens, turn tokens back.

Why it exists: everything that protects a value on its way is a pure function of rule, bytes and table of tokens, so
that it can be tested without sockets, stores and clocks. ``load`` makes a frozen ``RuleSet`` of rule files; ``routing`` finds
the operation of a request; ``plan``, ``selectors`` and ``codecs`` find places in bodies; ``redact`` and ``restore`` say what
changes; ``exchange`` alone talks to the vault.

What it may touch: model, tokenization, and below. Only ``load`` reads files, when the program starts and when a rule
file changes. No file here but ``exchange`` imports the vault or asyncio.
"""
