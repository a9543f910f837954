"""Runs the ``tests:`` of a rule file against the real redactor and a temporary vault: no network,
no application.

The caller's request goes through an exchange; the request for the application is compared with
``app_sees``; the answer of ``app_answers`` goes back through the same exchange and is compared with
``caller_sees``. Problems name places, and expectations as in the rule file; never the actual
content.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlencode

from proxy.errors import VaultError
from proxy.redactor.exchange.fork_exchange import AnyExchange
from proxy.redactor.exchange.runtime import Runtime
from proxy.redactor.forks import each_operation
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.load.rule_tests import ABSENT, AppSees, CallerSees, Case, TestRequest
from proxy.redactor.message import RawHeaders, Request, Response, header
from proxy.redactor.method_override import override_method, possible
from proxy.redactor.multipart import form_parts, is_multipart
from proxy.redactor.rules import Endpoint, Match, PassRule
from proxy.redactor.views import view_of
from proxy.tokenization import PERSISTENT, SYNONYMS
from proxy.vault.collection import Collection

_SENT = "{sent "
_BODILESS = frozenset({204, 304})
#: A reference by which the proxy writes a sign into a page, but for markup: ``" & ' < >``.
_REFERENCE: Final = re.compile(r"&#(?!(?:34|38|39|60|62);)([0-9]{1,6});")
#: Characters of a text that are told of where it differs.
_NEAR: Final = 30


async def run_case(runtime: Runtime, case: Case) -> list[str]:
    """Run a test; return a sentence for each failure, none if it passes."""
    host, refusal = _host(runtime, case.endpoint), case.caller_sees.code
    request = _request(case.call, host)
    try:
        endpoint, match = _matched(runtime, request, host)
        if isinstance(match, Match):
            match = runtime.branch(match, request)
        if not isinstance(match, Match):
            return [f"no operation matches {request.method} {case.call.target.partition('?')[0]}"]
        view = view_of(endpoint.views, case.roles) if endpoint.views else None
        exchange = runtime.exchange(match, view)
        every = each_operation([match.operation])
        collections = [runtime.joined[id(one)].collection for one in every]
        return await _run(case, exchange, request, collections)
    except VaultError as error:
        if error.code == refusal:
            return []
        return [f"the proxy refuses it with {error.code}: {error.message}"]


async def _run(
    case: Case,
    exchange: AnyExchange,
    request: Request,
    collections: Sequence[Collection],
) -> list[str]:
    sent = await exchange.redact_request(request)
    if case.caller_sees.code is not None:
        return [f"the proxy does not refuse it with {case.caller_sees.code}"]
    problems = list(_check_sent(case.app_sees, sent, collections))
    answer = _answer(case, sent)
    wanted = exchange.must_buffer(answer.status, answer.headers)
    if stream := await exchange.stream(answer.status, answer.headers):
        restored = await stream.restore(answer.body) + await stream.rest()
        await stream.end()
        answer = Response(answer.status, answer.headers, restored)
    elif wanted and answer.status not in _BODILESS:
        answer = await exchange.restore_response(answer)
    else:
        await exchange.settled(answer.status, answer.headers)
        exchange.pass_unread(answer.status, answer.headers)
    problems.extend(_check_caller(case.caller_sees, answer))
    return problems


def _matched(
    runtime: Runtime, request: Request, host: str
) -> tuple[Endpoint, Match | PassRule | None]:
    """Endpoint and rule of a request, by the method that the body of a POST names, too."""
    head = (request.method, host, request.target, request.headers)
    endpoint, match = runtime.match(*head)
    types = [value.decode() for name, value in request.headers if name.lower() == b"content-type"]
    if request.method == "POST" and possible(types):
        named = override_method(types, request.body, endpoint.limits.form_fields)
        if named is not None:
            return runtime.match(*head, named)
    return endpoint, match


def _host(runtime: Runtime, endpoint: str) -> str:
    hosts = [
        host
        for item in runtime.rules.endpoints
        if item.name == endpoint
        for host in sorted(item.hosts)
    ]
    return hosts[0] if hosts else ""


def _request(call: TestRequest, host: str) -> Request:
    headers = [(name.encode(), value.encode()) for name, value in call.headers.items()]
    if host and not any(name.lower() == b"host" for name, _ in headers):
        headers.append((b"Host", host.encode()))  # requests in an envelope go by it
    body = b""
    if call.json is not ABSENT:
        if not any(name.lower() == b"content-type" for name, _ in headers):
            headers.append((b"Content-Type", b"application/json"))
        body = json.dumps(call.json, ensure_ascii=False).encode()
    elif call.form is not None:
        headers.append((b"Content-Type", b"application/x-www-form-urlencoded"))
        body = urlencode(call.form).encode()
    elif call.text is not None:
        body = call.text.encode()
    return Request(call.method, call.target.encode(), tuple(headers), body)


# ---------------------------------------------------------------------- what the application gets


def _check_sent(
    expected: AppSees, sent: Request, collections: Sequence[Collection]
) -> Iterator[str]:
    texts = _texts(sent)
    for marker in expected.without:
        if any(marker.casefold() in text for text in texts):
            yield f"the application sees {marker!r}, which app_sees.without forbids"
    if expected.json is not ABSENT:
        yield from _compare(expected.json, _loaded(sent.body), "app_sees.json $", collections)
    if expected.form is not None:
        yield from _compare(expected.form, _sent_members(sent), "app_sees.form $", collections)
    if expected.query is not None:
        yield from _compare(
            expected.query,
            _members(sent.target.partition(b"?")[2]),
            "app_sees.query $",
            collections,
        )


def _sent_members(sent: Request) -> dict[str, str]:
    """The members of a form, in whichever of its two kinds it was sent."""
    if not is_multipart(sent.headers):
        return _members(sent.body)
    members: dict[str, str] = {}
    for one in form_parts(sent.headers, sent.body, len(sent.body)):
        members[one.name] = sent.body[one.start : one.end].decode("utf-8", "replace")
        members |= {f"{one.name}.filename": name.read() for name in one.file_names}
    return members


def _texts(sent: Request) -> list[str]:
    """All that the application is sent, as it is and with its escapes undone."""
    raw = b"\n".join((sent.target, *(b": ".join(pair) for pair in sent.headers), sent.body)).decode(
        "utf-8", "replace"
    )
    document = _loaded(sent.body)
    written = json.dumps(document, ensure_ascii=False) if document is not None else ""
    return [text.casefold() for text in (raw, unquote_plus(raw), written)]


def _compare(
    expected: Any, actual: Any, path: str, collections: Sequence[Collection]
) -> Iterator[str]:
    """Whether everything that is expected is there; what else is there does not matter."""
    if isinstance(expected, Mapping) and set(expected) == {"shape"}:
        if not any(_is_token(actual, str(expected["shape"]), one) for one in collections):
            yield f"{path} is no token of shape {expected['shape']}"
    elif isinstance(expected, Mapping):
        for name, value in expected.items():
            if not isinstance(actual, Mapping) or name not in actual:
                yield f"{path}.{name} is missing"
            else:
                yield from _compare(value, actual[name], f"{path}.{name}", collections)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from _compare(value, actual[index], f"{path}[{index}]", collections)
    elif expected != actual or isinstance(expected, bool) is not isinstance(actual, bool):
        yield f"{path} is not {json.dumps(expected, ensure_ascii=False)}"


def _is_token(actual: Any, shape: str, collection: Collection) -> bool:
    text = actual if isinstance(actual, str) else json.dumps(actual)
    wanted = PERSISTENT.get(shape) or SYNONYMS.get(shape, shape)
    return any(
        shape_of_field.name == wanted and collection.tokenizers[name].resembles(text)
        for name, shape_of_field in collection.shapes.items()
    )


# ------------------------------------------------------------------ what the application answers


def _answer(case: Case, sent: Request) -> Response:
    answer = case.app_answers
    source = _loaded(sent.body)
    if source is None:
        source = _sent_members(sent)
    headers: RawHeaders = tuple(
        (name.encode(), _filled(value, source).encode()) for name, value in answer.headers.items()
    )
    if answer.json is ABSENT:
        body = _filled(answer.text or "", source).encode()
        return Response(answer.status, headers, body)
    body = json.dumps(_filled(answer.json, source), ensure_ascii=False).encode()
    return Response(answer.status, (*headers, (b"Content-Type", b"application/json")), body)


def _filled(template: Any, source: Any) -> Any:
    """The template with each ``{sent $.place}`` replaced by the value sent there."""
    if isinstance(template, Mapping):
        return {name: _filled(value, source) for name, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, source) for value in template]
    if not isinstance(template, str) or _SENT not in template:
        return template
    if template.startswith(_SENT) and template.find("}") == len(template) - 1:
        return _at(template[len(_SENT) : -1], source)
    before, _, rest = template.partition(_SENT)
    path, _, after = rest.partition("}")
    return f"{before}{_at(path, source)}{_filled(after, source)}"


def _at(path: str, source: Any) -> Any:
    value = source
    for step in parse_jsonpath(path):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


# ---------------------------------------------------------------------- what the caller gets


def _check_caller(expected: CallerSees, answer: Response) -> Iterator[str]:
    if expected.status is not None and expected.status != answer.status:
        yield f"the caller gets status {answer.status}, not {expected.status}"
    if expected.json is not ABSENT:
        yield from _same(expected.json, _loaded(answer.body), "caller_sees.json $")
    if expected.text is not None and expected.text.encode() != answer.body:
        wanted, came = expected.text, answer.body.decode("utf-8", "replace")
        if b"ml" in (header(answer.headers, b"content-type") or b"").lower():  # HTML and XML
            wanted, came = _dereferenced(wanted), _dereferenced(came)
        if wanted != came:
            yield f"the body is not that of caller_sees.text{_first_difference(wanted, came)}"
    for name, value in expected.headers.items():
        if header(answer.headers, name.lower().encode()) != value.encode():
            yield f"the header field {name} is not that of caller_sees.headers"


def _dereferenced(page: str) -> str:
    """A text with the signs that its references mean, but for those that are markup."""
    return _REFERENCE.sub(lambda one: chr(int(one[1])), page)


def _first_difference(wanted: str, came: str) -> str:
    """Words about the first place in which two texts differ: of what came only its length."""
    pairs = zip(wanted, came, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    at = min(len(wanted), len(came)) if same is None else same
    rest = json.dumps(wanted[at : at + _NEAR], ensure_ascii=False) if wanted[at:] else "its end"
    before = json.dumps(wanted[max(0, at - _NEAR) : at], ensure_ascii=False)
    return (
        f": from character {at + 1} on, behind {before}, {rest} is expected; it has {len(came)} "
        f"characters in place of {len(wanted)}"
    )


def _same(expected: Any, actual: Any, path: str) -> Iterator[str]:
    """Whether two documents are equal; where not, which places differ."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name in dict.fromkeys((*expected, *actual)):
            if name not in actual:
                yield f"{path}.{name} is missing"
            elif name not in expected:
                yield f"{path}.{name} is there, and caller_sees does not have it"
            else:
                yield from _same(expected[name], actual[name], f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from _same(value, actual[index], f"{path}[{index}]")
    elif expected != actual or isinstance(expected, bool) is not isinstance(actual, bool):
        yield f"{path} is not {json.dumps(expected, ensure_ascii=False)}"


def _loaded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _members(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
