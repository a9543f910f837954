"""Readers of single settings: a text in, a value out, or ``ValueError`` with the reason.

A reason never quotes the text: a key that was pasted by mistake must not stand in a log.
"""

import ipaddress
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.auth.audiences import origin
from proxy.config.settings import (
    FileSettings,
    IssuerSettings,
    KeySettings,
    ListenAddress,
    NetworkSetting,
    SecretSource,
    StoreSettings,
    SyslogSettings,
    embedded_files,
)
from proxy.storage import ENGINES, imported

#: A reader of one setting.
SettingParser = Callable[[str], Any]

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_LONGEST: Final = 3650 * _UNITS["d"]
_BYTES: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(r"([0-9]{1,9})(kB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_HOST: Final = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]", re.ASCII
)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: ISO 3166-1 alpha-2, the officially assigned codes.
COUNTRIES: Final = frozenset(
    """
    ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bl bm bn bo bq br bs bt bv bw by bz ca cc
    cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg eh er es et fi fj fk fm fo fr ga gb gd
    ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh
    ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mf mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw
    mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb sc
    sd se sg sh si sj sk sl sm sn so sr ss st sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug um us uy
    uz va vc ve vg vi vn vu wf ws ye yt za zm zw
    """.split()
)


def country(text: str) -> str:
    """An ISO 3166-1 alpha-2 code in either case; answers it in lower case."""
    code = text.lower()
    if code == "uk":
        raise ValueError("the code of the United Kingdom is gb")
    if code not in COUNTRIES:
        raise ValueError("this is no country code of ISO 3166")
    return code


def address(text: str) -> ListenAddress:
    """``host:port``; an IPv6 host in square brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port:
        raise ValueError("the port is missing")
    if not host:
        raise ValueError("the host is missing")
    if not _HOST.fullmatch(host):
        raise ValueError(
            "the host is neither a name nor an address (IPv6 stands in square brackets)"
        )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError("the port is not a number from 0 to 65535")
    return ListenAddress(host.strip("[]"), int(port))


def true_or_false(text: str) -> bool:
    """``true`` or ``false``; no other spelling."""
    if text not in ("true", "false"):
        raise ValueError("this is neither true nor false")
    return text == "true"


def path(text: str) -> Path:
    """A file or folder; a relative one counts from the current folder. The answer is absolute."""
    if text.startswith("~"):
        raise ValueError("~ is not understood here")
    return Path.cwd() / text


def word_or(word: str, reader: SettingParser, value: Any = None) -> SettingParser:
    """Return a parser that accepts a word for a value, and else the other parser's input."""

    def read(text: str) -> Any:
        return value if text == word else reader(text)

    return read


def paths(text: str) -> tuple[Path, ...]:
    """Files with commas between them, in square brackets or without."""
    items = _items(text)
    if "" in items:
        raise ValueError("an item is empty")
    return tuple(map(path, items))


def host(text: str) -> str:
    """A host name; answers it in lower case."""
    if not _HOST.fullmatch(text) or text.startswith("["):
        raise ValueError("this is not a host name")
    return text.lower()


def origins(text: str) -> tuple[str, ...]:
    """Addresses (https://se-vault.example.com) with commas between them, each canonical."""
    addresses = []
    for number, item in enumerate(_items(text), 1):
        try:
            addresses.append(origin(item))
        except ValueError:
            raise ValueError(
                f"item {number} is not an address of scheme, host and perhaps port"
            ) from None
    return tuple(addresses)


def networks(text: str) -> tuple[NetworkSetting, ...]:
    """Networks and single addresses with commas between them, in square brackets or without."""
    return tuple(_network(item, number) for number, item in enumerate(_items(text), 1))


def hosts(text: str) -> tuple[str | NetworkSetting, ...]:
    """Host names in lower case, networks and addresses with commas between them."""
    listed: list[str | NetworkSetting] = []
    for number, item in enumerate(_items(text), 1):
        name = item.lower()
        named = not name.startswith("[") and any(
            letter.isalpha() for letter in name.rpartition(".")[2]
        )
        listed.append(name if named and _HOST.fullmatch(name) else _network(item, number))
    return tuple(listed)


def _items(text: str) -> list[str]:
    """The items of a list, in square brackets or without."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _network(text: str, number: int) -> NetworkSetting:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"number {number} is neither an address nor a network") from None
        raise ValueError(f"number {number} has bits set behind its prefix length") from None
    if network.prefixlen == 0:
        raise ValueError(
            f"number {number} holds every address, so that anybody would be believed or let in"
        )
    return network


def duration(text: str) -> int:
    """A number and a unit (ms, s, m, h, d) as milliseconds, above 0 and up to ten years."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError("this is not a number followed by ms, s, m, h or d")
    milliseconds = int(match[1]) * _UNITS[match[2]]
    if milliseconds == 0:
        raise ValueError("this must be more than nothing")
    if milliseconds > _LONGEST:
        raise ValueError("this is more than ten years")
    return milliseconds


def syslog(text: str) -> SyslogSettings:
    """A syslog collector."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "unix" and rest.startswith("/"):
        return SyslogSettings("unix", rest, 0)
    if not separator or scheme not in ("udp", "tcp"):
        raise ValueError("this is no address of a syslog collector")
    collector = address(rest.removesuffix("/"))
    if not collector.port:
        raise ValueError("a collector has a port of its own, not 0")
    return SyslogSettings("udp" if scheme == "udp" else "tcp", collector.host, collector.port)


def whole_number(least: int, most: int) -> SettingParser:
    """A reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not (
            text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most
        ):
            raise ValueError(f"this is not a whole number from {least} to {most}")
        return int(text)

    return read


