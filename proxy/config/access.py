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
}
