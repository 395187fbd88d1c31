"""examples/kubernetes: valid by the schemas of Kubernetes, and of one mind with itself
and with jccl. No cluster takes part."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from click.testing import CliRunner

from jccl.cli import group
from jccl.cli.master import command as master
from tests.docs.markdown import ROOT

TREE = ROOT / "examples" / "kubernetes"
NEWEST, OLDEST = "1.37", "1.33"


def of_files():
    kustomization = yaml.safe_load((TREE / "kustomization.yaml").read_text())
    return [
        part
        for name in kustomization["resources"]
        for part in yaml.safe_load_all((TREE / name).read_text())
    ]


def named(kind, name, parts):
    return next(
        part
        for part in parts
        if (part["kind"], part["metadata"]["name"]) == (kind, name)
    )


@pytest.fixture
def parts():
    return of_files()


def pod(part):
    return part["spec"]["template"]["spec"]


def environment(part):
    (container,) = pod(part)["containers"]
    return {one["name"]: one for one in container["env"]}


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="no kubernetes-validate",
)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(parts, version):
    import kubernetes_validate

    for part in parts:
        kubernetes_validate.validate(part, version, strict=True)
    wrong = {**parts[0], "specification": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_every_file_is_a_resource():
    kustomization = yaml.safe_load((TREE / "kustomization.yaml").read_text())
    there = {path.name for path in TREE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_kustomize_renders_it_and_policies_select_its_pods():
    argv = ["kubectl", "kustomize", str(TREE)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    rendered = list(yaml.safe_load_all(said.stdout))
    kinds = sorted((one["kind"], one["metadata"]["name"]) for one in rendered)
    assert kinds == sorted((p["kind"], p["metadata"]["name"]) for p in of_files())
    pods = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in rendered
        if one["kind"] in ("Deployment", "Job")
    ]
    for selector in selectors(rendered):
        assert any(selector.items() <= labels.items() for labels in pods), selector
    for one in rendered:
        if one["kind"] in ("Deployment", "Job"):
            (container,) = pod(one)["containers"]
            assert container["image"] == "registry.example.org/jccl-train:1"


def selectors(found):
    """Of pods of this tree."""
    if isinstance(found, list):
        for one in found:
            yield from selectors(one)
    elif isinstance(found, dict):
        if "namespaceSelector" in found:
            return  # the cluster's name service
        if "matchLabels" in found:
            yield found["matchLabels"]
        for one in found.values():
            yield from selectors(one)


def test_the_image_of_the_master_is_built_of_what_is_there():
    lines = (TREE / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split() for line in lines if line and line[0] not in "# "]
    for step in steps:
        if step[0] == "COPY" and not step[1].startswith("--from"):
            assert (ROOT / step[1]).exists(), step
    presets = json.loads((ROOT / "cpp" / "CMakePresets.json").read_text())
    names = {one["name"] for one in presets["configurePresets"]}
    (built,) = (step for step in steps if "--preset" in step)
    assert built[built.index("--preset") + 1] in names
    (installs,) = (step for step in steps if "apt-get" in step)
    setup = (ROOT / ".ci" / "setup").read_text()
    for package in installs[installs.index("--no-install-recommends") + 1 :]:
        assert package in setup or package in ("cmake", "ninja-build", "python3-pip")
    assert ["USER", "65534:65534"] in steps
    assert ["ENTRYPOINT", '["/jccl-master"]'] in steps


def test_what_objects_name_exists(parts):
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for part in parts
        if part["kind"] in ("Deployment", "Job")
        for volume in pod(part)["volumes"]
        if "persistentVolumeClaim" in volume
    }
    there = {
        p["metadata"]["name"] for p in parts if p["kind"] == "PersistentVolumeClaim"
    }
    assert claims == there
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    for kind, name in (("Deployment", "jccl-master"), ("Job", "jccl-peers")):
        for one in environment(named(kind, name, parts)).values():
            secret = one.get("valueFrom", {}).get("secretKeyRef")
            if secret:
                made = rf"secret generic {secret['name']}.*--from-file={secret['key']}="
                assert re.search(made, page), secret


def test_the_master_takes_its_arguments_and_is_where_peers_look(parts):
    deployment = named("Deployment", "jccl-master", parts)
    (container,) = pod(deployment)["containers"]
    assert container["command"] == ["jccl", "master"]
    given = master.make_context("master", list(container["args"])).params
    service = named("Service", "jccl-master", parts)
    port = service["spec"]["ports"][0]["port"]
    assert given["bind"] == f"0.0.0.0:{port}"
    peers = named("Job", "jccl-peers", parts)
    assert environment(peers)["JCCL_MASTER"]["value"] == f"jccl-master:{port}"
    assert given["start_peers"] == peers["spec"]["completions"]
    assert given["start_peers"] == peers["spec"]["parallelism"]
    # Where the journal is to outlive the pod.
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "journal"]
    assert given["store"].startswith(f"sqlite:{mount['mountPath']}/")


def test_peers_and_policies_speak_of_the_same_ports(parts):
    env = environment(named("Job", "jccl-peers", parts))
    port = int(env["JCCL_BIND"]["value"].rpartition(":")[2])
    to_peers = named("NetworkPolicy", "jccl-peers", parts)["spec"]["ingress"]
    assert [p["port"] for rule in to_peers for p in rule["ports"]] == [port]
    to_master = named("NetworkPolicy", "jccl-master", parts)["spec"]["ingress"]
    assert [p["port"] for rule in to_master for p in rule["ports"]] == [29400]


def test_variables_are_those_that_jccl_reads(parts):
    known = (ROOT / "docs" / "settings.md").read_text()
    for kind, name in (("Deployment", "jccl-master"), ("Job", "jccl-peers")):
        for variable in environment(named(kind, name, parts)):
            assert f"`{variable}`" in known or variable == "PEER_INDEX"


def test_the_pages_commands_make_the_secrets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    commands = re.findall(r"^ *\$ jccl (token .*)$", page, re.M)
    assert len(commands) == 2
    for command in commands:
        done = CliRunner().invoke(group, shlex.split(command))
        assert done.exit_code == 0, done.output
    made = set(re.findall(r"--from-file=\w+=(\S+)", page))
    assert made == {path.name for path in tmp_path.iterdir()}
