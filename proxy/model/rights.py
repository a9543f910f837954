"""Callers of the vault's own interface, and the rights of one on records of one schema, combined
from its access policies.

``Rights`` are made once for each combination of policies and schema (``auth.rights``); a client
without policies has ``FULL``, which costs nothing. Three things make sure that what must not be
seen is not:

- ``view`` is the schema as the caller knows it. Hidden fields are not in it, so they are unknown
  wherever a request names them; redacted and masked ones are there as fields of which nothing can
  be asked.
- ``rows`` are tests that every record has to pass that the caller finds, changes, makes or deletes.
- ``render`` is the one way from a record of the vault to one that may leave it; what writes answers
  takes nothing else.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import Test
from proxy.model.record import Fields, Record
from proxy.model.schema import Schema


class Role(enum.StrEnum):
    """A duty of a client that sees no records; an administrator has all of them."""

    KEY_OFFICER = "key_officer"  #: lists and rotates keys
    ACCESS_OFFICER = "access_officer"  #: looks after clients and policies
    AUDITOR = "auditor"  #: reads and verifies the audit log, and who may do what
    OPERATOR = "operator"  #: metrics, readiness, reloads, and jobs in the background


class Principal(msgspec.Struct, frozen=True):
    """An authenticated client and its rights."""

    client: str  #: its identifier; stands in the history of its writes
    environment: str
    admin: bool = False  #: may also change schemas, clients and policies
    #: the access policies it is under; none: everything in its environment
    policies: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()  #: any: it sees no records, unless it is an administrator

    def has(self, *roles: Role) -> bool:
        """Whether it has one of these roles, or all as an administrator."""
        return self.admin or any(role in self.roles for role in roles)


class VisibleRecord(Record, frozen=True):
    """A record as the caller whose rights made it may see it; for ``FULL`` the very record."""


class Redactor(NamedTuple):
    """Redaction or mask of one field."""

    #: makes (record id, era of the value, value) into the visible text
    show: Callable[[int, int, str], str]
    fits: Callable[[str], bool]  #: whether it could have made this text of some value
    #: the text is made of the value alone; else of the record and the era, whatever the value says
    masks: bool = False
    #: its texts are so many that one of an earlier era is not written as a value by chance
    distinct: bool = True

    def renders(self, record: Record, name: str, text: str) -> bool:
        """Whether a redacted text was ever shown for any of the record's values of the field."""
        if self.masks or not self.fits(text):
            return False
        era = (record.eras or {}).get(name, 0)
        eras = {era} if isinstance(era, int) else set(era)
        if self.distinct:
            eras.update((0, *range(max(0, record.version - _PAST_ERAS), record.version + 1)))
        return any(self.show(record.rid, one, "") == text for one in eras)


#: Versions of a record whose redacted texts are recognised when they come back.
_PAST_ERAS: Final = 64

#: Default modes of the filter endpoint and the firewall.
FirewallMode = Literal["block", "mask"]


