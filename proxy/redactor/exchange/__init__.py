"""Where the pure redactor meets the vault: the one part of the room that waits for anything.

``ruled`` carries one request and its answer from redaction to restoration; ``writing`` stages what it changes,
``settling`` says what the answer means for that, ``recall`` knows its tokens, ``error_answers`` which of them an error may show,
``spelling`` an id in another spelling;
``runtime`` joins a rule set to a vault; ``referring`` swaps addresses that header fields repeat; ``reload`` follows the
rule files; ``trial`` runs a rule file's own tests without a network; ``teller`` tells the audit log of each exchange; ``notices``
counts and logs what applications do to tokens and what no answer can decide.
"""
