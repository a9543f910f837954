"""The manifests of k8s/: valid for every supported version of Kubernetes, and true of this program.
Needs no cluster.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from proxy.cli import commands
from proxy.cli.command import parser
from proxy.config import Settings, load_settings
from proxy.config.document import VARIABLE_PREFIX
from proxy.redactor.load import load_rule_set as load_rules
from tests.support.patience import PATIENCE
from tests.support.table import table
from tests.support.tree import ROOT

FOLDER = ROOT / "k8s"
OVERLAYS = ["embedded", "postgresql", "replicas", "gateway", "workers", "remote"]
VERSIONS = ["1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]

Manifest = dict[str, Any]


def manifests() -> Iterator[tuple[str, Manifest]]:
    for path in [*sorted((FOLDER / "base").glob("*.yaml")), FOLDER / "secret.example.yaml"]:
        if path.name != "kustomization.yaml":
            for document in yaml.safe_load_all(path.read_text("utf-8")):
                yield f"{path.name}:{document['kind']}/{document['metadata']['name']}", document


ALL = dict(manifests())


def one(kind: str, name: str) -> Manifest:
    (found,) = [m for m in ALL.values() if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


POD: Manifest = one("StatefulSet", "contacts")["spec"]["template"]
CONTAINERS = {container["name"]: container for container in POD["spec"]["containers"]}
DOMICILE = CONTAINERS["domicile"]
VOLUMES = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
MOUNTS = {mount["name"]: mount["mountPath"] for mount in DOMICILE["volumeMounts"]}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the sidecar makes of its variables."""
    monkeypatch.chdir(tmp_path)
    return load_settings(
        None, {variable["name"]: variable["value"] for variable in DOMICILE["env"]}
    )


@table("version", VERSIONS)
@table("name", ALL)
def test_every_manifest_fits_the_schema_of_the_api(name, version):
    kubernetes_validate.validate(ALL[name], version, strict=True)


