"""What a start with no settings beyond the country loads."""

import subprocess
import sys

from tests.support.tree import ROOT

#: Libraries of settings that are off, or of work that comes later: loaded on demand.
ON_DEMAND = (
    "redis", "throttled", "maxminddb", "jwt", "phonenumbers", "prometheus_client", "tqdm",
    "cryptography.x509", "proxy.edge.geoip", "proxy.edge.shared_limits", "proxy.functions.worker",
    "proxy.demo", "wsgiref", "multiprocessing",
)  # fmt: skip


def test_start_loads_no_library_of_settings_that_are_off():
    text = (
        "import sys; import proxy.cli.serve, proxy.bootstrap.instance, proxy.cli.process; "
        f"print([name for name in {ON_DEMAND!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
