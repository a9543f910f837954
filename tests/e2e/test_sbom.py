"""The bill of materials names each locked package of the runtime, by version, hashes and licence."""

import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from tests.support.patience import PATIENCE
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

WRITER = ROOT / ".venv-scan" / "bin" / "cyclonedx-py"
LOCK = ROOT / "requirements" / "runtime.txt"


def test_bill_of_materials_names_every_locked_package(
    tmp_path: Path, unavailable: Unavailable
) -> None:
    if not WRITER.exists():
        unavailable("bill of materials", "make .venv-scan/.installed puts its writer there")
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nsbom:")[2].partition("\n\n")[0]
    writing, _, adding = recipe.partition("cyclonedx-py ")[2].partition("\t@$(BIN)/python ")
    options = writing.replace("\\\n", " ").split()
    target = tmp_path / "sbom.cdx.json"
    options[options.index("build/sbom.cdx.json")] = str(target)
    subprocess.run([WRITER, *options], cwd=ROOT, check=True, timeout=PATIENCE)
    script, _ = adding.split()
    subprocess.run([sys.executable, script, target], cwd=ROOT, check=True, timeout=PATIENCE)
    bill = json.loads(target.read_text("utf-8"))
    listed = {part["name"]: part for part in bill["components"]}
    locked = re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE)
    assert locked
    for name, version in locked:
        assert listed[name]["version"] == version
        hashes = listed[name]["externalReferences"][0]["hashes"]
        assert {entry["alg"] for entry in hashes} == {"SHA-256"}
    assert len(listed) == len(locked)
    present = {re.sub(r"[-_.]+", "-", one.name).lower() for one in distributions()}
    assert {name for name, part in listed.items() if "licenses" in part} == present & set(listed)
    assert listed["multidict"]["licenses"] != []
    assert bill["metadata"]["component"]["name"] == "domicile"
    assert str(ROOT) not in target.read_text("utf-8")
