"""Lines of a log as programs read them."""

import json
from typing import Any


def parsed(line: bytes) -> dict[str, Any]:
    """A JSON log line, or ``{}`` for anything else."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
