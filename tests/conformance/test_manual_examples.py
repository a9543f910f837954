"""Every example of the manual in YAML loads as what it is: settings, a policy, a schema or rules.

Those of ``docs/rules.md`` are in ``test_rule_language``.
"""

import re
from pathlib import Path

import pytest

from proxy.config import load_settings
from proxy.config.declarations import read_policies, read_schemas
from proxy.redactor.load import load_text
from tests.conformance.test_rule_language import whole
from tests.support.tree import ROOT

#: A block, and the heredocs of rule files in shell blocks.
_BLOCK = re.compile(r"```ya?ml\n(.*?)```|<<'RULES'\n(.*?)\nRULES\n", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(match[1] or match[2], id=f"{page.stem}-{number}")
    for page in PAGES
    if page.name != "rules.md"
    for number, match in enumerate(_BLOCK.finditer(page.read_text("utf-8")), 1)
]
#: What stands before an example that is a part of a rule.
GRAPHQL = "operations:\n  - match: POST /graphql\n    graphql:\n"


def test_the_manual_has_examples() -> None:
    assert len(EXAMPLES) > 20


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_loads_as_what_it_is(example: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example, "utf-8")
    if re.search(r"(?m)^(?:entities|operations|endpoint):|^ +Query\.", example):
        nested = example.startswith(" ")
        if nested:  # the entity is that of the guide
            example = GRAPHQL + example.replace("read: person", "read: contact")
        assert load_text(whole(example)).entities
    elif re.search(r"(?m)^actions:", example):
        assert read_policies([file]).declared
    elif re.search(r"(?m)^name:", example):
        assert read_schemas([file]).declared
    else:
        load_settings(file, {})  # raises for a fault
