"""How the contacts application answers: JSON, problems, refusals."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from aiohttp import web

from proxy.demo.validation import Fault

#: Pages and lists change with every edit: browsers may keep them, but ask before they show them again.
FRESH = {"Cache-Control": "no-cache"}


def as_json(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None, kind: str = "application/json"
) -> web.Response:
    """An answer whose body is that content as JSON (UTF-8, characters unescaped)."""
    text = json.dumps(content, ensure_ascii=False)
    return web.Response(text=text, status=status, content_type=kind, headers={**FRESH, **(headers or {})})


def refusal(faults: Iterable[Fault], submitted: Mapping[str, Any]) -> web.Response:
    """422: which fields are wrong, with all that was submitted, as many applications answer."""
    content = {
        "title": "Some fields need attention.",
        "status": 422,
        "errors": [fault._asdict() for fault in faults],
        "input": submitted,
    }
    return as_json(content, 422, kind="application/problem+json")


def stop(kind: type[web.HTTPException], title: str) -> NoReturn:
    """End the request here with that kind of answer, as problem details (RFC 9457)."""
    text = json.dumps({"title": title, "status": kind.status_code})
    raise kind(text=text, content_type="application/problem+json")


def number(request: web.Request) -> int:
    """The id in the path."""
    return int(request.match_info["id"])
