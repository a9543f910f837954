"""Makes the Helm chart of k8s/chart out of k8s/base, so that the two agree: ``make chart``.

The templates are the manifests with a few texts replaced by values; nothing else of Helm is used.
"""

import re
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from proxy import __version__
from tests.support.tree import ROOT

BASE: Final = ROOT / "k8s" / "base"
CHART: Final = ROOT / "k8s" / "chart"

#: Files of the base that are no template: the first is ``helm install --create-namespace``.
LEFT_OUT: Final = {"namespace.yaml", "kustomization.yaml"}

#: Text of a manifest → the same with a value in place of what differs between installations.
REPLACED: Final = {
    "namespace: contacts\n": "namespace: {{ .Release.Namespace }}\n",
    "contacts-vault.contacts": "contacts-vault.{{ .Release.Namespace }}",
    "image: domicile\n": "image: {{ .Values.image }}\n",
    "image: web-app\n": "image: {{ .Values.application.image }}\n",
    'value: "3000"\n': 'value: "{{ .Values.application.port }}"\n',
    "value: se\n": 'value: "{{ .Values.country }}"\n',
    'args: ["serve"]\n': "args: {{ .Values.args }}\n",
    '{cpu: "2", memory: 384Mi}\n': '{cpu: "{{ .Values.cpu }}", memory: {{ .Values.memory }}}\n',
    "storage: 10Gi\n": "storage: {{ .Values.storage }}\n",
    "kubernetes.io/metadata.name: ingress-nginx\n": (
        "kubernetes.io/metadata.name: {{ .Values.ingressNamespace }}\n"
    ),
    "kubernetes.io/metadata.name: monitoring\n": (
        "kubernetes.io/metadata.name: {{ .Values.monitoringNamespace }}\n"
    ),
}

_VALUES: Final = """\
# What differs between installations; all else is as in k8s/base, from which `make chart` makes the templates.
# One release in a namespace. The secrets come first: k8s/secret.example.yaml.
image: registry.example.com/domicile:{version}
country: se
storage: 10Gi
# Several processes (docs/operations.md#several-processes): '["serve", "--workers", "2"]', cpu "3", memory 640Mi.
args: '["serve"]'
cpu: "2"
memory: 384Mi
ingressNamespace: ingress-nginx
monitoringNamespace: monitoring
application:
  image: registry.example.com/contacts:1.0.0
  port: "3000"
rules: |
{rules}"""

_CHART: Final = """\
apiVersion: v2
name: domicile
description: A web application behind Domicile, a data-residency proxy, as its sidecar.
type: application
version: {version}
appVersion: "{version}"
kubeVersion: ">=1.31.0-0"
"""

_RULES: Final = "  contacts.yaml: |\n"


def files() -> dict[str, str]:
    """Every file of the chart by its path in it."""
    rules = (BASE / "rules.yaml").read_text("utf-8").partition(_RULES)[2]
    own = textwrap.indent(textwrap.dedent(rules), "  ")
    made = {
        "Chart.yaml": _CHART.format(version=__version__),
        "values.yaml": _VALUES.format(version=__version__, rules=own),
    }
    for path in sorted(BASE.glob("*.yaml")):
        if path.name not in LEFT_OUT:
            made[f"templates/{path.name}"] = _template(path)
    return made


def _template(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.name == "rules.yaml":
        text = text.partition(_RULES)[0] + _RULES + "{{ .Values.rules | indent 4 }}\n"
    for written, value in REPLACED.items():
        text = text.replace(written, value)
    return text


def render(template: str, values: Mapping[str, Any], namespace: str) -> str:
    """What Helm makes of a template of this chart, as far as its language is used there."""

    def value(match: re.Match[str]) -> str:
        if match[1] == ".Release.Namespace":
            return namespace
        found: Any = values
        for name in match[1].removeprefix(".Values.").split("."):
            found = found[name]
        return textwrap.indent(found, " " * int(match[2])) if match[2] else str(found)

    return re.sub(r"\{\{ (\.[\w.]+)(?: \| indent (\d+))? \}\}", value, template)


def main() -> None:
    """Write the chart anew."""
    shutil.rmtree(CHART, ignore_errors=True)
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def values() -> dict[str, Any]:
    """The default values."""
    content: dict[str, Any] = yaml.safe_load(files()["values.yaml"])
    return content


if __name__ == "__main__":
    main()
