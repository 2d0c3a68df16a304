#!/usr/bin/env bash
# Collect evidence on this machine's GPU: ceilings, operators, whole models, profiler exports. Under nine minutes.
#   benchmarks/collect_gpu.sh [-o FOLDER] [--minutes N] [--only PART,…] [--small] [--pack]   docs/howto/gpu-kit.md
# PYTHON names the interpreter that has torch, transformers and what roofmodel needs; python3 if it is not set.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false  # weights are random: nothing is to be fetched
exec "${PYTHON:-python3}" -m benchmarks.collect "$@"
