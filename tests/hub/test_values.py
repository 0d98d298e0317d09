"""What Kubernetes would be asked for: the pods that KubeSpawner makes of the values, and a few manifests."""

import asyncio
import re
import subprocess
from importlib.metadata import entry_points

import kubernetes_validate
import pytest
import yaml
from chart import BY_OTHERS, HUB, NAMES, VALUES, looked_up, pod
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
from jupyterhub.auth import NullAuthenticator
from jupyterhub.traitlets import ByteSpecification
from kubespawner import KubeSpawner

GPU = "nvidia.com/gpu"
GPUS = {"cpu": 0, "gpu-1": 1, "gpu-4": 4, "gpu-8": 8}
SECRET = re.compile("secret|token|password|key$", re.IGNORECASE)
MANIFESTS = list(yaml.safe_load_all((HUB / "namespace.yaml").read_text()))
NAMESPACE, QUOTA, RANGE = MANIFESTS
GIB = 2**30


def in_bytes(quantity):
    """Bytes of a quantity as Kubernetes (Gi) or JupyterHub (G, the same) writes it."""
    return ByteSpecification().validate(None, quantity.removesuffix("i"))


@pytest.fixture(scope="module")
def pods():
    return {profile: asyncio.run(pod(profile)) for profile in GPUS}


@pytest.fixture(params=GPUS)
def spec(request, pods):
    return pods[request.param]["spec"]


@pytest.fixture
def container(spec):
    (only,) = spec["containers"]
    return only


def test_the_profiles_are_these():
    assert [profile["slug"] for profile in VALUES["singleuser"]["profileList"]] == list(GPUS)


@pytest.mark.parametrize("profile", GPUS)
def test_kubernetes_knows_every_field_of_the_pod(profile, pods):
    kubernetes_validate.validate(pods[profile], "1.37", strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["kind"])
def test_kubernetes_knows_every_field_of_the_namespace(manifest):
    kubernetes_validate.validate(manifest, "1.37", strict=True)


