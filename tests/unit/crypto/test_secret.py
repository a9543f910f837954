import copy
import pickle

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey

MASTER = bytes(range(32))


def holders() -> list[object]:
    keyset = Keyset.create("test")
    return [MasterKey(MASTER), keyset, keyset.aead(), keyset.field_keys("contact", "email")]


@pytest.mark.parametrize("holder", holders(), ids=lambda holder: type(holder).__name__)
def test_a_holder_of_keys_is_neither_pickled_nor_copied(holder):
    for attempt in (
        lambda: pickle.dumps(holder),
        lambda: copy.copy(holder),
        lambda: copy.deepcopy(holder),
    ):
        with pytest.raises(TypeError, match="key bytes"):
            attempt()


@pytest.mark.parametrize("holder", holders(), ids=lambda holder: type(holder).__name__)
def test_a_holder_of_keys_shows_its_type_and_no_bytes(holder):
    assert repr(holder) == str(holder) == f"<{type(holder).__name__}: key bytes not shown>"
    assert not hasattr(holder, "__dict__")
