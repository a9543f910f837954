"""Exchanges: the pure redactor meets the vault; only this part of the room waits.

``rule_exchange`` carries one request and its answer from redaction to restoration; ``writing``
stages its changes, ``settle`` decides them by the answer, ``request_tokens`` and ``answer_scan``
decide which tokens an answer may show. ``fast_path_exchange`` and ``fast_path_plan`` do the same in
few steps where nothing is out of the ordinary. ``runtime`` binds a rule set to a vault;
``reload`` follows the rule files; ``rule_test_runner`` runs a rule file's own tests without a
network; ``audit`` writes the lines of an exchange; ``bound_operation`` counts and logs what
applications do to tokens.
"""
