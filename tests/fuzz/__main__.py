"""``python -m tests.fuzz NAME SECONDS``: run one target by hand, with atheris where it is
installed, else with plain chance.

What breaks a law is written to ``tests/fuzz/corpus/NAME/`` and named, so that it is tested from
then on.
"""

import hashlib
import importlib
import importlib.util
import random
import sys
import time
import traceback
from typing import Any

from tests.fuzz.seeds import CORPUS, changed, corpus


def main(arguments: list[str]) -> int:
    """Fuzz until the time is over or something breaks; 0 where nothing did."""
    atheris = (
        importlib.import_module("atheris")
        if importlib.util.find_spec("atheris") is not None
        else None
    )
    if atheris is None:
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
    else:
        # it counts branches of what is imported here
        with atheris.instrument_imports(include=["proxy"]):
            targets = importlib.import_module("tests.fuzz.targets").TARGETS
    if len(arguments) != 2 or arguments[0] not in targets or not arguments[1].isdecimal():
        print(f"usage: python -m tests.fuzz {{{','.join(targets)}}} SECONDS", file=sys.stderr)
        return 2
    name, seconds = arguments[0], int(arguments[1])
    return (
        _by_chance(name, targets[name], seconds)
        if atheris is None
        else _guided(atheris, name, targets[name], seconds)
    )


def _by_chance(name: str, target: Any, seconds: int) -> int:
    texts = corpus(name)
    chance = random.Random()  # nothing secret
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        data = changed(texts, chance)
        count += 1
        try:
            target(data)
        except Exception:  # noqa: BLE001  # whatever it is, it is what is looked for
            traceback.print_exc()
            file = CORPUS / name / hashlib.sha256(data).hexdigest()[:12]
            file.write_bytes(data)
            print(f"{file} breaks {name}")
            return 1
    print(f"{name}: {count} inputs, nothing broke")
    return 0


def _guided(atheris: Any, name: str, target: Any, seconds: int) -> int:
    found = CORPUS.parent / ".found" / name  # new texts of interest stay out of the corpus
    found.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={CORPUS / name}/"]
    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / name)], target)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
