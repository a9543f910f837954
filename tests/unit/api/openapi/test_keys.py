from proxy.api.openapi.keys import DESCRIBED
from proxy.model.record import KeyKind
from proxy.vault.maintenance.reencryption import ReencryptionState


def test_the_kinds_and_states_are_those_there_are():
    described = DESCRIBED["rotate_key"]
    assert described.request is not None
    assert described.answer is not None
    assert described.request["properties"]["key"]["enum"] == [str(kind) for kind in KeyKind]
    told = described.answer["properties"]["data"]["items"]["properties"]["reseal"]["properties"][
        "state"
    ]["enum"]
    assert told == [str(state) for state in ReencryptionState]
