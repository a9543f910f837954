"""What ``domicile serve`` says when it starts: which rules are in force, for which applications, and what happens to the rest."""

from typing import Final, TextIO

from proxy.redactor.rules import Endpoint, RuleSet, Unmatched

_FATES: Final[dict[Unmatched, str]] = {
    Unmatched.REPORT: "passes unchanged; each shape of a path is told once in the log, with the kinds of values suspected in it",
    Unmatched.PASS: "passes unchanged, and nothing is said of it",
    Unmatched.DENY: "is refused",
}


def announce(rules: RuleSet, stream: TextIO) -> None:
    """Say what is in force: a page on a terminal, log lines elsewhere."""
    if stream.isatty():
        print(banner(rules), file=stream, flush=True)
        return
    from proxy.telemetry import logs

    log = logs.logger("serve")
    log.info("rules in force", version=rules.version, files=list(rules.files), count=len(rules.operations))
    for endpoint in rules.endpoints:
        operations, passed = _counts(rules, endpoint)
        log.info(
            "endpoint in force",
            endpoint=endpoint.name,
            address=endpoint.upstream,
            count=operations,
            passed=passed,
            unmatched=str(endpoint.unmatched),
        )
    if not rules.endpoints:
        log.warning("no rules: the proxy serves no application, the vault's own interface alone is in use")
    if is_demo(rules):
        log.warning("these are the rules of the demo, for its sample application", files=list(rules.files))


def banner(rules: RuleSet) -> str:
    """What is in force, for people."""
    lines = [f"  Rules      {file}" for file in rules.files]
    for endpoint in rules.endpoints:
        operations, passed = _counts(rules, endpoint)
        lines += [
            f"  Endpoint   {endpoint.name}{_selected(endpoint)} -> {endpoint.upstream}",
            f"             {operations} operations protected, {passed} passed on purpose",
            f"             all else: {_FATES[endpoint.unmatched]}",
        ]
    if not rules.endpoints:
        lines.append("  Rules      none: the proxy serves no application, the vault's own interface alone is in use")
    if is_demo(rules):
        lines.append(
            "  Note       these are the rules of the demo, for its sample application: write your own, and name them with the setting rules"
        )
    return "\n".join(["", *lines, ""])


def _counts(rules: RuleSet, endpoint: Endpoint) -> tuple[int, int]:
    """Operations of an endpoint, and rules that let requests pass."""
    return (
        sum(rule.endpoint.name == endpoint.name for rule in rules.operations),
        sum(rule.endpoint.name == endpoint.name for rule in rules.passed),
    )


def _selected(endpoint: Endpoint) -> str:
    """By what requests are told to be for an endpoint."""
    hosts = f" ({', '.join(sorted(endpoint.hosts))})" if endpoint.hosts else ""
    return f"{hosts} {endpoint.prefix}".rstrip()


def is_demo(rules: RuleSet) -> bool:
    """Whether these are the rules of ``domicile demo``, which protect its sample application."""
    return any(
        (rule.endpoint.name, rule.endpoint.upstream, rule.label)
        == ("contacts", "http://127.0.0.1:3000", "POST /api/contacts")
        for rule in rules.operations
    )
