"""What the operation means that gives all records of a schema."""

from typing import Final

from proxy.api.openapi.models import SEARCH
from proxy.api.openapi.parts import Description, Example, array, closed, integer, ref
from proxy.api.openapi.world import RECORDS

_AT: Final = "2026-05-04T10:15:00.000Z"

DESCRIBED: Final[dict[str, Description]] = {
    "export_records": Description(
        SEARCH,
        "Export records",
        "All of them, in the order of their age, page by page: ask again with `next` of the answer until there is none. Whatever is "
        "written meanwhile, no record that was there all the time is left out or comes twice. For backups and moves; "
        "`domicile export` seals what it gets.",
        answer=closed(
            {
                "data": array(ref("Found")),
                "meta": closed(
                    {
                        "count": integer("How many are in this answer.", minimum=0),
                        "next": {
                            "type": ["string", "null"],
                            "description": "Where the next page begins; null: there is none.",
                        },
                        "unreadable": integer(
                            "How many records of this page were left out: they do not open.",
                            minimum=1,
                        ),
                    },
                    "count",
                    "next",
                ),
            },
            "data",
            "meta",
        ),
        examples=(
            Example(
                "All there are",
                200,
                {"schema": "contact"},
                {"limit": "500"},
                answer={
                    "data": [
                        {
                            **record,
                            "created_at": _AT,
                            "updated_at": _AT,
                            "version": 1,
                            "attachments": [],
                        }
                        for record in RECORDS
                    ],
                    "meta": {"count": 3, "next": None},
                },
            ),
        ),
        answered="A page of records.",
    ),
}
