"""Makes the Helm chart of k8s/chart out of k8s/base, so that the two agree: ``make chart``.

The templates are the manifests with a few texts replaced by values. With ``remote.enabled`` they are
those of k8s/remote as well: conditions of Helm stand where kustomize patches the base.
"""

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from proxy import __version__
from tests.support.tree import ROOT

BASE: Final = ROOT / "k8s" / "base"
CHART: Final = ROOT / "k8s" / "chart"
#: Folder of manifests that are applied where sidecars use the vault of another pod.
REMOTE: Final = ROOT / "k8s" / "remote"

#: Files of the base that are no template: the first is ``helm install --create-namespace``.
LEFT_OUT: Final = {"namespace.yaml", "kustomization.yaml"}

#: Text of a manifest → the same with a value in place of what differs between installations.
REPLACED: Final = {
    "namespace: contacts\n": "namespace: {{ .Release.Namespace }}\n",
    "contacts-vault.contacts": "contacts-vault.{{ .Release.Namespace }}",
    "contacts-remote.contacts": "contacts-remote.{{ .Release.Namespace }}",
    "image: domicile\n": "image: {{ .Values.image }}\n",
    "image: web-app\n": "image: {{ .Values.application.image }}\n",
    'value: "3000"\n': 'value: "{{ .Values.application.port }}"\n',
    "value: se\n": 'value: "{{ .Values.country }}"\n',
    'args: ["serve"]\n': "args: {{ .Values.args }}\n",
    '{cpu: "2", memory: 384Mi}\n': '{cpu: "{{ .Values.cpu }}", memory: {{ .Values.memory }}}\n',
    'limits: {cpu: "1", memory: 384Mi}\n': (
        'limits: {cpu: "{{ .Values.remote.cpu }}", memory: {{ .Values.remote.memory }}}\n'
    ),
    "replicas: 2\n": "replicas: {{ .Values.remote.replicas }}\n",
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
# One vault in a pod of its own, and so many pods of the application, each with a sidecar without storage
# (docs/operations.md#a-vault-on-another-machine). The secrets contacts-remote-tls and contacts-front-tls come from
# k8s/cert-manager/remote.yaml, with the name of this namespace in them.
remote:
  enabled: false
  replicas: 2
  cpu: "1"
  memory: 384Mi
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


#: Around what stands in a manifest only where sidecars use the vault of another pod, or only else.
_IF: Final = "{{- if .Values.remote.enabled }}\n"
_UNLESS: Final = "{{- if not .Values.remote.enabled }}\n"
_ELSE: Final = "{{- else }}\n"
_END: Final = "{{- end }}\n"


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
    for name in ("application", "network-policy", "services"):
        text = _with_values((REMOTE / f"{name}.yaml").read_text("utf-8"))
        made[f"templates/remote-{name}.yaml"] = _IF + text + _END
    return made


def _template(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.name == "rules.yaml":
        text = text.partition(_RULES)[0] + _RULES + "{{ .Values.rules | indent 4 }}\n"
    if (patched := _PATCHED.get(path.name)) is not None:
        text = patched(text)
    return _with_values(text)


def _with_values(text: str) -> str:
    for written, value in REPLACED.items():
        text = text.replace(written, value)
    return text


def _without_application(text: str) -> str:
    """The pod of the vault: with ``remote.enabled`` the application has left it, and it listens for
    sidecars, as k8s/remote/vault.yaml says.
    """
    before, application = _parted(text, "        - name: web-app\n          image:")
    application, own = _parted(application, "        - name: domicile\n          image:")
    shared = re.search(r"securityContext: &security\n((?: {12}.*\n)+)", application)
    if shared is None:
        raise ValueError("the containers share no security context")
    application = application.replace("securityContext: &security", "securityContext:")
    own = own.replace("securityContext: *security\n", "securityContext:\n" + shared[1])
    before = before.replace(": web-app\n", f": {_either('domicile', 'web-app')}\n")
    more = (REMOTE / "vault.yaml").read_text("utf-8")
    for first, following in (
        ("          env:\n", "          ports:\n"),
        ("          ports:\n", "          volumeMounts:\n"),
        ("          volumeMounts:\n", "      volumes:\n"),
        ("      volumes:\n", ""),
    ):
        _, _, added = more.partition(first)
        added = added.partition(following)[0] if following else added
        own = own.replace(first, first + _IF + added + _END, 1)
    volume = "        - name: web-app-tmp\n          emptyDir: {sizeLimit: 64Mi}\n"
    own = own.replace(volume, _UNLESS + volume + _END)
    return before + _UNLESS + application + _END + own


def _either(there: str, otherwise: str) -> str:
    return f"{{{{ if .Values.remote.enabled }}}}{there}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _parted(text: str, at: str) -> tuple[str, str]:
    before, found, after = text.partition(at)
    if not found:
        raise ValueError(f"the manifest has no {at.strip()!r}")
    return before, found + after


def _to_sidecars(text: str) -> str:
    """Callers come to the sidecars."""
    return text.replace("component: web\n", f"component: {_either('front', 'web')}\n", 1)


def _from_sidecars(text: str) -> str:
    """Sidecars reach the vault, and callers do not."""
    before, callers = _parted(text, "    # Callers, by way of")
    callers, others = _parted(callers, "    # The vault's own interface, from pods")
    sidecars = """\
    # Sidecars without storage.
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: contacts
              app.kubernetes.io/component: front
      ports:
        - {protocol: TCP, port: remote}
"""
    return before + _IF + sidecars + _ELSE + callers + _END + others


_PATCHED: Final = {
    "statefulset.yaml": _without_application,
    "services.yaml": _to_sidecars,
    "network-policy.yaml": _from_sidecars,
}


# The language of templates, as far as it is used here.

_TOKEN: Final = re.compile(r"(\s*\{\{-|\{\{) (.+?) \}\}")


def render(template: str, values: Mapping[str, Any], namespace: str) -> str:
    """What Helm makes of a template of this chart, as far as its language is used there."""

    def value(expression: str) -> Any:
        if expression == ".Release.Namespace":
            return namespace
        found: Any = values
        for name in expression.removeprefix(".Values.").split("."):
            found = found[name]
        return found

    def shown() -> Iterator[str]:
        at, on = 0, [True]
        for token in _TOKEN.finditer(template):
            if all(on):
                yield template[at : token.start()]
            at = token.end()
            word, _, rest = token[2].partition(" ")
            match word:
                case "if":
                    on.append(bool(value(rest.removeprefix("not "))) != rest.startswith("not "))
                case "else":
                    on[-1] = not on[-1]
                case "end":
                    on.pop()
                case _ if all(on):
                    indent = rest.removeprefix("| indent ")
                    yield (
                        textwrap.indent(value(word), " " * int(indent))
                        if indent
                        else str(value(word))
                    )
        yield template[at:]

    return "".join(shown())


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
