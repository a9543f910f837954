import re

from proxy.api.openapi.environments import DESCRIBED
from proxy.model.record import DEFAULT, IDENT


def test_the_pattern_of_ids_is_that_of_the_vault():
    described = DESCRIBED["create_environment"].request
    assert described is not None
    pattern = described["properties"]["environment_id"]["pattern"]
    assert pattern == f"^{IDENT.pattern}$"
    assert re.search(pattern, DEFAULT)
