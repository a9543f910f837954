"""The settings of who may call the vault's own interface; a part of ``config.table``."""

from typing import Final

from proxy.config import values
from proxy.config.setting import Setting

ACCESS: Final[dict[str, Setting]] = {
    "auth.token_lifetime": Setting(
        "300",
        values.whole(10, 3600),
        "a whole number of seconds, such as 300",
        "How long an access token to the vault's own interface is valid, in seconds.",
    ),
    "auth.audiences": Setting(
        "[]",
        values.origins,
        "a list of addresses, such as [https://se-vault.example.com]",
        "The addresses that callers reach the vault listener by; none: those it has itself. Tokens are for these alone.",
        many=True,
    ),
    "auth.issuer": Setting(
        "embedded",
        values.issuer,
        "embedded, or jwks: or introspection: and an address, such as jwks:https://login.example.com/keys",
        "An external issuer whose access tokens count, too: verified by its keys, or asked about one by one.",
    ),
    "auth.issuer_name": Setting(
        "none",
        values.word_or_none,
        "the name of the issuer, such as https://login.example.com, or none",
        "What tokens of the external issuer have as iss; needed unless auth.introspection_optional_claims names iss.",
    ),
    "auth.issuer_audiences": Setting(
        "[]",
        values.words,
        "a list of names, such as [api://vault]",
        "What tokens of the external issuer name as their audience (aud); none: auth.audiences.",
        many=True,
    ),
    "auth.issuer_authorities": Setting(
        "system",
        values.path_or("system"),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "Who may vouch for the external issuer at https://; system: the authorities of this machine.",
    ),
    "auth.introspection_credentials": Setting(
        "none",
        values.secret,
        "none, env: and the name of a variable, or file:/// and the path of a file",
        "Where the id and the secret are, with a colon between them, by which the vault introspects at the external issuer.",
    ),
    "auth.introspection_optional_claims": Setting(
        "[]",
        values.some_of("aud", "iss"),
        "a list of aud and iss, such as [aud], or []",
        "The claims that an answer to introspection may lack (RFC 7662 makes both optional); without aud, tokens for other services of the issuer count here, too.",
        many=True,
    ),
    "auth.environment_claim": Setting(
        "scope",
        values.word_or_none,
        "the name of a claim, such as scope, or none",
        "The claim of the external issuer's tokens that names the environment; none: a client is registered in one alone, by administrators of default.",
    ),
    "auth.client_claim": Setting(
        "client_id",
        values.claim,
        "the name of a claim, such as client_id, azp or sub",
        "The claim of the external issuer's tokens that names the client, by the external_id it is registered with.",
    ),
    "admin.metrics_token": Setting(
        "none",
        values.secret,
        "none, env: and the name of a variable, or file:/// and the path of a file",
        "Where the secret is that a scraper of /metrics shows as its bearer token; without it, an administrator's access token alone counts.",
    ),
    "acl.timeout": Setting(
        "5s",
        values.duration,
        "a number and a unit, such as 5s",
        "How long a filter endpoint (external_acl of an access policy) may take to answer; later than that nothing is allowed.",
    ),
    "acl.authorities": Setting(
        "system",
        values.path_or("system"),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "Who may vouch for a filter endpoint at https://; system: the authorities of this machine.",
    ),
    "acl.allow": Setting(
        "[]",
        values.hosts,
        "a list of host names, networks and addresses, such as [app.example.com, 10.1.0.0/16]",
        "The hosts that policies of other environments than default may name as their filter endpoint; none: they may name no filter endpoint.",
        many=True,
    ),
}
