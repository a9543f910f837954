"""What the operations mean that show the document itself."""

from typing import Final

from proxy.api.openapi.parts import Description, Example

DESCRIBED: Final[dict[str, Description]] = {
    "openapi": Description(
        "About",
        "This document",
        "OpenAPI 3.1. With an access token it also has the schemas that there are, each as a component `model.<name>`.",
        answer={"type": "object", "required": ["openapi"]},
        examples=(Example("Without a token", 200),),
        answered="The document.",
    ),
    "docs": Description(
        "About",
        "This document as a page",
        "For people; it needs nothing from elsewhere.",
        answer={"type": "string"},
        examples=(Example("In a browser", 200),),
        answered="The page.",
        answer_type="text/html",
    ),
}
