"""Write the interface document: ``python -m proxy.web.api docs/openapi.json``."""

import sys
from pathlib import Path

from proxy.web.api.document.assemble import assemble, render
from proxy.web.api.document.described import DESCRIBED
from proxy.web.api.operations import OPERATIONS

Path(sys.argv[1]).write_bytes(render(assemble(OPERATIONS, DESCRIBED)) + b"\n")
