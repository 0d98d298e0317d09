"""What does the chart make of the values? The settings of KubeSpawner that decide what a pod may do.

A part of what the jupyterhub_config.py of Zero to JupyterHub does: the names of the chart on the right, those
of KubeSpawner on the left. What `hub.config` says comes last there, and so it does here.
"""

from pathlib import Path
from unittest import mock

import yaml
from jupyterhub.objects import Hub
from jupyterhub.orm import Spawner as Record
from kubernetes_asyncio.client import ApiClient
from kubespawner import KubeSpawner
from traitlets.config import Config

HUB = Path(__file__).resolve().parents[2] / "deploy" / "hub"
VALUES = yaml.safe_load((HUB / "values.yaml").read_text())
NAMES = {
    "start_timeout": "startTimeout",
    "uid": "uid",
    "fs_gid": "fsGid",
    "allow_privilege_escalation": "allowPrivilegeEscalation",
    "lifecycle_hooks": "lifecycleHooks",
    "environment": "extraEnv",
    "profile_list": "profileList",
    "cmd": "cmd",
    "default_url": "defaultUrl",
    "mem_limit": "memory.limit",
    "mem_guarantee": "memory.guarantee",
    "cpu_limit": "cpu.limit",
    "cpu_guarantee": "cpu.guarantee",
}
# Read by the chart's templates, or on the other side of it: the server in the pod.
BY_OTHERS = {"networkPolicy", "cloudMetadata", "extraFiles"}
HOME = {"name": "volume-{user_server}", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}}
USERS = [
    {"key": f"hub.jupyter.org{mark}dedicated", "operator": "Equal", "value": "user", "effect": "NoSchedule"}
    for mark in "/_"
]


def looked_up(name):
    """The value of a dotted name under `singleuser`."""
    found = VALUES["singleuser"]
    for part in name.split("."):
        found = found[part]
    return found


def settings():
    """KubeSpawner's configuration."""
    own, storage = VALUES["singleuser"], VALUES["singleuser"]["storage"]
    found = {trait: looked_up(name) for trait, name in NAMES.items()}
    found |= {
        "image": f"{own['image']['name']}:{own['image']['tag']}",
        "tolerations": USERS,
        "storage_capacity": storage["capacity"],
        "volumes": [HOME, *storage["extraVolumes"]],
        "volume_mounts": [
            {"mountPath": "/home/jovyan", "name": HOME["name"]}, *storage["extraVolumeMounts"]
        ],
        "extra_labels": {"hub.jupyter.org/network-access-hub": "true"},
    }  # fmt: skip
    return Config(KubeSpawner=found | VALUES["hub"]["config"]["KubeSpawner"])


class Reader:
    """Who starts a server."""

    name = escaped_name = "ada"
    id, url, settings = 1, "/user/ada/", {}


async def pod(profile):
    """The pod that KubeSpawner makes for a reader who chooses this profile, as Kubernetes receives it."""
    hub = Hub(public_host="", ip="hub", port=8081)
    with mock.patch("kubespawner.spawner.load_config"):  # there is no cluster to talk to
        made = KubeSpawner(
            config=settings(), _mock=True, user=Reader(), hub=hub, orm_spawner=Record(name="", server=None),
            user_options={"profile": profile}, api_token="of-no-use", oauth_client_id="nobody",
        )  # fmt: skip
    await made.load_user_options()
    manifest = await made.get_pod_manifest()
    async with ApiClient() as client:
        return client.sanitize_for_serialization(manifest)