def test_the_schema_check_can_fail():
    broken = {**one("Service", "contacts"), "spec": {"ports": [{"port": "eighty"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def kustomization(folder: str) -> Manifest:
    content: Manifest = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text("utf-8"))
    return content


def test_the_base_names_every_manifest_of_its_folder():
    files = {path.name for path in (FOLDER / "base").glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization("base")["resources"]) == files


@table("overlay", OVERLAYS)
def test_an_overlay_names_the_images_of_the_base(overlay):
    content = kustomization(f"overlays/{overlay}")
    assert content["resources"] == ["../../base"]
    replaced = {image["name"] for image in content["images"]}
    assert {container["image"] for container in CONTAINERS.values()} == replaced
    assert all(image["newTag"] != "latest" for image in content["images"])


def test_kustomize_builds_it(unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    built = subprocess.run(
        ["kubectl", "kustomize", FOLDER],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    rendered = list(yaml.safe_load_all(built.stdout))
    assert len(rendered) == len(
        [name for name in ALL if not name.startswith("secret.example.yaml:")]
    )
    (stateful,) = [m for m in rendered if m["kind"] == "StatefulSet"]
    assert all(
        "/" in container["image"]
        for container in stateful["spec"]["template"]["spec"]["containers"]
    )
    (keys,) = [v for v in stateful["spec"]["template"]["spec"]["volumes"] if v["name"] == "keys"]
    assert keys["secret"]["defaultMode"] == 0o400


def test_everything_lies_in_the_one_namespace():
    (namespace,) = [m["metadata"]["name"] for m in ALL.values() if m["kind"] == "Namespace"]
    assert {m["metadata"].get("namespace", namespace) for m in ALL.values()} == {namespace}


@table("name", CONTAINERS)
def test_every_container_meets_the_restricted_pod_security_standard(name):
    security = CONTAINERS[name]["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    pod = POD["spec"]["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD["spec"])
    assert set(CONTAINERS[name]["resources"]) == {"requests", "limits"}


def test_the_pod_holds_no_credentials_of_the_cluster():
    assert POD["spec"]["automountServiceAccountToken"] is False
    assert POD["spec"]["enableServiceLinks"] is False


def test_one_process_owns_the_embedded_vault(settings):
    spec = one("StatefulSet", "contacts")["spec"]
    assert settings.store.uri.startswith("sqlite:")
    assert spec["replicas"] == 1
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert MOUNTS[claim["metadata"]["name"]] == str(settings.data)
    assert settings.store.file.is_relative_to(settings.data)
    assert not [m for m in ALL.values() if m["kind"] == "HorizontalPodAutoscaler"]


def test_every_variable_of_the_sidecar_is_a_setting(settings):
    assert all(variable["name"].startswith(VARIABLE_PREFIX) for variable in DOMICILE["env"])
    assert settings.country == "se"


def test_a_variable_that_is_no_setting_would_be_found():
    with pytest.raises(Exception, match="one fault"):
        load_settings(None, {"DOMICILE__LISTEN__ADMN": "0.0.0.0:8082"})


def test_ports_of_containers_probes_and_services_agree_with_the_settings(settings):
    ports = {port["name"]: port["containerPort"] for port in DOMICILE["ports"]}
    listen = settings.listen
    assert ports == {
        "proxy": listen.proxy.port,
        "vault": listen.vault.port,
        "admin": listen.admin.port,
    }
    assert not settings.listen.admin.loopback, "the kubelet probes from outside the pod"
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert DOMICILE[probe]["httpGet"] == {"path": path, "port": "admin"}
    assert [port["targetPort"] for port in one("Service", "contacts")["spec"]["ports"]] == ["proxy"]
    (vault,) = one("Service", "contacts-vault")["spec"]["ports"]
    assert (vault["targetPort"], vault["port"]) == ("vault", settings.listen.vault.port)
    (admin,) = one("Service", "contacts-admin")["spec"]["ports"]
    assert (admin["targetPort"], admin["port"]) == ("admin", settings.listen.admin.port)
    annotations = one("Service", "contacts-admin")["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(settings.listen.admin.port)
    assert one("StatefulSet", "contacts")["spec"]["serviceName"] == "contacts-admin"


def test_every_selector_finds_the_pod():
    labels = POD["metadata"]["labels"].items()
    selectors = [
        one("Service", "contacts")["spec"]["selector"],
        one("Service", "contacts-vault")["spec"]["selector"],
        one("Service", "contacts-admin")["spec"]["selector"],
        one("StatefulSet", "contacts")["spec"]["selector"]["matchLabels"],
        one("PodDisruptionBudget", "contacts")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy", "contacts")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_the_application_is_reached_through_the_sidecar_alone():
    variables = {variable["name"]: variable["value"] for variable in CONTAINERS["web-app"]["env"]}
    assert variables["HOST"] == "127.0.0.1"
    policy = one("NetworkPolicy", "contacts")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == {
        "proxy",
        "vault",
        "admin",
    }
    assert all(rule["from"] for rule in policy["ingress"])
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53}
    closed = one("NetworkPolicy", "nothing")["spec"]
    assert closed["podSelector"] == {}
    assert not {"ingress", "egress"} & set(closed)


def test_rules_are_mounted_as_a_folder_so_that_a_change_arrives(settings):
    assert (
        VOLUMES["rules"]["configMap"]["name"]
        == one("ConfigMap", "domicile-rules")["metadata"]["name"]
    )
    (mount,) = [mount for mount in DOMICILE["volumeMounts"] if mount["name"] == "rules"]
    assert "subPath" not in mount
    assert mount["mountPath"] == str(settings.rules)


def test_the_rules_load_and_name_what_they_protect(tmp_path):
    for name, text in one("ConfigMap", "domicile-rules")["data"].items():
        (tmp_path / name).write_text(text, "utf-8")
    rules = load_rules(tmp_path)
    assert {operation.entity.name for operation in rules.operations} == {"contact"}
    assert len(rules.operations) == 5


def test_rules_point_at_the_port_of_the_application():
    variables = {variable["name"]: variable["value"] for variable in CONTAINERS["web-app"]["env"]}
    for text in one("ConfigMap", "domicile-rules")["data"].values():
        upstream = yaml.safe_load(text)["endpoint"]["upstream"]
        assert upstream == f"http://{variables['HOST']}:{variables['PORT']}"


def test_the_key_is_mounted_for_the_group_of_the_pod_alone(settings):
    assert settings.keys.source == "file"
    assert Path(settings.keys.locator).parent == Path(MOUNTS["keys"])
    assert VOLUMES["keys"]["secret"]["defaultMode"] == 0o400
    assert POD["spec"]["securityContext"]["fsGroup"] == POD["spec"]["securityContext"]["runAsGroup"]
    secret = one("Secret", "domicile-keys")
    assert secret["metadata"]["name"] == VOLUMES["keys"]["secret"]["secretName"]
    assert set(secret["stringData"]) == {Path(settings.keys.locator).name}


def test_the_secret_of_the_scraper_is_another_one_and_mounted_where_the_setting_says(settings):
    place = Path(settings.admin.metrics_token.locator)
    assert (settings.admin.metrics_token.source, place.parent) == ("file", Path(MOUNTS["scraper"]))
    assert VOLUMES["scraper"]["secret"] == {"secretName": "domicile-scraper", "defaultMode": 0o400}
    assert set(one("Secret", "domicile-scraper")["stringData"]) == {place.name}


def test_the_interface_of_the_vault_speaks_tls_and_what_is_in_the_clear_is_named(settings):
    tls = settings.listen.tls
    assert [name for name in ("proxy", "vault", "admin") if tls.secures(name)] == ["vault"]
    assert settings.listen.insecure == {"proxy", "admin"}
    folder = Path(MOUNTS["tls"])
    assert (tls.certificate, tls.key) == ((folder / "tls.crt",), (folder / "tls.key",))
    (mount,) = [mount for mount in DOMICILE["volumeMounts"] if mount["name"] == "tls"]
    assert mount["readOnly"]
    assert "subPath" not in mount, "a renewed certificate would not arrive"
    assert VOLUMES["tls"]["secret"] == {"secretName": "contacts-vault-tls", "defaultMode": 0o400}
    example = one("Secret", "contacts-vault-tls")
    assert (example["type"], set(example["stringData"])) == (
        "kubernetes.io/tls",
        {"tls.crt", "tls.key", "ca.crt"},
    )


def test_the_certificate_stands_for_every_address_that_tokens_are_for(settings):
    text = (FOLDER / "cert-manager" / "certificate.yaml").read_text("utf-8")
    documents = list(yaml.safe_load_all(text))
    assert {document["apiVersion"] for document in documents} == {"cert-manager.io/v1"}
    (leaf,) = [one["spec"] for one in documents if one["metadata"]["name"] == "contacts-vault"]
    addresses = [f"https://{name}:{settings.listen.vault.port}" for name in leaf["dnsNames"]]
    assert addresses == list(settings.auth.audiences)
    assert leaf["secretName"] == VOLUMES["tls"]["secret"]["secretName"]
    issuers = {one["metadata"]["name"] for one in documents if one["kind"] == "Issuer"}
    assert {
        one["spec"]["issuerRef"]["name"] for one in documents if one["kind"] == "Certificate"
    } <= issuers
    by_hand = (FOLDER / "secret.example.yaml").read_text("utf-8")
    assert all(f"DNS:{name}" in by_hand for name in leaf["dnsNames"])


def test_the_example_secret_is_no_key():
    (text,) = one("Secret", "domicile-keys")["stringData"].values()
    assert "put the content" in text
    assert "{" not in text


def test_a_stop_lets_requests_finish():
    grace = POD["spec"]["terminationGracePeriodSeconds"]
    waits = {
        name: container["lifecycle"]["preStop"]["sleep"]["seconds"]
        for name, container in CONTAINERS.items()
    }
    assert waits["domicile"] < waits["web-app"] < grace


def test_user_and_folders_agree_with_the_image(settings):
    image = (ROOT / "Dockerfile").read_text("utf-8")
    user = POD["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:{POD['spec']['securityContext']['runAsGroup']}\n" in image
    assert f"VOLUME {settings.data}\n" in image
    assert f"DOMICILE__RULES={settings.rules}\n" in image
    assert f"EXPOSE {settings.listen.proxy.port} {settings.listen.vault.port}\n" in image


def test_a_backup_runs_beside_the_instance_and_reads_its_volume_and_its_key():
    """The container of k8s/backup: its command line is one that there is, its volumes are those of
    the instance, and it may no more than others.
    """
    patch = yaml.safe_load((FOLDER / "backup/container.yaml").read_text("utf-8"))
    claim = yaml.safe_load((FOLDER / "backup/claim.yaml").read_text("utf-8"))
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    for version in VERSIONS:
        kubernetes_validate.validate(claim, version, strict=True)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {name: MOUNTS[name] for name in mounts if name != volume["name"]} == {
        name: path for name, path in mounts.items() if name != volume["name"]
    }
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    instance = {variable["name"]: variable["value"] for variable in DOMICILE["env"]}
    assert environment.items() <= instance.items()
    assert container["securityContext"] == DOMICILE["securityContext"]
    arguments = parser(commands("backup")).parse_args(container["args"])
    assert (str(arguments.target), arguments.every) == (mounts[volume["name"]], 86_400_000)
    component = yaml.safe_load((FOLDER / "backup/kustomization.yaml").read_text("utf-8"))
    assert {patch["path"] for patch in component["patches"]} == {"container.yaml"}
    assert component["resources"] == ["claim.yaml"]


def test_kustomize_adds_the_backup(tmp_path, unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    shutil.copytree(FOLDER, tmp_path / "k8s")
    file = tmp_path / "k8s" / "overlays" / "embedded" / "kustomization.yaml"
    written = file.read_text("utf-8")
    file.write_text(
        written.replace("components: []  # [../../backup, ", "components: [../../backup]  # ")
    )
    built = subprocess.run(
        ["kubectl", "kustomize", file.parent],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    rendered = list(yaml.safe_load_all(built.stdout))
    (stateful,) = [m for m in rendered if m["kind"] == "StatefulSet"]
    containers = {c["name"]: c for c in stateful["spec"]["template"]["spec"]["containers"]}
    assert containers["backup"]["image"] == containers["domicile"]["image"] != "domicile"
    assert "contacts-backups" in {m["metadata"]["name"] for m in rendered}


def built(folder: Path) -> dict[str, Manifest]:
    """What kustomize makes of a folder, by kind and name."""
    done = subprocess.run(
        ["kubectl", "kustomize", folder],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return {f"{m['kind']}/{m['metadata']['name']}": m for m in yaml.safe_load_all(done.stdout)}


def pods(rendered: dict[str, Manifest]) -> list[Manifest]:
    return [m["spec"]["template"]["spec"] for m in rendered.values() if "template" in m["spec"]]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_builds_is_valid_and_restricted(overlay, unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    rendered = built(FOLDER / "overlays" / overlay)
    for version in (VERSIONS[0], VERSIONS[3], VERSIONS[-1]):
        for manifest in rendered.values():
            kubernetes_validate.validate(manifest, version, strict=True)
    for pod in pods({name: m for name, m in rendered.items() if "spec" in m}):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["image"].startswith("registry.example.com/")
            assert container["securityContext"] == DOMICILE["securityContext"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            named = {volume["name"] for volume in pod["volumes"]} | {"data"}
            assert mounted <= named


def test_the_overlay_for_postgresql_names_a_store_and_the_way_to_it(
    unavailable, monkeypatch, tmp_path
):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    monkeypatch.chdir(tmp_path)
    rendered = built(FOLDER / "overlays" / "postgresql")
    (pod,) = pods({"": rendered["StatefulSet/contacts"]})
    (container,) = [one for one in pod["containers"] if one["name"] == "domicile"]
    settings = load_settings(
        None, {one["name"]: one["value"] for one in container["env"] if "value" in one}
    )
    assert settings.store.label.startswith("postgresql.database:5432")
    assert "sslmode=verify-full" in settings.store.uri
    ports = {
        port["port"]
        for rule in rendered["NetworkPolicy/contacts"]["spec"]["egress"]
        for port in rule["ports"]
    }
    assert ports == {53, 5432}


def test_the_overlay_for_replicas_lets_two_pods_share_a_store_and_no_folder(
    unavailable, monkeypatch, tmp_path
):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    monkeypatch.chdir(tmp_path)
    rendered = built(FOLDER / "overlays" / "replicas")
    pods_of = rendered["StatefulSet/contacts"]["spec"]
    assert pods_of["replicas"] == 2
    assert rendered["PodDisruptionBudget/contacts"]["spec"]["maxUnavailable"] == 1
    (container,) = [
        one for one in pods_of["template"]["spec"]["containers"] if one["name"] == "domicile"
    ]
    settings = load_settings(
        None, {one["name"]: one["value"] for one in container["env"] if "value" in one}
    )
    assert "replicas=true" in settings.store.uri
    assert settings.files.folder is None, "a pod has no folder of the other one"
    ports = {
        port["port"]
        for rule in rendered["NetworkPolicy/contacts"]["spec"]["egress"]
        for port in rule["ports"]
    }
    assert ports == {53, 5432, 9000}


def test_behind_the_gateway_the_application_speaks_to_the_proxy_alone(unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    rendered = built(FOLDER / "overlays" / "gateway")
    (own,) = pods({"": rendered["StatefulSet/contacts"]})
    assert [one["name"] for one in own["containers"]] == ["domicile"]
    arguments = parser(commands("serve")).parse_args(own["containers"][0]["args"])
    service = rendered["Service/contacts-application"]
    port = service["spec"]["ports"][0]["port"]
    assert arguments.upstream == f"http://{service['metadata']['name']}:{port}"
    policy = rendered["NetworkPolicy/contacts-application"]["spec"]
    labels = rendered["Deployment/contacts-application"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    proxy = POD["metadata"]["labels"].items()
    (entry,) = policy["ingress"]
    assert entry["from"][0]["podSelector"]["matchLabels"].items() <= proxy
    to_proxy, to_names = policy["egress"]
    assert to_proxy["to"][0]["podSelector"]["matchLabels"].items() <= proxy
    assert {port["port"] for port in to_names["ports"]} == {53}
    selector = rendered["Service/contacts"]["spec"]["selector"]
    assert not selector.items() <= labels.items(), "callers would reach the application itself"


def test_a_native_sidecar_starts_before_the_application(unavailable, tmp_path):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    shutil.copytree(FOLDER, tmp_path / "k8s")
    file = tmp_path / "k8s" / "overlays" / "embedded" / "kustomization.yaml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("components: []  # ", "components: [../../native-sidecar]  # "))
    (pod,) = pods({"": built(file.parent)["StatefulSet/contacts"]})
    (sidecar,) = pod["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("domicile", "Always")
    assert {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} <= sidecar.keys()
    assert [one["name"] for one in pod["containers"]] == ["web-app"]
    assert "lifecycle" not in pod["containers"][0]


def test_workers_are_given_cores_and_memory(unavailable):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    (pod,) = pods({"": built(FOLDER / "overlays" / "workers")["StatefulSet/contacts"]})
    (container,) = [one for one in pod["containers"] if one["name"] == "domicile"]
    count = parser(commands("serve")).parse_args(container["args"]).workers
    megabytes = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    assert megabytes >= (count + 1) * 150 + 40, "as docs/operations.md counts"
    assert int(container["resources"]["limits"]["cpu"]) == count + 1


def test_sidecars_without_storage_find_the_vault_and_prove_their_name_to_it(
    unavailable, monkeypatch, tmp_path
):
    if shutil.which("kubectl") is None:
        unavailable("building k8s/ with kustomize", "kubectl is not installed")
    monkeypatch.chdir(tmp_path)
    rendered = built(FOLDER / "overlays" / "remote")
    vault, front = (
        rendered[name] for name in ("StatefulSet/contacts", "Deployment/contacts-front")
    )
    settings, mounted = [], []
    for pod in pods({"vault": vault, "front": front}):
        (own,) = [one for one in pod["containers"] if one["name"] == "domicile"]
        settings.append(load_settings(None, {one["name"]: one["value"] for one in own["env"]}))
        (secret,) = [one["secret"] for one in pod["volumes"] if one["name"] == "remote"]
        (mount,) = [one for one in own["volumeMounts"] if one["name"] == "remote"]
        remote = settings[-1].remote
        files = {str(path) for path in (remote.authorities, remote.certificate, remote.key)}
        assert files == {f"{mount['mountPath']}/{one}" for one in ("ca.crt", "tls.crt", "tls.key")}
        mounted.append(secret["secretName"])
        assert not {"keys", "data"} & {
            one["name"] for one in pod["volumes"] if "secret" in one
        } or (pod is not front["spec"]["template"]["spec"])
    owner, sidecar = settings
    names = {
        one["spec"]["secretName"]: one["spec"]["dnsNames"]
        for one in yaml.safe_load_all((FOLDER / "cert-manager/remote.yaml").read_text("utf-8"))
    }
    assert sidecar.remote.vault is not None
    assert owner.remote.listen is not None
    assert sidecar.remote.vault[0] in names[mounted[0]]
    assert list(owner.remote.clients) == names[mounted[1]]
    (port,) = rendered["Service/contacts-remote"]["spec"]["ports"]
    assert sidecar.remote.vault == ("contacts-remote.contacts", port["port"])
    assert owner.remote.listen[1] == port["port"]
    labels = front["spec"]["template"]["metadata"]["labels"]
    assert rendered["Service/contacts"]["spec"]["selector"].items() <= labels.items()
    entry, *_ = rendered["NetworkPolicy/contacts"]["spec"]["ingress"]
    assert entry["from"][0]["podSelector"]["matchLabels"] == labels
    out = rendered["NetworkPolicy/contacts-front"]["spec"]["egress"]
    assert {one["port"] for rule in out for one in rule["ports"]} == {"remote", 53}
