"""How commands print: results on standard output, faults on standard error, both as text or JSON."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from proxy.errors import Detail, VaultError


def show(data: Any, text: str, *, as_json: bool) -> None:
    """Print a result: ``text`` for people, or ``data`` as one line of JSON."""
    print(json.dumps(data, ensure_ascii=False) if as_json else text)


def counted(count: int, what: str) -> str:
    """``1 line``, ``2 lines``: a number and the regular noun that it counts."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def complain(error: VaultError, *, as_json: bool) -> None:
    """Print a fault: its message and one line per detail, or ``{code, message, details}`` on standard output."""
    if as_json:
        print(json.dumps(fault(error), ensure_ascii=False))
    else:
        print("\n".join([f"domicile: {error.message}", *lines(error.details)]), file=sys.stderr)


def fault(error: VaultError) -> dict[str, Any]:
    """A fault as JSON tells it."""
    details = [{"source": detail.source, "text": detail.text} for detail in error.details]
    return {"code": str(error.code), "message": error.message, "details": details}


def lines(details: Sequence[Detail]) -> list[str]:
    """One indented line per detail: where, and what to do."""
    return [f"  {detail.source}: {detail.text}" for detail in details]
