"""The Helm chart is the base of k8s/ with values in it, and is made by `make chart`."""

import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

from proxy.redactor.load import load_rule_set
from tests.support import chart

TEMPLATES = [name for name in chart.files() if name.startswith("templates/")]


def test_the_chart_is_what_is_made_of_the_base():
    there = {
        path.relative_to(chart.CHART).as_posix(): path.read_text("utf-8")
        for path in chart.CHART.rglob("*")
        if path.is_file()
    }
    assert there == chart.files(), "run make chart"


@pytest.mark.parametrize("name", TEMPLATES)
def test_with_the_default_values_a_template_is_the_manifest_of_the_base(name):
    rendered = chart.render(chart.files()[name], chart.values(), "contacts")
    assert "{{" not in rendered
    base = (chart.BASE / name.rpartition("/")[2]).read_text("utf-8")
    values = chart.values()
    images = {"domicile": values["image"], "web-app": values["application"]["image"]}
    for short, image in images.items():
        base = base.replace(f"image: {short}\n", f"image: {image}\n")
    assert list(yaml.safe_load_all(rendered)) == list(yaml.safe_load_all(base))


@pytest.mark.parametrize("text", chart.REPLACED)
def test_every_text_that_is_replaced_is_there(text):
    assert any(text in path.read_text("utf-8") for path in chart.BASE.glob("*.yaml"))


def test_other_values_make_valid_manifests_elsewhere(tmp_path):
    values = {**chart.values(), "country": "no", "storage": "50Gi"}
    for name in TEMPLATES:
        rendered = chart.render(chart.files()[name], values, "crm")
        assert "namespace: contacts" not in rendered
        for manifest in yaml.safe_load_all(rendered):
            for version in ("1.31", "1.34", "1.37"):
                kubernetes_validate.validate(manifest, version, strict=True)
    (tmp_path / "rules.yaml").write_text(values["rules"])
    assert load_rule_set(tmp_path).operations


def test_helm_makes_the_same_of_it(unavailable):
    if shutil.which("helm") is None:
        unavailable("rendering k8s/chart with Helm", "helm is not installed")
    done = subprocess.run(
        ["helm", "template", "x", chart.CHART, "--namespace", "contacts"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    ours = [
        manifest
        for name in TEMPLATES
        for manifest in yaml.safe_load_all(
            chart.render(chart.files()[name], chart.values(), "contacts")
        )
    ]
    key = str
    assert sorted(yaml.safe_load_all(done.stdout), key=key) == sorted(ours, key=key)
