"""What the operations mean that mark records as bait."""

from typing import Final

from proxy.api.openapi.parts import Description, Example, closed

BAITS: Final = "Baits"

_PATH: Final = {"schema": "contact", "record_key": "c-1"}

DESCRIBED: Final[dict[str, Description]] = {
    "put_bait": Description(
        BAITS,
        "Mark a record as bait",
        "Nobody has a reason to look at it: whoever is shown it (by a search, its history, an export, a file, a function, or an answer "
        "of the application through the proxy) is answered as ever, and raises an alarm: a line in the audit log, one in the log, and the "
        "metric `domicile_alarms_total`. Nobody but administrators can see the mark. It stays with the key of the record.",
        examples=(
            Example("A person who does not exist", 204, _PATH),
            Example("A record that is not there", 404, {**_PATH, "record_key": "c-9"}),
        ),
    ),
    "show_bait": Description(
        BAITS,
        "Tell whether a record is marked as bait",
        "Also of a record that has gone.",
        answer=closed({"bait": {"type": "boolean"}}, "bait"),
        examples=(Example("One that is not", 200, _PATH, answer={"bait": False}),),
        answered="Whether it is.",
    ),
    "remove_bait": Description(
        BAITS,
        "Make a bait an ordinary record",
        "The record itself stays as it is. Nothing happens where it is none.",
        examples=(Example("No longer", 204, _PATH),),
    ),
}
