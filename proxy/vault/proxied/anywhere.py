"""Tokens where no record is known: in running text, and as values of a request."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.tokenization.base import Resolution
from proxy.vault.collection import Collection
from proxy.vault.proxied.open_rows import AnswerObject, OpenRow, Revealed
from proxy.vault.proxied.reveal import reveal


class Anywhere(NamedTuple):
    """The values by token, and the nameless records that some of them belong to."""

    values: dict[str, tuple[str, Value]]  #: each with its field
    loose: list[OpenRow]
    opened: dict[int, OpenRow]  #: every record that was looked at, by its number


async def reveal_anywhere(
    collection: Collection, texts: Iterable[str], names: AbstractSet[str] = frozenset()
) -> Anywhere:
    """Values of tokens found in running text, where no field and no record is known: each stands
    for its own field there.

    ``names``: the fields that it may stand for; empty: any.
    """
    candidates = list(dict.fromkeys(texts))
    shown = [
        AnswerObject(
            None,
            tuple(
                (name, text)
                for name in collection.tokenizers
                if (not names or name in names) and collection.tokenizers[name].resembles(text)
            ),
        )
        for text in candidates
    ]
    revealed = await reveal(collection, shown)
    found: dict[str, tuple[str, Value]] = {}
    for text, item, values in zip(candidates, shown, revealed.values, strict=True):
        meanings = zip(item.places, values, strict=True)
        meaning = next(
            ((name, value) for (name, _), value in meanings if value is not None), None
        ) or _of_old_shape(collection, item, revealed)
        if meaning is not None:
            found[text] = meaning
    return Anywhere(found, [record for _, record in revealed.loose], revealed.opened)


def _of_old_shape(
    collection: Collection, item: AnswerObject, revealed: Revealed
) -> tuple[str, Value] | None:
    """The value of a token that carries its record and looks like those of another field: its own
    has got another shape since.
    """
    for name, text in item.places[:1]:
        one = revealed.opened.get(collection.identify(name, text) or 0)
        if one is not None and text in one.token_texts:
            return next(
                (field, value) for (field, token), value in one.values.items() if token == text
            )
    return None


#: A shape with so many tokens gives none that a value equals by chance.
_BEYOND_CHANCE = 2.0**64


async def own(
    collection: Collection, places: Iterable[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Which of these (field, text) are same-value tokens of records that are kept, and so no values
    of anybody.

    Only of shapes too large for a value to equal a token by chance. While the store cannot be read,
    none are.
    """
    hashes = {
        collection.token_hash(name, text): (name, text)
        for name, text in places
        if collection.tokenizers[name].resembles(text)
        and collection.shapes[name].resolution is Resolution.INDEXED
        and collection.shapes[name].capacity() >= _BEYOND_CHANCE
    }
    if not hashes:
        return frozenset()
    try:
        found = await collection.store.by_tokens(collection.table, list(hashes))
    except VaultError as error:
        if error.code is not Code.VAULT_DOWN:
            raise
        return frozenset()
    return frozenset(hashes[digest] for digest, rids in found.items() if rids)
