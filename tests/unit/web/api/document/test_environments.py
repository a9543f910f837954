import re

from proxy.model.environment import DEFAULT, IDENT
from proxy.web.api.document.environments import DESCRIBED


def test_the_pattern_of_ids_is_that_of_the_vault():
    described = DESCRIBED["create_environment"].request
    assert described is not None
    pattern = described["properties"]["environment_id"]["pattern"]
    assert pattern == f"^{IDENT.pattern}$"
    assert re.search(pattern, DEFAULT)
