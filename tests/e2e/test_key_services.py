"""A real process whose key file a key service has sealed: it starts with the service, goes on
without it, and says why it cannot start.
"""

import asyncio
import json
import urllib.request

import pytest

from proxy.errors import VaultError
from tests.support.instance import Instance
from tests.support.kms import STAND_INS, standing_in

RULES = """\
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:1"}
"""


@pytest.mark.parametrize("scheme", STAND_INS)
async def test_a_process_starts_with_its_key_service_and_goes_on_without(tmp_path, scheme):
    (tmp_path / "service").mkdir()
    with standing_in(scheme, tmp_path / "service") as service:
        file = tmp_path / "a" / "data" / "keys.json"
        settings = {**service.environment(), "DOMICILE__KEYS": service.address(file)}
        instance = Instance(tmp_path / "a", environment=settings)
        instance.rules.mkdir(parents=True)
        (instance.rules / "rules.yaml").write_text(RULES)
        try:
            await instance.start()
            assert set(json.loads(file.read_text())) == {"format", "sealed_by", "id", "sealed"}
            service.fault = "denied"
            ready = await asyncio.to_thread(urllib.request.urlopen, f"{instance.admin}/readyz")
            with ready:
                assert ready.status == 200
            await instance.stop()
            with pytest.raises(VaultError) as caught:
                await instance.start()
            assert "grant it" in caught.value.message
            service.fault = ""
            await instance.start()
            log = bytes(instance.log).decode()
            assert not [one for one in service.environment().values() if one in log]
        finally:
            await instance.kill()
