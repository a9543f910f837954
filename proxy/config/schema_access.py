"""The settings of keys and of access to the vault's own interface; part of ``config.schema``."""

from typing import Final

from proxy.config import parsers
from proxy.config.parsers import Setting

#: Between processes that carry requests and the one whose vault they use.
REMOTE: Final[dict[str, Setting]] = {
    "remote.listen": Setting(
        "none",
        parsers.word_or("none", parsers.address),
        "host:port, such as 0.0.0.0:8090, or none",
        "The address at which instances without a vault use this one's, over mutual TLS.",
    ),
    "remote.clients": Setting(
        "[]",
        parsers.words,
        "a list of names, such as [sidecar.contacts.internal]",
        "The names (DNS names, otherwise common names) in the certificates of permitted "
        "instances; all others are refused.",
        many=True,
    ),
    "remote.vault": Setting(
        "none",
        parsers.word_or("none", parsers.address),
        "host:port, such as vault.internal:8090, or none",
        "The instance whose vault this one uses (its remote.listen). Nothing is stored here, and "
        "the vault's own interface is there.",
    ),
    "remote.authorities": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file with certificates (PEM), such as /etc/domicile/remote/ca.crt, or none",
        "The certificate authorities of the other side.",
    ),
    "remote.certificate": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file with a certificate (PEM), such as /etc/domicile/remote/tls.crt, or none",
        "The certificate that is presented to the other side.",
    ),
    "remote.key": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a file with a key (PEM), such as /etc/domicile/remote/tls.key, or none",
        "The key of that certificate.",
    ),
}

ACCESS: Final[dict[str, Setting]] = {
    "keys": Setting(
        "file:///{data}/keys.json",
        parsers.keys,
        "file:///{data}/keys.json, file:/// and the whole path of a file, env: and the name of a "
        "variable, or the address of a key file that a key service has sealed, such as "
        "aws-kms:///{data}/keys.json?key=arn:aws:kms:…",
        "The source of the keys. A key file is created at the first start of a new vault; back "
        "it up apart from the data. A key service (AWS KMS, Google Cloud KMS, Azure Key Vault, "
        "HashiCorp Vault) can encrypt it.",
    ),
    "auth.token_lifetime": Setting(
        "300",
        parsers.whole_number(10, 3600),
        "a whole number of seconds, such as 300",
        "How long an access token to the vault's own interface is valid, in seconds.",
    ),
    "auth.first_client": Setting(
        "none",
        parsers.word_or("none", parsers.path),
        "a folder with the files id and secret, such as /run/secrets/first-client, or none",
        "A mounted folder with the id and the secret of the first client, an administrator, of a "
        "vault that has none. A vault that has clients ignores it.",
    ),
    "auth.four_eyes": Setting(
        "[]",
        parsers.some_of("keys", "access", "exports"),
        "a list of some of keys, access and exports, or all",
        "The requests that a second person must approve before they are executed. keys: key "
        "rotation; access: changes of clients, policies and environments, removal of schemas and "
        "honeytoken (bait) marks, reloads; exports: exports and the rehash of all records.",
        many=True,
    ),
    "auth.approval_lifetime": Setting(
        "24h",
        parsers.duration,
        "a number and a unit, such as 24h",
        "How long a request waits for a second person, and how long an approval is valid.",
    ),
    "auth.emergency_lifetime": Setting(
        "1h",
        parsers.duration,
        "a number and a unit, such as 1h",
        "The longest time for which a client can take an emergency role (break-glass).",
    ),
    "auth.audiences": Setting(
        "[]",
        parsers.origins,
        "a list of addresses, such as [https://se-vault.example.com]",
        "The addresses by which callers reach the vault listener; none: its own. Tokens are "
        "valid for these only.",
        many=True,
    ),
    "auth.issuer": Setting(
        "embedded",
        parsers.word_or("embedded", parsers.issuer),
        "embedded, or jwks: or introspection: and an address, such as "
        "jwks:https://login.example.com/keys",
        "An external issuer whose access tokens are accepted too: verified with its keys, or by "
        "introspection of each token.",
    ),
    "auth.issuer_name": Setting(
        "none",
        parsers.word_or("none", parsers.word),
        "the name of the issuer, such as https://login.example.com, or none",
        "The iss of the external issuer's tokens; required unless "
        "auth.introspection_optional_claims names iss.",
    ),
    "auth.issuer_audiences": Setting(
        "[]",
        parsers.words,
        "a list of names, such as [api://vault]",
        "The audiences (aud) of the external issuer's tokens; none: auth.audiences.",
        many=True,
    ),
    "auth.issuer_authorities": Setting(
        "system",
        parsers.word_or("system", parsers.path),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "The certificate authorities of the external issuer at https://; system: those of this "
        "machine.",
    ),
    "auth.introspection_credentials": Setting(
        "none",
        parsers.word_or("none", parsers.secret),
        "none, env: and the name of a variable, or file:/// and the path of a file",
        "The source of the id and secret, separated by a colon, with which the vault introspects "
        "at the external issuer.",
    ),
    "auth.introspection_optional_claims": Setting(
        "[]",
        parsers.some_of("aud", "iss"),
        "a list of aud and iss, such as [aud], or []",
        "The claims that an introspection answer may omit (RFC 7662 makes both optional). "
        "Without aud, tokens for other services of the issuer are accepted here, too.",
        many=True,
    ),
    "auth.environment_claim": Setting(
        "scope",
        parsers.word_or("none", parsers.word),
        "the name of a claim, such as scope, or none",
        "The claim of the external issuer's tokens that names the environment; none: a client is "
        "registered in one only, by administrators of default.",
    ),
    "auth.client_claim": Setting(
        "client_id",
        parsers.claim,
        "the name of a claim, such as client_id, azp or sub",
        "The claim of the external issuer's tokens that names the client, as its registered "
        "external_id.",
    ),
    "admin.metrics_token": Setting(
        "none",
        parsers.word_or("none", parsers.secret),
        "none, env: and the name of a variable, or file:/// and the path of a file",
        "The source of the secret that a scraper of /metrics sends as its bearer token; without "
        "it, only access tokens of administrators and operators are accepted.",
    ),
    "acl.timeout": Setting(
        "5s",
        parsers.duration,
        "a number and a unit, such as 5s",
        "How long a filter endpoint (external_acl of an access policy) may take to answer; after "
        "that, nothing is allowed.",
    ),
    "acl.authorities": Setting(
        "system",
        parsers.word_or("system", parsers.path),
        "a PEM file of certificates, such as /etc/domicile/ca.pem, or system",
        "The certificate authorities of filter endpoints at https://; system: those of this "
        "machine.",
    ),
    "acl.allow": Setting(
        "[]",
        parsers.hosts,
        "a list of host names, networks and addresses, such as [app.example.com, 10.1.0.0/16]",
        "The hosts that policies of other environments than default may name as their filter "
        "endpoint; none: they may name no filter endpoint.",
        many=True,
    ),
}
