from typing import get_args

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.exchange.owner_protocol import PROTOCOL, Answer, Fault, Question


def test_an_error_is_the_same_at_the_other_end():
    error = VaultError(Code.VALUE_UNFIT, "No.", (Detail("/a", "why"),))
    error.retry_after = 3
    again = Fault.of(error).error()
    assert (again.code, again.message, again.details, again.retry_after) == (
        Code.VALUE_UNFIT,
        "No.",
        (Detail("/a", "why"),),
        3,
    )
    with pytest.raises(ValueError, match="nowhere"):
        Fault("nowhere", "").error()


def test_tags_are_those_of_the_protocol_whatever_the_classes_are_called():
    """A front and an owner of one protocol, and of two versions of the program, read each other."""
    tags = {one.__struct_config__.tag for one in get_args(Question | Answer)}
    of_protocol_10 = (
        "CameBack Close Draining Ended Fail Hello Keep KeepDone Left Open Opened Part PartDone "
        "Readdress Readdressed Redact Redacted Resume Reveal RevealDone RulesAnswer RulesQuestion "
        "Settle Welcome WriteTaken"
    )
    assert (PROTOCOL, " ".join(sorted(tags))) == (10, of_protocol_10)