class Rights(msgspec.Struct, frozen=True, eq=False):
    """The rights of a caller to the records of one schema."""

    actions: frozenset[Act]
    view: Schema | None = None  #: ``None``: the whole schema, in the clear
    names: frozenset[str] = frozenset()  #: the fields of ``view`` that are shown at all
    veils: Mapping[str, Redactor] = {}  #: of those, the ones that are not shown as they are
    #: all of them have to hold; they may ask of fields that are not in ``view``
    rows: tuple[Test, ...] = ()
    changing: Mapping[
        Act, tuple[Test, ...]
    ] = {}  #: further ones for actions that are allowed in fewer rows than are shown
    #: tests of visible records, if ``rows`` has further ones
    shown_rows: tuple[Test, ...] | None = None
    #: whether records can be made at all: not where a field is hidden that each must have
    creates: bool = True
    acl: str | None = None  #: the filter endpoint that decides about each record
    firewall: FirewallMode | None = None
    #: valid purposes: one of each of these; an empty one admits any
    purposes: tuple[tuple[str, ...], ...] = ()
    files: bool = True  #: whether attachments are shown
    #: changes with any policy; texts that a caller carries for us are bound to it
    mark: str = ""
    abroad: "Rights | None" = None  #: the same rights outside the country

    def allows(self, act: Act) -> bool:
        """Whether that may be done at all."""
        return act in self.actions

    def need(self, *acts: Act) -> None:
        """Raise ``VaultError(ACCESS_DENIED)`` unless all of that may be done."""
        if not self.actions.issuperset(acts):
            raise denied()

    def doing(self, acts: Iterable[Act]) -> "Rights":
        """The same for what takes all of these actions: only records with which each is allowed."""
        more = (
            [test for act in acts for test in self.changing.get(act, ())] if self.changing else []
        )
        return (
            msgspec.structs.replace(self, rows=(*self.rows, *more), shown_rows=self.rows)
            if more
            else self
        )

    @property
    def visible(self) -> tuple[Test, ...]:
        """Tests that every record visible to the caller passes, even if fewer may be changed."""
        return self.rows if self.shown_rows is None else self.shown_rows

    def render(self, record: Record) -> VisibleRecord:
        """The record as the caller may see it."""
        if self.view is None:
            return cast(VisibleRecord, record)
        names = self.names
        fields: Fields = {name: value for name, value in record.fields.items() if name in names}
        for name, veil in self.veils.items():
            value = fields.get(name)
            if value is not None:
                fields[name] = _veiled(veil, record, name, value)
        attachments = record.attachments if self.files else ()
        visible = msgspec.structs.replace(record, fields=fields, attachments=attachments, eras=None)
        return cast(VisibleRecord, visible)

    @property
    def redacted_fields(self) -> list[str]:
        """The names of the fields whose shown values are not those that are stored."""
        return list(self.veils)

    def shows_value(self, name: str) -> bool:
        """Whether the caller sees the value of the field as it is."""
        return self.view is None or (name in self.names and name not in self.veils)

    def unseen(self, fields: Iterable[str]) -> frozenset[str]:
        """Return the fields whose values the caller does not see in the clear."""
        return (
            frozenset()
            if self.view is None
            else frozenset(name for name in fields if not self.shows_value(name))
        )

    def beyond(self, fields: Fields) -> Fields:
        """The fields never shown to the caller, so omitting them does not change them."""
        if self.view is None:
            return {}
        return {name: value for name, value in fields.items() if name not in self.names}

    def unchanged(self, record: Record, fields: Fields, *, readable: bool) -> frozenset[str]:
        """Return the submitted fields whose text is what the caller is shown in place of the value.

        Such a text comes from a record that was read and is written back: it means that the value
        stays. A redacted text of an earlier value means so, too. ``readable``: the caller may read
        this record; who may not must not learn by this what its mask is.
        """
        names: set[str] = set()
        for name, veil in self.veils.items():
            text, stored = fields.get(name), record.fields.get(name)
            if not isinstance(text, str):
                continue
            same = (
                readable
                and veil.masks
                and isinstance(stored, str)
                and _veiled(veil, record, name, stored) == text
            )
            if same or veil.renders(record, name, text):
                names.add(name)
        return frozenset(names)

    def masked(self, fields: Fields) -> list[str]:
        """Return the submitted fields whose text has the form of a mask, so is no value."""
        if not self.veils:
            return []
        sent = ((name, veil, fields.get(name)) for name, veil in self.veils.items() if veil.masks)
        return [name for name, veil, text in sent if isinstance(text, str) and veil.fits(text)]

    def outside(self) -> "Rights":
        """The same for a caller outside the country: fields are redacted, masked or not shown."""
        if self.abroad is None:
            raise VaultError(
                Code.INTERNAL, "Rights to everything say nothing of a schema: ask for those of one."
            )
        return self.abroad


#: Everything, in the clear: the rights of a client without policies.
FULL: Final = Rights(frozenset(Act))


def denied(details: tuple[Detail, ...] = ()) -> VaultError:
    """The refusal of what access policies do not allow."""
    return VaultError(
        Code.ACCESS_DENIED, "The access policies of this client do not allow that.", details
    )


def _veiled(veil: Redactor, record: Record, name: str, value: Any) -> Any:
    """Return the text shown in place of a value, or of each of several."""
    era = (record.eras or {}).get(name, 0)
    if isinstance(value, list):
        eras = era if not isinstance(era, int) else [era] * len(value)
        return [veil.show(record.rid, one, text) for one, text in zip(eras, value, strict=True)]
    return veil.show(record.rid, era if isinstance(era, int) else era[0], value)
