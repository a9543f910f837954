"""The loader of the rule language: text in, a frozen ``RuleSet`` out, or every fault at once.

YAML becomes a tree with positions (``yaml_tree``); the tables of the language (``rule_keys``, made
of ``value_forms`` and ``parsers``) turn it into sections; ``entities``, ``operations`` and ``ids``
compile them with all defaults; ``conflicts`` checks the result. It runs when the program starts and
when a file changes, never per request, and is the only importer of yaml in the redactor.
"""

from proxy.redactor.load.loader import load_draft, load_files, load_rule_set, load_text
from proxy.redactor.load.sources import fingerprint, no_rules

__all__ = ["fingerprint", "load_draft", "load_files", "load_rule_set", "load_text", "no_rules"]
