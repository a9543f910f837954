"""Tokens that carry the sealed id of their record: words, mail addresses and UUIDs. With ``same``
they are drawn of the same space and carry nothing.

Words (``opaque``, ``lower``, ``prepended``) fit any value, JSON of every type too: the token is
then a JSON string. A mail address is a lower-case word before the ``@``, with a domain that nobody
can own (RFC 2606). A UUID is of version 4 (RFC 9562), 122 bits that look random: versions 4 and 8
may hold them, but many validators know the versions 1 to 5 only.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from proxy.model.schema import Value
from proxy.tokenization import common
from proxy.tokenization.base import (
    SAME,
    Parser,
    Resolution,
    SealedSpelling,
    ShapeOptions,
    Tokenizer,
    TokenKeys,
)
from proxy.tokenization.common import Binding, DrawnTokenizer, SealedTokenizer, bordered, text_only

_PREFIX = re.compile(r"[A-Za-z]{1,16}")
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
_UUID = bordered("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

#: Spells a record's id and a value's number as a token, and reads them back.
Coder = tuple[SealedSpelling, Callable[[str], tuple[int, int] | None]]


@dataclass(frozen=True, slots=True)
class SealedShape(ABC):
    """Base of the shapes of this file; ``space`` is the number of tokens."""

    name: str
    same: bool
    space: int
    takes_json: bool

    @property
    def resolution(self) -> Resolution:
        return Resolution.INDEXED if self.same else Resolution.SEALED

    def capacity(self) -> float:
        return math.inf

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)
        if not self.same:
            spelling, unseal = self._coder(keys)
            return SealedTokenizer(binding, self._pattern(), spelling, unseal, self.takes_json)

        def space(value: Value) -> int:
            if not self.takes_json:
                text_only(binding, value)
            return self.space

        return DrawnTokenizer(
            binding, self._pattern(), space, lambda _, index: Value(self._spell(index))
        )

    @abstractmethod
    def _pattern(self) -> re.Pattern[str]:
        """Return a pattern that every token matches, and hardly anything else."""

    @abstractmethod
    def _spell(self, index: int) -> str:
        """The token of a number below ``space``."""

    @abstractmethod
    def _coder(self, keys: TokenKeys) -> Coder:
        """Return the coder that seals records into tokens."""


class WordAlphabet(NamedTuple):
    """Spelling of 16 bytes as a word."""

    word: str  #: expression of a word
    write: Callable[[bytes], str]
    read: Callable[[str], bytes | None]
    #: many words, joined; ``None`` where one of them is none
    read_each: Callable[[Sequence[str]], bytes | None]


def _read32_each(words: Sequence[str]) -> bytes | None:
    blocks = [block for block in map(common.read32, words) if block is not None]
    return b"".join(blocks) if len(blocks) == len(words) else None


_LETTERS62 = WordAlphabet(common.WORD62, common.write62, common.read62, common.read62_each)
_LETTERS32 = WordAlphabet(common.WORD32, common.write32, common.read32, _read32_each)


@dataclass(frozen=True, slots=True)
class WordShape(SealedShape):
    """16 bytes in an alphabet, between a constant prefix and the domain of a mail address."""

    alphabet: WordAlphabet
    prefix: str = ""
    suffix: str = ""

    def _pattern(self) -> re.Pattern[str]:
        if not self.suffix:
            return bordered(self.prefix + self.alphabet.word)
        return re.compile(
            rf"(?<![0-9A-Za-z._+-]){self.alphabet.word}{re.escape(self.suffix)}"
            r"(?![0-9A-Za-z-]|\.[0-9A-Za-z])"
        )

    def _spell(self, index: int) -> str:
        return f"{self.prefix}{self.alphabet.write(index.to_bytes(16, 'big'))}{self.suffix}"

    def _coder(self, keys: TokenKeys) -> Coder:
        (_, write, read, read_each), prefix, suffix = self.alphabet, self.prefix, self.suffix
        word = slice(len(prefix), -len(suffix) or None)

        def unseal(text: str) -> tuple[int, int] | None:
            block = read(text[word])
            return None if block is None else keys.open_block(block)

        def unseal_each(texts: Sequence[str]) -> list[int | None]:
            blocks = read_each([text[word] for text in texts])
            if blocks is not None:
                return keys.open_blocks(blocks)
            return [None if (pair := unseal(text)) is None else pair[0] for text in texts]

        return SealedSpelling(keys.block, write, prefix, suffix, unseal_each, keys.blocks), unseal


@dataclass(frozen=True, slots=True)
class UuidShape(SealedShape):
    """UUIDs of version 4."""

    def _pattern(self) -> re.Pattern[str]:
        return _UUID

    def _spell(self, index: int) -> str:
        return write_uuid(index)

    def _coder(self, keys: TokenKeys) -> Coder:
        def unseal(text: str) -> tuple[int, int] | None:
            return keys.open_narrow_block(read_uuid(text))

        return SealedSpelling(keys.narrow_block, write_uuid), unseal


def write_uuid(bits: int) -> str:
    """122 bits as the text of a UUID of version 4."""
    fields = f"{bits >> 74:012x}4{bits >> 62 & 0xFFF:03x}{0b10 << 62 | bits & (1 << 62) - 1:016x}"
    return f"{fields[:8]}-{fields[8:12]}-{fields[12:16]}-{fields[16:20]}-{fields[20:]}"


def read_uuid(text: str) -> int:
    """The 122 bits of a text that is a UUID of version 4."""
    number = int(text.replace("-", ""), 16)
    return number >> 80 << 74 | (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1


#: Endings of the names of files, as programs decide by them.
_ENDINGS: Final = (
    "7z aac ai aif aiff amr apk asp aspx avi avif bash bat bin bmp bz2 c cer cgi cmd com "
    "conf cpp crt csr css csv dat db dcm deb dll dmg doc docm docx dot dotx dwg dxf edf eml "
    "eps epub exe fhir flac flv gif gpx gz h hdf5 heic heif hl7 hta htm html ico ics iges "
    "igs ini iso jar java jfif jpe jpeg jpg js json json5 jsonl jsp key keynote kml kmz lnk "
    "log m4a m4v mat md mdb mid midi mjs mkv mobi mov mp2 mp3 mp4 mpeg mpg mpp msg msi mts "
    "nii numbers odg odp ods odt oga ogg ogv opus otf p12 p7m p7s pages parquet pdf pem pfx "
    "php phtml pkpass pl png pot potx ppt pptm pptx prn ps ps1 psd pst pub py qif r rar raw "
    "rb rdf rpm rtf sav scr sh shtml sig sql sqlite srt step stl stp sty svg svgz swf tar "
    "tex tgz tif tiff toml torrent ts tsv ttf txt vbs vcf vcs vsd vsdx vtt wav weba webm "
    "webmanifest webp wma wmf wmv woff woff2 wpd wsf xhtml xls xlsb xlsm xlsx xml xps xsd "
    "xsl xz yaml yml zip zst"
).split()
_ENDING: Final = rf"(?:\.tar)?\.(?:{'|'.join(_ENDINGS)})"
_ENDS: Final = re.compile(rf"{_ENDING}\Z", re.IGNORECASE)


class FileNameTokenizer(SealedTokenizer):
    """Words that end as the names of files do whose place they take."""

    def __init__(self, binding: Binding, pattern: re.Pattern[str], coder: Coder) -> None:
        spelling, unseal = coder
        word = slice(_WORD32)
        super().__init__(binding, pattern, spelling, lambda text: unseal(text[word]), False)
        self.spelling = None  # a token is more than the word that the record's id gives

    def mint(self, value: Value, rid: int, number: int) -> Value:
        token = _ended(super().mint(value, rid, number), value)
        if token.text == value.text:
            raise self._binding.unfit("it already is the token that it would get")
        return token


@dataclass(frozen=True, slots=True)
class FileNameShape(WordShape):
    """A word with the ending of the value."""

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)
        if not self.same:
            return FileNameTokenizer(binding, self._pattern(), self._coder(keys))

        def space(value: Value) -> int:
            text_only(binding, value)
            return self.space

        return DrawnTokenizer(
            binding,
            self._pattern(),
            space,
            lambda value, index: _ended(Value(self._spell(index)), value),
        )

    def _pattern(self) -> re.Pattern[str]:
        return bordered(rf"{self.alphabet.word}(?:{_ENDING}(?![0-9A-Za-z])|(?!\.[0-9A-Za-z]))")


#: Letters of a word of ``_LETTERS32``.
_WORD32: Final = 26


def _ended(token: Value, value: Value) -> Value:
    """A token with the ending of the value, in lower case."""
    ending = _ENDS.search(value.text.rstrip())
    return token if ending is None else Value(token.text + ending[0].lower())


def _word(
    options: ShapeOptions, alphabet: WordAlphabet, prefix: str = "", suffix: str = ""
) -> WordShape:
    takes_json = not suffix
    return WordShape(
        options.shape, options.flag("same"), 2**128, takes_json, alphabet, prefix, suffix
    )


def _prepended(options: ShapeOptions) -> WordShape:
    prefix = options.text("prefix", "T")
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"prefix of token shape {options.shape} is 1 to 16 letters A to Z, a to z")
    return _word(options, _LETTERS62, prefix)


def _email(options: ShapeOptions) -> WordShape:
    domain = options.text("domain", "example.org")
    if _DOMAIN.fullmatch(domain) is None or len(domain) > 253:
        raise ValueError(
            "domain of token shape email is a host name in lower case, such as example.org"
        )
    return _word(options, _LETTERS32, suffix="@" + domain)


OPAQUE = Parser(
    "opaque", SAME, lambda options: _word(options, _LETTERS62), total=True, capitals=True
)
LOWER = Parser("lower", SAME, lambda options: _word(options, _LETTERS32), total=True)
PREPENDED = Parser(
    "prepended",
    {**SAME, "prefix": "1 to 16 letters before the token; default T"},
    _prepended,
    total=True,
    capitals=True,
)
EMAIL = Parser(
    "email",
    {**SAME, "domain": "what stands behind the @; default example.org"},
    _email,
    kind="email",
)
FILE_NAME = Parser(
    "filename",
    SAME,
    lambda options: FileNameShape(options.shape, options.flag("same"), 2**128, False, _LETTERS32),
    names_files=True,
)
UUID = Parser(
    "uuid",
    SAME,
    lambda options: UuidShape(options.shape, options.flag("same"), 2**122, False),
    kind="uuid",
)
