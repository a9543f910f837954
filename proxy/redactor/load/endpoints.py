"""``endpoint:`` and ``on_error:`` compiled."""

from proxy.redactor.load.forms import Section
from proxy.redactor.rules import Endpoint, Limits, OnError, Unmatched


def compile_endpoint(section: Section, on_error: Section | None) -> Endpoint | None:
    """The endpoint; ``None`` where its name or address was at fault."""
    name, upstream = section.value("name"), section.value("upstream")
    if name is None or upstream is None:
        return None
    return Endpoint(
        name,
        upstream,
        frozenset(item.value for item in section.value("host", []) if item.value),
        section.value("prefix", ""),
        Unmatched(section.value("unmatched", "report")),
        _limits(section.value("limits")),
        _on_error(on_error),
    )


def _limits(section: Section | None) -> Limits:
    if section is None:
        return Limits()
    return Limits(**{key: section.value(key) for key in section if section.value(key) is not None})


def _on_error(section: Section | None) -> OnError:
    if section is None:
        return OnError()
    given = {key: section.value(key) for key in section if key != "vault_down" and section.value(key) is not None}
    vault_down: Section | None = section.value("vault_down")
    if vault_down is not None and vault_down.value("write") is not None:
        given["vault_down_write"] = vault_down.value("write")
    if vault_down is not None and vault_down.value("read") is not None:
        given["vault_down_read"] = str(vault_down.value("read"))
    if "unreadable_answer" in given:
        given["unreadable_answer"] = str(given["unreadable_answer"])
    return OnError(**given)
