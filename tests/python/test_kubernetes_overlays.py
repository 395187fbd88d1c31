"""examples/kubernetes-etcd and -jobset: rendered on the tree that they change, valid,
and of one mind with jccl. No cluster takes part.

JobSet's schema is in no Python package. tests/data/jobset_schema.json is that of
config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml in kubernetes-sigs/jobset at
08dfbdfd (Apache-2.0), without its status, volumes, texts and rules in CEL, and without
the template of a Job, which is a core kind.
"""

import importlib.util
import json
import re
import shutil
import subprocess

import pytest
import yaml

from jccl.cli.master import command as master
from tests.docs.markdown import ROOT
from tests.python.test_kubernetes import NEWEST, OLDEST, environment, named, pod
from tests.python.test_kubernetes import of_files as base

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
SCHEMA = ROOT / "tests" / "data" / "jobset_schema.json"


def files(name):
    """Objects that the overlay adds, and its kustomization."""
    tree = EXAMPLES / f"kubernetes-{name}"
    kustomization = yaml.safe_load((tree / "kustomization.yaml").read_text())
    added = [one for one in kustomization["resources"] if one.endswith(".yaml")]
    assert {path.name for path in tree.iterdir()} == {*added, "kustomization.yaml"}
    parts = [p for one in added for p in yaml.safe_load_all((tree / one).read_text())]
    return parts, kustomization


def rendered(name):
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    argv = ["kubectl", "kustomize", str(EXAMPLES / f"kubernetes-{name}")]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    return list(yaml.safe_load_all(said.stdout))


def job_of(jobset):
    """A Job as JobSet makes it of its template."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    meta = {"name": f"{jobset['metadata']['name']}-{replicated['name']}-0"}
    template = replicated["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, **template}


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="no kubernetes-validate",
)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", ["etcd", "jobset"])
def test_every_added_object_is_valid(name, version):
    import kubernetes_validate

    parts, _ = files(name)
    for part in parts:
        one = job_of(part) if part["kind"] == "JobSet" else part
        kubernetes_validate.validate(one, version, strict=True)


def closed(schema):
    """The same schema, which refuses fields that it does not know, as a server does."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    new = {key: closed(value) for key, value in schema.items()}
    opened = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & {*new}
    if isinstance(schema.get("properties"), dict) and not opened:
        new["additionalProperties"] = False
    return new


def test_the_jobset_is_valid():
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema")
    jobset = named("JobSet", "jccl-peers", files("jobset")[0])
    of = json.loads(SCHEMA.read_text())
    assert jobset["apiVersion"] == f"jobset.x-k8s.io/{of['version']}"
    schema = closed(of["schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # of every kind, not of this
    jsonschema.validate(jobset, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**jobset, "specification": {}}, schema)
    jobset["spec"]["failurePolicy"]["rules"][0]["action"] = "RestartSite"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(jobset, schema)


def test_the_jobs_and_the_masters_names_are_those_that_are_looked_for():
    jobset = named("JobSet", "jccl-peers", files("jobset")[0])
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = job_of(jobset)
    env = environment(job)
    # NAME-REPLICATED-INDEX-POD.NAME, by enableDNSHostnames.
    host = f"jccl-peers-{replicated['name']}-$(SITE_INDEX)-0.jccl-peers"
    assert jobset["spec"]["network"]["enableDNSHostnames"]
    assert env["JAX_COORDINATOR_ADDRESS"]["value"].rpartition(":")[0] == host
    assert env["JCCL_SHARDS"]["value"] == str(job["spec"]["completions"])
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    (container,) = pod(named("Deployment", "jccl-master", base()))["containers"]
    given = master.make_context("master", list(container["args"])).params
    assert given["start_peers"] == replicated["replicas"]
    own = {"SITE_INDEX", "JAX_COORDINATOR_ADDRESS"}
    known = (ROOT / "docs" / "settings.md").read_text()
    assert not [name for name in {*env} - own if f"`{name}`" not in known]


def test_two_masters_share_a_journal_in_etcd_and_peers_know_both():
    parts, kustomization = files("etcd")
    masters = named("StatefulSet", "jccl-master", parts)
    (container,) = pod(masters)["containers"]
    given = master.make_context("master", list(container["args"])).params
    assert given["store"].startswith("etcds://")
    port = given["bind"].rpartition(":")[2]
    names = [f"jccl-master-{i}" for i in range(masters["spec"]["replicas"])]
    service = masters["spec"]["serviceName"]
    addresses = ",".join(f"{name}.{service}:{port}" for name in names)
    (patch,) = (
        one["patch"]
        for one in kustomization["patches"]
        if one.get("target", {}).get("kind") == "Job"
    )
    assert yaml.safe_load(patch)[-1]["value"] == addresses
    # Every file that the store names comes from the secret that the page makes.
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "etcd"]
    secret = pod(masters)["volumes"][0]["secret"]["secretName"]
    (made,) = re.findall(rf"secret generic {secret} (.*)", PAGE)
    for path in re.findall(r"(?:ca|cert|key)=([^&]+)", given["store"]):
        folder, _, name = path.rpartition("/")
        assert folder == mount["mountPath"] and f"--from-file={name}" in made


@pytest.mark.parametrize(
    "name, kind, gone",
    [
        (
            "etcd",
            "StatefulSet",
            {"Deployment/jccl-master", "PersistentVolumeClaim/jccl-journal"},
        ),
        ("jobset", "JobSet", {"Job/jccl-peers"}),
    ],
)
def test_kustomize_renders_it(name, kind, gone):
    parts = rendered(name)
    kinds = {f"{one['kind']}/{one['metadata']['name']}" for one in parts}
    assert not kinds & gone
    assert {one["metadata"].get("namespace", "jccl") for one in parts} == {"jccl"}
    (new,) = (one for one in parts if one["kind"] == kind)
    (container,) = pod(job_of(new) if kind == "JobSet" else new)["containers"]
    assert container["image"] == "registry.example.org/jccl-train:1"
    if name == "etcd":
        peers = environment(named("Job", "jccl-peers", parts))
        assert peers["JCCL_MASTER"]["value"].count(":29400") == 2
        policy = named("NetworkPolicy", "jccl-master", parts)["spec"]["egress"]
        assert 2379 in [port["port"] for rule in policy for port in rule["ports"]]
    labels = (job_of(new) if kind == "JobSet" else new)["spec"]["template"]["metadata"]
    assert labels["labels"]["app.kubernetes.io/part-of"] == "jccl"
