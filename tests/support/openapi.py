"""References inside the interface document, followed."""

from typing import Any


def resolved(document: dict[str, Any], node: Any) -> Any:
    """A part of the document with its parameters and responses in place; schemas stay references."""
    if isinstance(node, list):
        return [resolved(document, item) for item in node]
    if not isinstance(node, dict):
        return node
    target = node.get("$ref")
    if isinstance(target, str) and not target.startswith("#/components/schemas/"):
        _, _, kind, name = target.split("/")
        return document["components"][kind][name]
    return {name: resolved(document, inner) for name, inner in node.items()}
