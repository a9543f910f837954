"""The loader of the rule language: text in, a frozen ``RuleSet`` out, or every fault at once.

It walks in four steps, each in files of its own: YAML to a tree with places (``tree``); the tree by the tables of the
language (``grammar``, made of ``forms``, ``units`` and ``phrases``) to sections; sections to compiled rules with all defaults
(``endpoints``, ``entities``, ``operations``, ``bodies``, ``ids``); and checks over what was compiled (``rivals``, ``checks``).
Runs when the program starts and when a file changes, never per request. The only part of the redactor that reads files and
the environment, and the only importer of yaml there.
"""

from proxy.redactor.load.loader import fingerprint, load_rule_set, load_text, no_rules

__all__ = ["fingerprint", "load_rule_set", "load_text", "no_rules"]
