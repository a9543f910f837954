"""The Helm chart is the base of k8s/ with values in it, and is made by `make chart`."""

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from proxy.redactor.load import load_rule_set
from tests.support import chart
from tests.support.patience import PATIENCE
from tests.support.table import table

TEMPLATES = [name for name in chart.files() if name.startswith("templates/")]


def test_the_chart_is_what_is_made_of_the_base():
    there = {
        path.relative_to(chart.CHART).as_posix(): path.read_text("utf-8")
        for path in chart.CHART.rglob("*")
        if path.is_file()
    }
    assert there == chart.files(), "run make chart"


@table("name", TEMPLATES)
def test_with_the_default_values_a_template_is_the_manifest_of_the_base(name):
    shown = chart.render(chart.files()[name], chart.values(), "contacts")
    assert "{{" not in shown
    if name.startswith("templates/remote-"):
        assert not shown.strip()
        return
    base = (chart.BASE / name.rpartition("/")[2]).read_text("utf-8")
    values = chart.values()
    images = {"domicile": values["image"], "web-app": values["application"]["image"]}
    for short, image in images.items():
        base = base.replace(f"image: {short}\n", f"image: {image}\n")
    assert list(yaml.safe_load_all(shown)) == list(yaml.safe_load_all(base))


@table("text", chart.REPLACED)
def test_every_text_that_is_replaced_is_there(text):
    manifests = [*chart.BASE.glob("*.yaml"), *chart.REMOTE.glob("*.yaml")]
    assert any(text in path.read_text("utf-8") for path in manifests)


def remote(**more: Any) -> dict[str, Any]:
    values = chart.values()
    return {**values, "remote": {**values["remote"], "enabled": True, **more}}


def rendered(values: dict[str, Any], namespace: str) -> list[Any]:
    return [
        manifest
        for name in TEMPLATES
        for manifest in yaml.safe_load_all(chart.render(chart.files()[name], values, namespace))
    ]


def test_with_a_vault_for_sidecars_it_is_what_kustomize_builds_for_them(unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/overlays/remote with kustomize", "kubectl is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", chart.BASE.parent / "overlays" / "remote"],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    built = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] != "Namespace"]
    assert by_name(rendered(remote(), "contacts")) == by_name(built)


def by_name(manifests: list[Any]) -> dict[tuple[str, str], Any]:
    """Manifests by kind and name, lists of what has a name in the order of names: kustomize adds at
    the front.
    """
    return {(one["kind"], one["metadata"]["name"]): ordered(one) for one in manifests}


def ordered(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: ordered(one) for name, one in part.items()}
    if isinstance(part, list):
        parts = [ordered(one) for one in part]
        named = all(isinstance(one, dict) and "name" in one for one in parts)
        return sorted(parts, key=lambda one: one["name"]) if named else parts
    return part


def test_other_values_make_valid_manifests_elsewhere(tmp_path):
    values = {**remote(replicas=5, memory="512Mi"), "country": "no", "storage": "50Gi"}
    for manifest in rendered(values, "crm"):
        assert manifest["metadata"]["namespace"] == "crm"
        for version in ("1.31", "1.34", "1.37"):
            kubernetes_validate.validate(manifest, version, strict=True)
    (front,) = [one["spec"] for one in rendered(values, "crm") if one["kind"] == "Deployment"]
    own = front["template"]["spec"]["containers"][1]
    assert (front["replicas"], own["resources"]["limits"]["memory"]) == (5, "512Mi")
    assert {"name": "DOMICILE__REMOTE__VAULT", "value": "contacts-remote.crm:8090"} in own["env"]
    (tmp_path / "rules.yaml").write_text(values["rules"])
    assert load_rule_set(tmp_path).operations


@pytest.mark.parametrize("options", [{}, {"remote.enabled": "true"}], ids=["base", "remote"])
def test_helm_makes_the_same_of_it(options, unavailable):
    if shutil.which("helm") is None:
        unavailable("rendering k8s/chart with Helm", "helm is not installed")
    sets = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        ["helm", "template", "x", chart.CHART, "--namespace", "contacts", *sets],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    ours = rendered(remote() if options else chart.values(), "contacts")
    assert sorted(yaml.safe_load_all(done.stdout), key=str) == sorted(ours, key=str)
