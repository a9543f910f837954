import json

from proxy.audit.services import Honeytoken
from tests.support.audit import audit_services


async def test_only_baits_raise_alarms():
    kinds: list[str] = []
    made = audit_services(alarms=kinds)
    assert made.alarms(["m1"], via="proxy") == []
    await made.honeytokens.add(Honeytoken("m1", "default", "p", 7))
    assert made.alarms(["m2"], via="proxy") == []
    assert kinds == []
    (line,) = made.alarms(["m1", "m2", "m1"], via="proxy", reason="another")
    told = json.loads(b"{" + line + b"}")
    assert (told["event"], told["records"], told["count"], told["via"]) == (
        "alarm",
        ["m1"],
        1,
        "proxy",
    )
    assert "bait" in told["reason"]
    assert kinds == ["bait"]
