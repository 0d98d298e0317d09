#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.txt
# One task a machine, and each is a torchrun agent with a rank for every GPU; see slurm.md.
set -euo pipefail
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # a restart needs a new store, see torchrun.md

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000)) # another one for each job, as two may share a machine

srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" .venv/bin/torchrun \
    --nnodes="$SLURM_NNODES" --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID" \
    deploy/cluster/train.py --folder "${1:?give a folder that all machines see, for checkpoints}"
