"""What fuzzing begins with, and how it is changed."""

import random
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def corpus(name: str) -> list[bytes]:
    """The texts that a target begins with, in order of their files' names."""
    return [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]


def changed(texts: list[bytes], chance: random.Random) -> bytes:
    """One of the texts with a few changes: bytes flipped, dropped, doubled, or pieces of another
    text put in.
    """
    data = bytearray(chance.choice(texts))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.randint(0, 8))
        other = chance.choice(texts)
        start = chance.randrange(len(other) + 1)
        piece = chance.choice(
            [
                b"",
                bytes(data[at:to]) * 2,
                bytes([chance.randrange(256)]),
                chance.choice(
                    [
                        b'"', b"\\", b"\r\n", b"%", b"&", b"=", b";", b"/", b"\0", b"{", b"[", b",",
                        b":", b" ",
                    ]
                ),
                other[start : start + chance.randint(1, 24)],
            ]
        )  # fmt: skip
        data[at:to] = piece
    return bytes(data)
