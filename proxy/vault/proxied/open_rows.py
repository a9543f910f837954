"""Opens rows together with what is staged beside them, for the answers that show them.

A row that does not open is logged by its event and left out. Many rows are opened with turns of the
event loop between them, long rows on another thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.offload import busy, give_way, run_in_thread, strides
from proxy.storage.rows import Row, Staged
from proxy.vault.body import TokenizedBody, TokenizedValue, newest, taken, tokens_of
from proxy.vault.collection import LONG, LOOKED_UP, Collection

#: Rows that are opened between two looks whether others have to be let go on.
_OPENED = 16


@dataclass(slots=True)
class OpenRow:
    """A row with its versions in the clear, as one answer needs them."""

    row: Row
    live: TokenizedBody
    staged: list[tuple[Staged, TokenizedBody | None]] = field(default_factory=list)
    repeats: bool = False  #: whether values of one field have one token
    values: dict[tuple[str, str], Value] = field(default_factory=dict)  #: by (field, token)
    _texts: frozenset[str] | None = None

    def learn(self, content: TokenizedBody) -> None:
        """Add the tokens of a version; a version learnt earlier wins where small tokens collide."""
        self._texts = None
        for name, values in content.fields.items():
            if len(values) > 1 and len(set(tokens_of(values))) < len(values):
                self.repeats = True
            for kept in values:
                self.values.setdefault((name, kept.token), kept.value)

    @property
    def token_texts(self) -> frozenset[str]:
        """The texts of all tokens, whatever their field.

        Asked for only once a token stands where it opens nothing.
        """
        if self._texts is None:
            self._texts = frozenset(token for _, token in self.values)
        return self._texts

    def seen(self, places: Sequence[tuple[str, str]]) -> Mapping[str, tuple[TokenizedValue, ...]]:
        """The values of an object with these (field, token): the live ones, and what it shows to be
        taken of versions in doubt.
        """
        fields = dict(self.live.fields)
        versions = [content for _, content in self.staged if content is not None]
        for version, verdict in zip(versions, taken(places, self.live, versions), strict=True):
            for name, values in version.fields.items() if verdict else ():
                if newest(values) > newest(fields.get(name, ())):
                    fields[name] = values
        return fields


async def open_rows(
    collection: Collection, rids: Iterable[int], rows: Iterable[Row]
) -> dict[int, OpenRow]:
    """Open rows by id, and these rows, with what is staged beside them."""
    found = {row.rid: row for row in rows}
    wanted = [rid for rid in rids if rid not in found]
    for some in strides(wanted, LOOKED_UP):
        fetched = await collection.store.rows(collection.table, some)
        found.update((rid, row) for rid, row in fetched.items() if collection.alive(row))
        if busy():
            await give_way()
    staged = await collection.beside(found)
    opened: dict[int, OpenRow] = {}
    for count, (rid, row) in enumerate(found.items(), 1):
        try:
            opened[rid] = await run_in_thread(
                len(row.body) > LONG, _open_row, collection, row, staged.get(rid, ())
            )
        except VaultError as error:
            if error.code is not Code.CANNOT_OPEN:
                raise
            collection.observe("unopenable")
        if count % _OPENED == 0 and busy():
            await give_way()
    return opened


def _open_row(collection: Collection, row: Row, staged: Sequence[Staged]) -> OpenRow:
    opened = OpenRow(row, collection.sealer.open(row))
    opened.learn(opened.live)
    for change in staged:
        content = collection.sealer.open_staged(change, row.salt) if change.body else None
        opened.staged.append((change, content))
        if content is not None:
            opened.learn(content)
    return opened