def size(least: int) -> SettingParser:
    """Return a parser of a size with its unit, from ``least`` up to a tebibyte."""

    def read(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if not match:
            raise ValueError("this is not a number followed by KiB, MiB, GiB, kB, MB or GB")
        count = int(match[1]) * _BYTES[match[2]]
        if not least <= count <= 2**40:
            raise ValueError("this is too small or beyond all memory")
        return count

    return read


def one_of(*words: str) -> SettingParser:
    """A reader of one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError("this is not known here")
        return text

    return read


def some_of(*words: str) -> SettingParser:
    """A reader of some of these words with commas between them, or of ``all``."""

    def read(text: str) -> frozenset[str]:
        items = _items(text)
        if items == ["all"]:
            return frozenset(words)
        for number, item in enumerate(items, 1):
            if item not in words:
                raise ValueError(f"item {number} is not known here")
        return frozenset(items)

    return read


def store(text: str) -> StoreSettings:
    """The address of a store, of the engine of its scheme; it may hold a password."""
    scheme, _, rest = text.partition(":")
    entry = ENGINES.get(scheme)
    if entry is None:
        raise ValueError(f"the store is {' or '.join(one.described for one in ENGINES.values())}")
    if entry.address:
        return StoreSettings(text, imported(entry.address)(text).label)
    file = _whole_path(rest)
    return StoreSettings(f"{scheme}:///{file}", str(file), file)


def limit_store(text: str) -> str:
    """The address of a Redis; it may hold a password, so it is never told."""
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("redis", "rediss") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    else:
        good = (
            good
            and re.fullmatch(r"(/[0-9]{0,5})?", parts.path)
            and not (parts.query or parts.fragment)
        )
    if not good:
        raise ValueError("this is neither the word memory nor the address of a Redis")
    return text


def files(text: str) -> FileSettings:
    """``file:///`` and the whole path of a folder, or the address of a bucket."""
    scheme, _, rest = text.partition(":")
    if scheme == "s3":
        from proxy.objectstore.s3 import parse_bucket_address

        return FileSettings(text, parse_bucket_address(text).label)
    if scheme != "file":
        raise ValueError("files are kept in a folder or in a bucket")
    return embedded_files(_whole_path(rest.rstrip("/")))


def keys(text: str) -> KeySettings:
    """A file (``file:///``), a variable (``env:``), or the address of a key service."""
    scheme, _, rest = text.partition(":")
    if scheme == "env":
        if not _VARIABLE.fullmatch(rest):
            raise ValueError("what follows env: is not the name of an environment variable")
        return KeySettings("env", rest)
    if scheme == "file":
        return KeySettings("file", str(_whole_path(rest)))
    from proxy.crypto.kms import KINDS, parse_kms_address

    if scheme in KINDS:
        address = parse_kms_address(text)
        return KeySettings("file", address.path, scheme, rest.partition("?")[2])
    raise ValueError("keys come from one of these; the key itself never stands here")


def _whole_path(text: str) -> Path:
    """``///a/b`` or ``////a/b`` → ``/a/b``; readers of such addresses disagree on relative ones."""
    bare = text.lstrip("/")
    if not text.startswith("///") or not bare:
        raise ValueError("three slashes and the whole path must follow the first colon")
    if bare.startswith(("./", "../", "~")):
        raise ValueError("the path must be whole, not counted from another folder")
    if bare.endswith("/"):
        raise ValueError("this names a folder where a file is needed")
    return Path("/" + bare)


def issuer(text: str) -> IssuerSettings:
    """Parse the protocol and address of an external token issuer."""
    how, _, url = text.partition(":")
    if how not in ("jwks", "introspection"):
        raise ValueError("this is neither embedded, nor does it begin with jwks: or introspection:")
    return IssuerSettings("jwks" if how == "jwks" else "introspection", endpoint(url))


def collector(text: str) -> str:
    """The address of a collector of spans."""
    if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[!-?A-~]*)?", text):
        raise ValueError("this is not an address at http:// or https://")
    return text


def endpoint(text: str) -> str:
    """An address at https://; at http:// only on this machine."""
    parts = urllib.parse.urlsplit(text)
    good = (
        text.isascii()
        and text.isprintable()
        and " " not in text
        and not parts.fragment
        and "@" not in parts.netloc
    )
    if not good or not parts.hostname or parts.scheme not in ("http", "https"):
        raise ValueError("this is not an address at https://")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(
            "http:// is for this machine alone: what is asked over a network has to be at https://"
        )
    return text


def words(text: str) -> tuple[str, ...]:
    """Texts with commas between them, none of them empty."""
    items = _items(text)
    if not all(item.isprintable() and item for item in items):
        raise ValueError("an item is empty, or cannot be printed")
    return tuple(items)


def word(text: str) -> str:
    """A text."""
    if not text or not text.isprintable():
        raise ValueError("this is no text")
    return text


def claim(text: str) -> str:
    """The name of a claim of a token."""
    if not text or not text.isprintable() or " " in text:
        raise ValueError("this is no name")
    return text


def secret(text: str) -> SecretSource:
    """Parse a reference to a secret, never the secret itself: env:NAME or file:///path."""
    source, _, rest = text.partition(":")
    if source == "env" and rest.isidentifier():
        return SecretSource("env", rest)
    if source == "file" and rest.startswith("///"):
        return SecretSource("file", str(_whole_path(rest)))
    raise ValueError("this is neither none, nor env: and a variable, nor file:/// and a path")


# Parsers of settings; the table of all settings is ``config.schema``.


class Setting(NamedTuple):
    """A setting: its default as an operator would write it, parser, form and meaning."""

    default: str
    read: SettingParser
    form: str  #: completes the sentence "write …"
    meaning: str
    many: bool = False  #: a list may be written; the reader gets its items with commas between them
    references: bool = False  #: whether ${env:NAME} and ${file:/path} may stand in it