@pytest.mark.parametrize("field", ["tolerationz", "securityContext2"])
def test_a_field_that_kubernetes_does_not_know_is_found(field, pods):
    wrong = {**pods["cpu"], "spec": {**pods["cpu"]["spec"], field: []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_every_value_of_a_reader_is_read():
    read = {name.split(".")[0] for name in NAMES.values()} | {"image", "storage"}
    assert set(VALUES["singleuser"]) == read | BY_OTHERS
    assert set(VALUES["hub"]["config"]["KubeSpawner"]) <= set(KubeSpawner.class_traits(config=True))


@pytest.mark.parametrize("profile, gpus", GPUS.items())
def test_a_profile_has_as_many_gpus_as_it_says(profile, gpus, pods):
    resources = pods[profile]["spec"]["containers"][0]["resources"]
    assert int(resources["limits"].get(GPU, 0)) == int(resources["requests"].get(GPU, 0)) == gpus


def test_only_those_with_gpus_may_use_the_machines_kept_for_them(pods):
    for profile, gpus in GPUS.items():
        tolerated = {toleration["key"] for toleration in pods[profile]["spec"]["tolerations"]}
        assert (GPU in tolerated) == (gpus > 0)
        assert "hub.jupyter.org/dedicated" in tolerated


def test_the_eight_gpus_are_where_nvlink_is(pods):
    assert pods["gpu-8"]["spec"]["nodeSelector"] == {"allranks.dev/nvlink": "true"}
    assert "nodeSelector" not in pods["gpu-4"]["spec"]


def test_shared_memory_is_a_volume_in_memory_with_a_limit(spec, container):
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    shared = volumes[mounts["/dev/shm"]]["emptyDir"]
    assert shared["medium"] == "Memory"
    assert in_bytes(shared["sizeLimit"]) >= GIB  # `launch` takes another place where there is less
    assert container["resources"]["limits"]["memory"] >= 2 * GIB  # it counts as the pod's


def test_memory_and_cores_have_a_guarantee_and_a_limit(container):
    for what in ("memory", "cpu"):
        asked, most = (float(container["resources"][kind][what]) for kind in ("requests", "limits"))
        assert 0 < asked <= most


def test_nobody_is_root_or_becomes_it(spec, container):
    own = container["securityContext"]
    assert own["runAsUser"] == 1000 and own["runAsNonRoot"] and spec["securityContext"]["runAsNonRoot"]
    assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
    assert not own.get("privileged")
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_pod_cannot_talk_to_kubernetes(spec):
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec


def test_nothing_of_the_machine_is_in_a_pod(spec):
    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC", "initContainers"))
    assert all({"persistentVolumeClaim", "emptyDir"} & set(volume) for volume in spec["volumes"])


def test_a_pod_reaches_neither_pods_nor_the_metadata_service():
    policy = VALUES["singleuser"]["networkPolicy"]
    assert policy["enabled"] and policy["ingress"] == [] and policy["interNamespaceAccessLabels"] == "ignore"
    allowed = {rule for rule, value in policy["egressAllowRules"].items() if value}
    assert allowed == {"dnsPortsKubeSystemNamespace", "dnsPortsPrivateIPs", "nonPrivateIPs"}
    assert VALUES["singleuser"]["cloudMetadata"]["blockWithIptables"] is False  # needs a privileged container


def test_ranks_have_a_thread_each(container):
    assert {"name": "OMP_NUM_THREADS", "value": "1"} in container["env"]


def test_the_book_is_fetched_where_its_links_expect_it(container):
    script = container["lifecycle"]["postStart"]["exec"]["command"][2]
    assert "gitpuller https://github.com/allranks/allranks main allranks " in script
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


def test_a_server_opens_though_neither_network_nor_notebooks_are_there(container, tmp_path):
    command = container["lifecycle"]["postStart"]["exec"]["command"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and "gitpuller" in ended.stderr


def test_idle_servers_end_before_a_working_day_does():
    cull = VALUES["cull"]
    assert cull["enabled"] and 0 < cull["every"] <= cull["timeout"] < cull["maxAge"] <= 8 * 3600


def test_idle_kernels_give_their_gpu_back_and_busy_ones_go_on():
    data = looked_up("extraFiles")["jupyter_server_config.json"]["data"]["MappingKernelManager"]
    assert set(data) <= set(MappingKernelManager.class_traits(config=True))
    assert 0 < data["cull_idle_timeout"] <= VALUES["cull"]["timeout"] and data["cull_busy"] is False


def test_the_quota_has_room_for_as_many_servers_as_the_hub_starts():
    servers, hard = VALUES["hub"]["activeServerLimit"], QUOTA["spec"]["hard"]
    assert int(hard["persistentvolumeclaims"]) > servers
    capacity = in_bytes(looked_up("storage.capacity"))
    assert in_bytes(hard["requests.storage"]) > servers * capacity
    assert in_bytes(RANGE["spec"]["limits"][1]["max"]["storage"]) >= capacity
    memory, cores = looked_up("memory.guarantee"), looked_up("cpu.guarantee")
    assert in_bytes(hard["requests.memory"]) > servers * in_bytes(memory)
    assert int(hard["requests.cpu"]) > servers * cores
    assert int(hard[f"requests.{GPU}"]) >= max(GPUS.values())


def secrets(node, path=()):
    """Every literal that is named like a secret, with its path."""
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, str) and SECRET.search(name) and "secretKeyRef" not in path:
                yield (*path, name), value
            yield from secrets(value, (*path, name))
    elif isinstance(node, list):
        for value in node:
            yield from secrets(value, path)


@pytest.mark.parametrize("file", sorted(HUB.glob("*.yaml")), ids=lambda file: file.name)
def test_no_file_holds_a_secret(file):
    harmless = {"secretName", "key", "username_key"}  # names of objects, of taints, of a claim
    found = [(p, v) for document in yaml.safe_load_all(file.read_text()) for p, v in secrets(document)]
    assert [one for one in found if one[0][-1] not in harmless] == []


def test_a_secret_in_a_file_would_be_found():
    assert list(secrets({"hub": {"config": {"X": {"client_secret": "abc"}}}}))


@pytest.mark.parametrize("file", sorted(HUB.glob("sign-in-*.yaml")), ids=lambda file: file.name)
def test_a_way_to_sign_in_changes_nothing_else(file):
    given = yaml.safe_load(file.read_text())
    assert set(given) == {"hub", "ingress"} and set(given["hub"]) <= {"config", "extraEnv"}
    assert "authenticator_class" in given["hub"]["config"]["JupyterHub"]
    assert "KubeSpawner" not in given["hub"]["config"]


def test_without_a_way_to_sign_in_nobody_can():
    name = VALUES["hub"]["config"]["JupyterHub"]["authenticator_class"]
    (named,) = entry_points(group="jupyterhub.authenticators", name=name)
    assert issubclass(named.load(), NullAuthenticator)
