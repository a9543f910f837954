"""``Expect: 100-continue`` (RFC 9110, section 10.1.1): a caller is told to send its body when somebody is about to read it.

The library tells it before anything is known of the request. Here it does not get to see the field; whoever reads a body says
``proceed`` first, so that a request that is refused for its caller, its size or its type is refused without its body.
"""

from typing import Any, Final

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict, CIMultiDictProxy

#: There on a request whose caller waits with its body; true until it was told to send it.
_EXPECTS: Final = web.RequestKey("expects", bool)

_FIELD: Final = "Expect"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def expects(message: Any) -> bool:
    """Whether the sender of a head waits to be told that its body may come. Any other expectation is the library's to refuse."""
    if _FIELD not in message.headers or message.version != HttpVersion11:
        return False
    return {value.strip().lower() for value in message.headers.getall(_FIELD)} == {"100-continue"}


def without(message: Any) -> Any:
    """The head without that field."""
    headers = CIMultiDict(message.headers)
    del headers[_FIELD]
    return message._replace(headers=CIMultiDictProxy(headers))


def note(request: web.BaseRequest) -> None:
    """The sender of that request waits."""
    request[_EXPECTS] = True


async def proceed(request: web.Request) -> None:
    """Tell a caller that waits that its body may come."""
    if request.get(_EXPECTS):
        request[_EXPECTS] = False
        writer = request.writer
        await writer.write(_CONTINUE)
        writer.output_size = 0  # the answer itself has not begun


def unsent(request: web.Request) -> bool:
    """Whether the caller may still hold its body back: then the connection cannot go on behind the answer."""
    return request.get(_EXPECTS, False) and request.can_read_body
