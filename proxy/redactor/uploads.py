"""Reading uploads: the texts of forms of parts.

What such a body holds in places that no rule names passes byte for byte, so whatever only some
applications would read as a named place is refused.
"""

from typing import Final

from proxy.errors import Code, VaultError
from proxy.redactor import form as form_codec
from proxy.redactor.message import Media, Request, canonical_uuid, classify, read_text
from proxy.redactor.multipart import form_parts
from proxy.redactor.plan import BodyPlan, OperationPlan
from proxy.redactor.redact import (
    BodyObject,
    ParsedBody,
    Spot,
    named_field,
    read_request,
    upload_kind,
)
from proxy.redactor.rules import Operation, OtherKinds

#: Kinds of bodies that are read here.
UPLOADS: Final = frozenset({Media.MULTIPART})


def read_upload(plan: OperationPlan, request: Request) -> ParsedBody | None:
    """As ``redact.read_request``, of an operation that names an upload, too."""
    named = plan.request
    if named is not None and classify(request.headers, request.body) is Media.OTHER:
        kind = upload_kind(named, request.headers)
        if kind is Media.MULTIPART:
            return _from_parts(named, request, plan.operation)
    return read_request(plan, request)


def _from_parts(plan: BodyPlan, request: Request, operation: Operation) -> ParsedBody:
    item = BodyObject()
    ids: list[str] = []
    declared = (*plan.multipart, plan.id_member) if plan.id_member else tuple(plan.multipart)
    body = request.body
    for part in form_parts(request.headers, body, operation.endpoint.limits.form_fields):
        name, is_id = named_field(plan.multipart, part.name), part.name == plan.id_member
        content = b"" if part.is_file else body[part.start : part.end]
        form_codec.check_member(declared, part.name, content)
        if part.is_file and (name or is_id or operation.request.files is OtherKinds.REFUSE):
            raise VaultError(
                Code.UNREADABLE_BODY,
                f"The request matches {operation.label}, and one part of its form is a file, or "
                "not a plain text, that its rule does not let pass (files: pass).",
            )
        if name is not None:
            item.spots.append(Spot(name, part.start, part.end, read_text(content)))
        elif is_id:
            ids.append(canonical_uuid(read_text(content).text))
    ids = [text for text in dict.fromkeys(ids) if text]
    item.id = ids[0] if len(ids) == 1 else None
    return ParsedBody(Media.MULTIPART, [item], ids)
