"""Every shell script and every manifest passes the check of those who read it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "deploy" / "cluster"
LISTED = subprocess.run(["git", "ls-files", "*.sh", ".ci/run"], cwd=ROOT, capture_output=True, text=True)
SCRIPTS = LISTED.stdout.split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script):
    checked = subprocess.run(
        [Path(sys.prefix, "bin", "shellcheck"), ROOT / script], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_the_scripts_are_listed():
    assert {"tools/setup.sh", "deploy/cluster/slurm.sh", ".ci/run"} <= set(SCRIPTS)


def test_kubernetes_reads_every_field_of_the_train_job():
    written = yaml.safe_load((CLUSTER / "trainjob.yaml").read_text())
    assert TrainerV1alpha1TrainJob.from_dict(written).to_dict() == written  # a field it does not know is lost


def test_what_the_train_job_and_the_batch_file_run_is_there():
    assert "deploy/cluster/train.py" in (CLUSTER / "slurm.sh").read_text()
    assert (CLUSTER / "train.py").exists()
    trainer = yaml.safe_load((CLUSTER / "trainjob.yaml").read_text())["spec"]["trainer"]
    assert trainer["command"] == ["torchrun", "/opt/allranks/share/allranks/train.py"]
    image = ROOT / "deploy" / "image"
    assert "PREFIX=/opt/allranks" in (image / "Dockerfile").read_text()
    assert re.search(r'install .*train\.py "\$PREFIX/share/allranks"', (image / "install.sh").read_text())
