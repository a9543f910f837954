"""Verdicts on versions of a record: which of two has the application, by the tokens that it shows.

Fields of which both have one token follow what the others tell.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter

from proxy.storage.rows import SEEN_IN_PAGE, Staged
from proxy.vault.body import (
    TOKEN_OF,
    RecordBody,
    TokenizedFields,
    TokenizedValue,
    alike,
    changed,
    tokens_of,
)
from proxy.vault.earlier_values import marked_values


def tells(
    texts_shown: Sequence[str], old: Sequence[TokenizedValue], new: Sequence[TokenizedValue]
) -> bool | None:
    """Whether an application that shows these tokens keeps the newer values; ``None``: unknown."""
    before, after, texts = tokens_of(old), tokens_of(new), set(texts_shown)
    if before == after or not texts:
        return None
    if texts & (set(after) - set(before)):
        return True
    if texts & (set(before) - set(after)):
        return False
    # values were added, or taken away, and a part of them may be shown
    if sorted(before) != sorted(after):
        return None
    return True if tuple(texts_shown) == after else False if tuple(texts_shown) == before else None


def is_as_before(
    places: Iterable[tuple[str, str]], new: TokenizedFields, old: TokenizedFields
) -> bool:
    """Whether an object with these (field, token) is as it was: it shows values of before, and no
    newer one. So it has those of before, too, where both have one token.
    """
    texts: dict[str, list[str]] = {}
    for name, text in places:
        texts.setdefault(name, []).append(text)
    verdicts = {tells(texts.get(name, ()), new[name], old[name]) for name in new if name in old}
    return True in verdicts and False not in verdicts


def fields_of_before(
    tokens_shown: Mapping[str, tuple[str, ...]], new: TokenizedFields, values: TokenizedFields
) -> set[str]:
    """The fields of which the answer shows the values of before.

    Of a field whose old and new value have one token, the answer as a whole tells: it shows the
    record as it was where no field has its new value.
    """
    verdicts = {
        name: tells(tokens_shown.get(name, ()), new.get(name, ()), values[name]) for name in values
    }
    names = {name for name, verdict in verdicts.items() if verdict}
    places = [(name, text) for name, texts in tokens_shown.items() for text in texts]
    return names | alike(values, new) if is_as_before(places, new, values) else names


def shows_before(
    versions: tuple[TokenizedFields, TokenizedFields],
    tokens_shown: Mapping[str, tuple[str, ...]],
    moved: AbstractSet[str],
) -> bool:
    """Whether an answer shows the changed fields as they were before, and none as it is now: so
    answers who took none of them, and who answers with the record of before (``findOneAndUpdate``).
    """
    before, after = versions
    verdicts = {
        tells(tokens_shown.get(name, ()), before.get(name, ()), after.get(name, ()))
        for name in moved
    }
    return False in verdicts and True not in verdicts


def written_of(
    fields: TokenizedFields, versions: Iterable[tuple[object, RecordBody]]
) -> dict[str, int]:
    """When these values of several versions were written; of two with them the last one counts."""
    return {
        name: at
        for _, one in versions
        for name, at in one.written.items()
        if one.values.get(name) is fields.get(name)
    }


def superseded(
    later: TokenizedFields, other: TokenizedFields, places: Sequence[tuple[str, str]]
) -> set[str]:
    """The fields of an earlier request (``other``) for which what was written ``later`` counts: no
    token tells, and an object with these (field, token) does not show that the earlier one came
    behind. Where nothing is shown yet, and that may be by another one, it decides.
    """
    same = alike(later, other)
    open_yet = not places and bool(changed(later, other) & later.keys() & other.keys() - same)
    return set() if open_yet or is_as_before(places, later, other) else same


def written_later(
    versions: Sequence[RecordBody],
    part: RecordBody,
    numbers: tuple[int, int],
    places: Sequence[tuple[str, str]],
    single: Container[str],
) -> set[str]:
    """The fields of a record, its live version and those in doubt, that were written after the
    create of another one, ``part``, as far as an object with these (field, token) shows.

    ``numbers``: of the two records. ``single``: the fields whose values have one token.
    """
    live, here, (own, other) = versions[0], {*places}, numbers
    later = [live.written_since(other, own)]
    for version in versions[1:]:
        names = changed(live.values, version.values)
        later.append({name: version.values.get(name, ()) for name in names})
    since = set[str]().union(*(one for one in later if not is_as_before(places, one, part.values)))
    for name in [name for name in part.values if name in single]:
        having = [one for one in versions if name in one.values]
        verdicts = {verdict_by_requests(here, (one, part), name) for one in having}
        if False in verdicts:
            since.add(name)
        elif True in verdicts:
            since.discard(name)
    return since


def replaced_by(
    newer: Iterable[tuple[str, str]], version: RecordBody, places: AbstractSet[tuple[str, str]]
) -> set[str]:
    """The fields of a version of which an object with these (field, token) shows a newer value."""
    own = version.value_tokens()
    later = {name for name, _ in (places - own) & {*newer}}
    return later & version.values.keys() - {name for name, _ in places & own}


def taken(
    pairs: Iterable[tuple[str, str]],
    live: RecordBody,
    versions: Sequence[RecordBody],
    older: Container[int] = (),
) -> list[bool | None]:
    """For each version in doubt whether the application took it, as far as an object with these
    (field, token) tells.

    Yes if the object shows a text that only this version has, or others with the same texts, among
    those that it may have taken.
    No if the object shows a text that the version replaces. ``older``: by their numbers those that
    had been live before: what replaced a part of one was carried out if a text of it is shown, and
    one of which more is shown than of any other is live again.
    """
    here, own = set(pairs), [version.value_tokens() for version in versions]
    befores = list(map(partial(_before, live), versions))
    against = [bool(here & (before - mine)) for before, mine in zip(befores, own, strict=True)]
    certain = [
        bool(here & (mine - befores[at]).difference(*(other for other in own if other != mine)))
        for at, mine in enumerate(own)
    ]
    parts = [here & tokens for tokens in (*own, live.value_tokens())]
    for at in range(len(own)):
        if at in older and not against[at]:
            certain[at] |= all(parts[at] > one for one in (*parts[:at], *parts[at + 1 :]))
    verdicts: list[bool | None] = []
    for at, mine in enumerate(own):
        rivals = [
            other
            for index, other in enumerate(own)
            if other != mine and (certain[index] or not against[index])
        ]
        lone = not against[at] and bool(here & (mine - befores[at]).difference(*rivals))
        is_sure = certain[at] and not (at in older and against[at])
        verdicts.append(True if is_sure or lone else False if against[at] else None)
    return verdicts


def verdict_together(
    here: AbstractSet[tuple[str, str]],
    versions: tuple[RecordBody, RecordBody],
    otherwise: bool | None,
    name: str,
) -> bool | None:
    """The verdict on a field of which the live version and another one have one token, by what
    their requests wrote with it; ``otherwise`` where that tells nothing.

    Where both requests wrote another field, too, an object with these (field, token) shows of that
    the token of the later one.
    """
    live, version = versions
    before, values = live.values, version.values
    if tokens_of(values.get(name, ())) != tokens_of(before.get(name, ())):
        return otherwise
    writer = version.written.get(name)
    if writer == live.written.get(name):  # one request wrote it in both
        return False if writer else otherwise
    return verdict_by_requests(here, versions, name, otherwise)


def verdict_by_requests(
    here: AbstractSet[tuple[str, str]],
    versions: tuple[RecordBody, RecordBody],
    name: str,
    otherwise: bool | None = None,
) -> bool | None:
    """The verdict on a field by those alone that the same requests wrote in both versions."""
    live, version = versions
    verdicts = {
        tells([text for of, text in here if of == one], live.values[one], version.values[one])
        for one in version.written_with(name, live)
    } - {None}
    return verdicts.pop() if len(verdicts) == 1 else otherwise


def values_shown(
    places: Iterable[tuple[str, str]],
    live: RecordBody,
    versions: Sequence[RecordBody],
    older: Container[int],
) -> dict[str, tuple[TokenizedValue, ...]]:
    """The values by field of which an object shows these (field, token): live or erased, of
    versions in doubt that it shows as taken, or shown alone of a field where values have one token.
    Where nothing of that tells, of the version that explains most of the object, or the latest.
    """
    here, fields, owners = set(places), marked_values(live), dict[str, RecordBody]()
    verdicts = taken(here, live, versions, older)
    for at, (version, verdict) in enumerate(zip(versions, verdicts, strict=True)):
        for name, values in version.values.items():
            before, tokens = fields.get(name, ()), {(name, one.token) for one in values}
            live_age = owners.get(name, live).age(name, before)
            shows = at in older or version.age(name, values) > live_age
            if not verdict:
                shows = len(tokens) < len(values) and not here.isdisjoint(tokens)
                shows &= here.isdisjoint((name, one.token) for one in before)
            if verdict_together(here, (live, version), shows, name):
                fields[name], owners[name] = values, version
    explained = [(len(here & version.value_tokens()), version) for version in reversed(versions)]
    for _, version in sorted(explained, key=itemgetter(0), reverse=True):
        fields = {**version.values, **fields}
    return fields


def shown_of(
    versions: Sequence[tuple[Staged | None, RecordBody]], places: Sequence[tuple[str, str]]
) -> TokenizedFields:
    """The values of these versions, last the live one, as an object with these (field, token) has
    them: one in doubt that it shows counts for fields, too, of which both have one token.
    """
    doubtful, (_, live) = versions[:-1], versions[-1]
    older = {at for at, (one, _) in enumerate(doubtful) if one and one.at >= SEEN_IN_PAGE}
    fields = values_shown(places, live, [of for _, of in doubtful], older)
    bodies = [of.values for _, of in versions]  # and no marks of erased values
    return {name: of for name, of in fields.items() if any(one.get(name) is of for one in bodies)}


def _before(live: RecordBody, version: RecordBody) -> set[tuple[str, str]]:
    """Every (field, token) of the live values, and the erased ones that a version writes over: the
    application may have their tokens still.
    """
    if not live.earlier:
        return live.value_tokens()
    return {
        (name, one.token)
        for name, values in marked_values(live).items()
        if live.values.get(name) or name in version.values
        for one in values
    }


def adopted_values(
    texts: Sequence[str], old: Sequence[TokenizedValue], new: Sequence[TokenizedValue]
) -> tuple[TokenizedValue, ...]:
    """The newer values of a field, plus the older ones that the application still shows."""
    beyond = set(texts).difference(map(TOKEN_OF, new))
    return (*new, *[value for value in old if value.token in beyond]) if beyond else tuple(new)
