"""Write the interface document: ``python -m proxy.api docs/openapi.json``."""

import sys
from pathlib import Path

from proxy.api.openapi.assemble import assemble, render
from proxy.api.openapi.described import DESCRIBED
from proxy.api.operations import OPERATIONS

Path(sys.argv[1]).write_bytes(render(assemble(OPERATIONS, DESCRIBED)) + b"\n")
