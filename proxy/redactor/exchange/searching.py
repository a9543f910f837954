"""Searches with more rules than the field of a parameter: tokens replace their values."""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.offload import SMALL, in_thread, is_long
from proxy.redactor.exchange.known_tokens import SearchTokens
from proxy.redactor.exchange.vault_search import VaultSearch
from proxy.redactor.message import Request
from proxy.redactor.search import SearchPlan
from proxy.redactor.sought import Searched, SoughtValue
from proxy.vault.collection import Collection


class Searching:
    """Redaction of the searches of one operation; made when rules load."""

    def __init__(self, plan: SearchPlan, collection: Collection) -> None:
        self.plan = plan
        self._collection = collection
        self._vault = VaultSearch(collection)

    async def sent(
        self, request: Request, permit: Callable[[set[str]], None]
    ) -> tuple[Request, SearchTokens]:
        """The request as the application may see it, and the tokens that it searches by.

        ``permit``: raises for fields that the caller may not search by; a returning token is no
        search. The vault is queried only after that. Raises ``VaultError``; then nothing may be
        sent.
        """
        address = self.plan.address(request.target)
        long = len(request.body) > SMALL and is_long(request.body)
        parts = request.headers, request.body
        body = await in_thread(self.plan.body, *parts) if long else self.plan.body(*parts)
        questions = [*address.questions, *body.questions]
        permit({field for one in questions for field in one.fields})
        tokens = await self._looked_up(address, body)
        values = [*address.every, *body.every]
        permit({one.field for one in values if not tokens.returns(one)})
        ids: list[str] = []
        if questions:
            ids, tokens.questioned = await self._vault.ids(questions), True
        token_of = _explaining(tokens)
        target = address.written(request.target, token_of, ids, mixed=True)
        written = partial(body.written, request.body, token_of, ids, mixed=True)
        content = await in_thread(written) if long else written()
        tokens.mixed = frozenset([one.value for part in (address, body) for one in part.mixed])
        return replace(request, target=target, body=content), tokens

    async def readdressed(self, target: bytes) -> bytes:
        """Return the target of an earlier search with tokens in place of values.

        Values that cannot be replaced are removed.
        """
        try:
            address = self.plan.address(target)
            if address.lists or address.questions:
                target = target.partition(b"?")[0]
                address = Searched([one for one in address.values if one.end <= len(target)])
            return address.written(target, _explaining(await self._looked_up(address)))
        except VaultError:
            return b"/"

    async def _looked_up(self, *parts: Searched) -> SearchTokens:
        tokens = SearchTokens(self._collection)
        places = [(one.field, one.value) for part in parts for one in part.every]
        if places:
            await tokens.look_up(places)
        return tokens


def _explaining(tokens: SearchTokens) -> Callable[[SoughtValue], Value | None]:
    """Return the token of a value; a misfit is reported by its place."""

    def token_of(one: SoughtValue) -> Value | None:
        try:
            return tokens.token(one)
        except VaultError as error:
            if error.code is not Code.VALUE_UNFIT:
                raise
            detail = Detail(one.source, f"{one.field}: {error.message}")
            raise VaultError(error.code, error.message, (detail,)) from None

    return token_of
