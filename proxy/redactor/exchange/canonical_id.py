"""A request that spells an id otherwise than the application does: ``PATCH /people/01``, answered
with the record ``1``.
"""

from proxy.redactor.message import Response
from proxy.redactor.plan import body_plan
from proxy.redactor.redact import ParsedBody, read_answer_body
from proxy.redactor.rules import IdPlace, IdSource, Operation, Verb


def shows_id(operation: Operation, answer: Response, body: ParsedBody, plainly: str) -> bool:
    """Whether the answer shows its one record under the plain spelling, where the rule says that
    ids are, or else at ``$.id``.
    """
    if len(body.items) != 1 or operation.verb not in (Verb.READ, Verb.UPDATE):
        return False
    if operation.response.id is not None:
        return body.items[0].id == plainly
    plan = body_plan(operation.response.body, IdPlace(IdSource.BODY, path=("id",)))
    if plan is None:
        return False
    found = read_answer_body(plan, body.media, answer.body, operation).items
    return len(found) == 1 and found[0].id == plainly
