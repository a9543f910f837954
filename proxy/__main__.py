"""``python -m proxy`` is ``domicile``."""

import sys

from proxy.cli import main

sys.exit(main())
