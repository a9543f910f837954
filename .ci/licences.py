"""Add to a bill of materials (CycloneDX) the licences that the installed packages declare.

    python .ci/licences.py build/sbom.cdx.json

A package of another platform or Python, which is locked and not installed, gets none: the end says
which. Metadata of packages: PEP 639, and the classifiers that came before it.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

_CLASS = "License :: "


def licences_of(package: str) -> list[dict[str, Any]]:
    """The licences as CycloneDX writes them; none where the package is not installed."""
    try:
        declared = metadata(package)
    except PackageNotFoundError:
        return []
    if expression := declared.get("License-Expression"):
        return [{"expression": expression}]
    classes = [name for name in declared.get_all("Classifier") or () if name.startswith(_CLASS)]
    names = [name.removeprefix(_CLASS).removeprefix("OSI Approved :: ") for name in classes]
    names = names or [(declared.get("License") or "").partition("\n")[0]]
    return [{"license": {"name": name}} for name in names if name]


def main(path: Path) -> None:
    """Write them into the file."""
    bill = json.loads(path.read_text("utf-8"))
    without = list[str]()
    for part in bill["components"]:
        if licences := licences_of(part["name"]):
            part["licenses"] = licences
        else:
            without.append(part["name"])
    path.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", "utf-8")
    if without:
        sys.stderr.write(f"not installed here, so without licence: {', '.join(without)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
