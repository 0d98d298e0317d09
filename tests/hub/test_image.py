"""The image's definition: its linter, its install steps with a stand-in for pip, what Binder and editors get.

benchmarks/image.py runs the very install steps in an empty environment, which takes minutes.
"""

import json
import re
import runpy
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy" / "image"
DOCKERFILE = (IMAGE / "Dockerfile").read_text()
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
PYTHON = r"3\.\d+"
# Stands in for the environment's Python: reads pyproject.toml, and shows what pip would be given.
STAND_IN = """#!/bin/bash
if [ "$1" = -c ]; then exec python3 "$@"; fi
echo "pip $*"
while [ $# -gt 0 ]; do case $1 in -r | -c) cat "$2"; shift ;; esac; shift; done
"""


def hadolint(file):
    command = [Path(sys.executable).parent / "hadolint", file]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def install(*words, **environment):
    return subprocess.run(
        ["bash", IMAGE / "install.sh", *words],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def asked(tmp_path):
    """What pip is given by `install.sh environment`, under these settings."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "python"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)

    def of(**settings):
        done = install("environment", PREFIX=str(tmp_path), **settings)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return of


def test_hadolint_finds_nothing():
    checked = hadolint(IMAGE / "Dockerfile")
    assert checked.returncode == 0, checked.stdout


def test_hadolint_would_find_something(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian:latest\nRUN cd /tmp && apt-get install git\n")
    hadolint = Path(sys.executable).parent / "hadolint"
    assert (
        subprocess.run([hadolint, tmp_path / "Dockerfile"], capture_output=True, check=False).returncode == 1
    )


def test_nothing_is_installed_into_the_home_folder_and_nobody_is_root():
    assert "PREFIX=/opt/allranks" in DOCKERFILE
    users = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert users[-1] == "${NB_UID}" and "ARG NB_UID=1000" in DOCKERFILE  # Kubernetes tells root by the number


def test_what_the_image_copies_is_in_the_repository_and_not_ignored():
    ignored = (IMAGE / "Dockerfile.dockerignore").read_text().split()
    for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(f"!{parent}" in ignored for parent in (source, *map(str, Path(source).parents))), (
                source
            )


def test_the_image_of_the_profiles_has_what_the_values_say():
    values = yaml.safe_load((ROOT / "deploy" / "hub" / "values.yaml").read_text())["singleuser"]
    assert values["uid"] == 1000 and values["cmd"] == "jupyterhub-singleuser"
    assert (
        "/opt/allranks/share/allranks/notebooks"
        in values["lifecycleHooks"]["postStart"]["exec"]["command"][2]
    )


@pytest.mark.parametrize("words, settings, said", [
    (["everything"], {}, "'everything'; it is system, user, environment, book or check"),
    ([], {}, "what to install is ''"),
    (["check"], {"VARIANT": "rocm"}, "VARIANT is 'rocm'; it is cuda or cpu"),
])  # fmt: skip
def test_a_wrong_word_is_answered_with_the_right_ones(words, settings, said):
    done = install(*words, **settings)
    assert done.returncode == 1 and said in done.stderr


def test_everything_that_is_installed_has_a_version_in_the_constraints(asked):
    given = asked(VARIANT="cuda")
    wanted = re.findall(r"^([a-z][\w.-]*) *>=", given, re.MULTILINE)
    assert {"torch", "jupyterlab", "jupyterlab-myst", "jupyterhub", "nbgitpuller", "ipywidgets"} <= set(
        wanted
    )
    assert {name.lower() for name in wanted} <= set(re.findall(r"^([a-z0-9-]+)==", given, re.MULTILINE))


def test_only_the_cpu_variant_looks_for_torch_elsewhere(asked):
    assert "--extra-index-url" not in asked(VARIANT="cuda")
    assert "--extra-index-url https://there" in asked(VARIANT="cpu", TORCH_CPU="https://there")
    assert "--extra-index-url" not in asked(VARIANT="cpu", TORCH_CPU="")


def test_the_version_of_the_hub_can_be_another_or_left_alone(asked):
    assert re.search(r"^jupyterhub==6", asked(), re.MULTILINE)
    older = asked(HUB="5.4.5")
    assert re.search(r"^jupyterhub==5\.4\.5$", older, re.MULTILINE)
    assert not re.search(r"^jupyterhub *>=", older, re.MULTILINE), "pip would find no version"
    assert not re.search(r"^jupyterhub *>=", asked(HUB="none"), re.MULTILINE)


def test_the_image_binder_and_the_checks_have_one_version_of_python():
    checks = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    (checked,) = re.findall(rf'python-version: "({PYTHON})"', checks)
    assert re.findall(rf"library/python:({PYTHON})-slim", DOCKERFILE) == [checked]
    assert (ROOT / "binder" / "runtime.txt").read_text().strip() == f"python-{checked}"


def test_binder_runs_the_same_steps_on_cpus_and_keeps_its_own_jupyterhub():
    script = ROOT / "binder" / "postBuild"
    assert script.stat().st_mode & 0o100
    text = script.read_text()
    assert "VARIANT=cpu HUB=none" in text
    assert re.findall(r"install\.sh (\w+)", text) == ["environment", "book", "check"]


def test_an_editor_builds_the_cpu_variant_and_imports_the_working_tree():
    build = DEVCONTAINER["build"]
    folder = ROOT / ".devcontainer"
    assert (folder / build["dockerfile"]).resolve() == IMAGE / "Dockerfile"
    assert (folder / build["context"]).resolve() == ROOT
    assert build["args"] == {"VARIANT": "cpu"} and "ARG VARIANT" in DOCKERFILE
    assert DEVCONTAINER["remoteUser"] == "jovyan"
    assert DEVCONTAINER["containerEnv"]["PYTHONPATH"] == "${containerWorkspaceFolder}"
    assert any(argument.startswith("--shm-size=") for argument in DEVCONTAINER["runArgs"])


class Server(BaseHTTPRequestHandler):
    """Answers as a Jupyter server does, below the base address that a hub gives it."""

    def do_GET(self):
        known = self.path == "/user/ada/api"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b'{"version": "2.21.1"}' if known else b"")

    def log_message(self, *_):
        pass


def health(monkeypatch, tmp_path, **environment):
    """The exit code of the health check."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        runpy.run_path(str(IMAGE / "healthcheck.py"), run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Server) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/user/ada/"
        listening.shutdown()
        thread.join()


def test_a_server_that_answers_is_healthy(server, monkeypatch, tmp_path):
    (tmp_path / "jpserver-7.json").write_text(json.dumps({"url": server}))
    assert health(monkeypatch, tmp_path) == 0


def test_a_server_of_a_hub_is_asked_below_its_own_address(server, monkeypatch, tmp_path):
    assert health(monkeypatch, tmp_path, JUPYTERHUB_SERVICE_URL=server.replace("127.0.0.1", "0.0.0.0")) == 0


def test_no_server_is_not_healthy(monkeypatch, tmp_path):
    assert "none was started" in health(monkeypatch, tmp_path)


def test_a_server_that_is_gone_is_not_healthy(server, monkeypatch, tmp_path):
    (tmp_path / "jpserver-7.json").write_text(json.dumps({"url": "http://127.0.0.1:1/"}))
    assert "127.0.0.1:1" in health(monkeypatch, tmp_path)
