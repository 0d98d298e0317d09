"""Which device is checked, how many ranks has it, and what is missing? Said before anything starts."""

import os
import platform
from collections import namedtuple
from importlib.util import find_spec
from pathlib import Path

Machine = namedtuple("Machine", "device name gpus memory accelerator")
Machine.__doc__ = """What is checked: `device` "cuda" or "cpu", its `name`, the number of `gpus`, bytes of
`memory` of one, and the `accelerator` of that name in `allranks.hardware`, or None."""

# Only these: a card of the same chip in a slot, or a part of one, has another peak.
ACCELERATORS = {
    "Tesla V100-SXM2-32GB": "v100-32gb",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
}
DRY_MEMORY = 8 * 10**6  # bytes that a dry run takes a CPU to have
MODULES = {
    "launch": ("torch", "cloudpickle", "numpy", "pytest"),
    "memory": ("torch", "cloudpickle"),
    "speed": ("torch", "cloudpickle"),
    "kernels": ("torch",),
    "training": ("torch",),
    "nccl": ("torch", "cloudpickle"),
    "notebooks": (
        "torch",
        "pytest",
        "nbval",
        "ipykernel",
        "ipywidgets",
        "sklearn",
        "plotly",
        "matplotlib",
        "pytorch_optimizer",
    ),
}
DISTRIBUTIONS = {
    "ipykernel": "jupyterlab",
    "sklearn": "scikit-learn",
    "pytorch_optimizer": "pytorch-optimizer",
}
INSTALL = "pip install -r requirements.txt -c constraints.txt"


class NotPossible(Exception):
    """What was asked for cannot be done on this machine; the message says why, and what to do."""


def missing(part, there=find_spec):
    """Packages of requirements.txt that `part` needs and that are not installed, without their own needs."""
    return [DISTRIBUTIONS.get(module, module) for module in MODULES[part] if there(module) is None]


def need(part, there=find_spec):
    """Raise `NotPossible` if a package that `part` needs is missing."""
    if lacking := missing(part, there):
        listed = ", ".join(dict.fromkeys(lacking))
        raise NotPossible(f"{part} needs {listed}, which is not installed here. Install it: {INSTALL}")


def why_no_gpu(version, built_for, driver, visible, complaint=""):
    """The sentence for a machine on which torch finds no GPU.

    version: of torch; built_for: its CUDA version, None if it has none; driver: whether NVIDIA's driver has
    made its device files; visible: CUDA_VISIBLE_DEVICES, None if not set; complaint: torch's own words.
    """
    if built_for is None:
        return (
            f"torch {version} was built without CUDA. Install one with it: {INSTALL} "
            "(with uv, without UV_TORCH_BACKEND=cpu)."
        )
    if visible is not None and not any(name.strip() not in ("", "-1") for name in visible.split(",")):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU. Unset it."
    if not driver:
        return (
            f"torch {version} is built for CUDA {built_for}, and NVIDIA's driver is not here: there is no "
            "/dev/nvidiactl. Install the driver, or give the container its GPUs (docker run --gpus all)."
        )
    return (
        f"torch {version} is built for CUDA {built_for}, the driver is here, and they do not work together"
        f"{': ' + complaint if complaint else ''}. See nvidia-smi; a newer torch may need a newer driver."
    )


def find(device=None, gpus=None):
    """The `Machine` to check: with GPUs if torch finds any, unless `device` says which; else the CPU.

    gpus: how many to use, all of them if None. Raises `NotPossible` for what is not there.
    """
    if find_spec("torch") is None:
        raise NotPossible(f"torch is not installed here. Install it: {INSTALL}")
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        device = "cuda" if found else "cpu"
    if device == "cpu":
        name = f"CPU dry run, {platform.machine()}, {os.cpu_count()} cores"
        return Machine("cpu", name, 0, DRY_MEMORY, None)
    if not found:
        raise NotPossible(reason())
    if gpus is not None and not 1 <= gpus <= found:
        raise NotPossible(f"--gpus {gpus}: there are {found} GPUs here. Give a number from 1 to {found}.")
    first = torch.cuda.get_device_properties(0)
    name = torch.cuda.get_device_name(0)
    return Machine("cuda", name, gpus or found, first.total_memory, ACCELERATORS.get(name))


def reason():
    """Why torch finds no GPU on this machine."""
    import torch

    complaint = ""
    if torch.version.cuda is not None:
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            complaint = str(error).strip().split("\n")[0]
    driver = Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()  # the latter on WSL
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return why_no_gpu(torch.__version__, torch.version.cuda, driver, visible, complaint)


def world(machine):
    """(ranks, backend) of a world with a GPU for every rank; of the dry run, two ranks on the CPU."""
    return (machine.gpus, "nccl") if machine.device == "cuda" else (2, "gloo")


def software(machine):
    """What the results depend on: versions as {name: text}."""
    import torch

    versions = {"Python": platform.python_version(), "torch": torch.__version__}
    if machine.device == "cuda":
        versions["CUDA"] = torch.version.cuda
        versions["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
        versions["driver"] = _driver()
    return versions


def _driver():
    try:
        first = Path("/proc/driver/nvidia/version").read_text().split("\n")[0]
    except OSError:
        return "unknown"
    return next((word for word in first.split() if word[0].isdigit()), "unknown")
