from pathlib import Path

import pytest

from proxy.bootstrap.schemas import Governed, declare_policies, redeclare_policies
from proxy.errors import Code, VaultError
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.reloads import Reload
from tests.support.api import interface
from tests.support.examples import CONTACT

POLICY = "name: desk\nschema: contact\nactions: [read]\nfields: {email: hidden}\n"


async def test_files_are_put_in_force_all_or_none(tmp_path: Path):
    files = tmp_path / "policies"
    files.mkdir()
    async with interface(tmp_path) as here:
        await here.declare("contact", CONTACT)
        policies = here.services.spaces["default"].policies
        metrics = Metrics()
        state = Reload(metrics, "policies")
        governed = Governed(policies, here.catalog, Reload(metrics, "schemas"), state)
        await declare_policies(governed, None)
        (files / "a.yaml").write_text(POLICY)
        await declare_policies(governed, files)
        assert [item.name for item in policies.listed()] == ["desk"]
        (files / "b.yaml").write_text(POLICY.replace("desk", "other"))
        (files / "c.yaml").write_text(POLICY.replace("desk", "third").replace("email", "iban"))
        with pytest.raises(VaultError) as refused:
            await declare_policies(governed, files)
        assert refused.value.code is Code.INVALID_POLICY
        assert [detail.source.rpartition("/")[2] for detail in refused.value.details] == [
            "c.yaml:4:10"
        ]
        assert not await redeclare_policies(governed, files)
        assert "c.yaml" in (await state.check() or "")
        assert 'domicile_reload_failed{what="policies"} 1.0' in metrics.render().decode()
        assert [item.name for item in policies.listed()] == ["desk"]
        (files / "c.yaml").unlink()
        assert await redeclare_policies(governed, files)
        assert await state.check() is None
        assert 'domicile_reload_failed{what="policies"} 0.0' in metrics.render().decode()
        assert [item.name for item in policies.listed()] == ["desk", "other"]
