"""The settings of the listeners, as ``table`` has them: where they are, TLS towards callers, and proxies in front."""

from typing import Final

from proxy.config import values
from proxy.config.setting import Setting

#: Dotted name → setting.
LISTEN: Final[dict[str, Setting]] = {
    "listen.proxy": Setting(
        "127.0.0.1:8080",
        values.address,
        "host:port, such as 127.0.0.1:8080",
        "Where callers reach the application through the proxy.",
    ),
    "listen.vault": Setting(
        "127.0.0.1:8081",
        values.address,
        "host:port, such as 127.0.0.1:8081",
        "Where the vault's own interface is answered: /api, /docs, /openapi.json.",
    ),
    "listen.admin": Setting(
        "127.0.0.1:8082",
        values.address,
        "host:port, such as 127.0.0.1:8082",
        "Where probes and metrics are answered: /healthz and /readyz to everybody, /metrics to administrators and scrapers.",
    ),
    "listen.insecure": Setting(
        "false",
        values.flag,
        "true or false",
        "Plain HTTP beyond loopback only when true: something in front must do TLS, or the network must be trusted.",
    ),
    "listen.tls.certificate": Setting(
        "[]",
        values.paths,
        "a PEM file, such as /etc/domicile/vault.pem, or a list of them",
        "The certificates, each with its chain, that proxy and vault show to callers; none: they speak plain HTTP.",
        many=True,
    ),
    "listen.tls.key": Setting(
        "[]",
        values.paths,
        "a PEM file, such as /etc/domicile/vault.key, or a list of them, one for each certificate",
        "The key of each certificate, in the same order; none: each stands in the file of its certificate.",
        many=True,
    ),
    "listen.tls.require_sni": Setting(
        "vault",
        values.one_of("vault", "both"),
        "vault or both",
        "Where a handshake that names no host (SNI), or one that is in no certificate, is refused: vault, or both listeners.",
    ),
    "listen.tls.clients": Setting(
        "none",
        values.path_or("none"),
        "a PEM file of certificates, such as /etc/domicile/clients.pem, or none",
        "Who may vouch for callers, who then have to show a certificate (mutual TLS); none: they show none.",
    ),
    "listen.tls.clients_at": Setting(
        "vault",
        values.one_of("vault", "proxy", "both"),
        "vault, proxy or both",
        "The listeners at which callers show a certificate.",
    ),
    "listen.tls.clients_required": Setting(
        "true",
        values.flag,
        "true or false",
        "With false a caller may show no certificate; one that it shows must be in order all the same.",
    ),
    "listen.tls.hsts": Setting(
        "180d",
        values.duration_or_none,
        "a number and a unit, such as 180d, or 0",
        "How long browsers that saw the vault over TLS use nothing else for its host (RFC 6797); 0: they are not told.",
    ),
    "listen.proxy_protocol": Setting(
        "false",
        values.flag,
        "true or false",
        "Each connection of a trusted proxy begins with the PROXY protocol, version 1 or 2.",
    ),
    "trusted_proxies": Setting(
        "[]",
        values.networks,
        "a list of networks, such as [10.0.0.0/8, 192.0.2.7]",
        "Whose forwarding fields and PROXY protocol count: the addresses of the proxies in front.",
        many=True,
    ),
}
