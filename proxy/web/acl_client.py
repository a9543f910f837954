"""Asks filter endpoints (``auth.acl``) over HTTP."""

from collections.abc import Callable

from proxy.auth.acl import late, wrong
from proxy.web.outbound import Outbound, UnansweredError

#: Told how each exchange ended: ``answered``, ``wrong``, ``late``.
Observe = Callable[[str], None]


class AclClient:
    """One client for all policies; ``outbound`` is entered by whoever made it."""

    def __init__(self, outbound: Outbound, observe: Observe) -> None:
        self._outbound = outbound
        self._observe = observe

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        """The body of the endpoint's answer. Raises as ``auth.acl.Asker``."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        try:
            body = await self._outbound.ask("POST", url, headers, question)
        except TimeoutError:
            self._observe("late")
            raise late(self._outbound.seconds) from None
        except UnansweredError as error:
            self._observe("wrong")
            raise wrong(str(error)) from None
        self._observe("answered")
        return body
