"""The JSON Schema (2020-12) of the rule language, so that editors complete and check a file while it is written.

Printed from the tables that the loader reads by. It is wider than the loader where JSON Schema cannot say more (what
keys mean together, which options a token shape takes); it never refuses what the loader takes.
"""

from typing import Any

from proxy.redactor.load.grammar import RULE_FILE, blocks


def rule_schema() -> dict[str, Any]:
    """The schema as one JSON document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Domicile rule file",
        **RULE_FILE.define(),
        "$defs": {block.definition: block.define() for block in blocks() if block is not RULE_FILE},
    }
