"""Files in formats that no reader reads: what they are, and the command that makes them readable."""

from __future__ import annotations

import os
import shlex

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_NSYS_REPORT = b"NVIDIA Tegra Profiler Report"
_ZIP, _GGUF, _PICKLE = b"PK\x03\x04", b"GGUF", b"\x80\x02"


def lfs_pointer(head: bytes, name: str) -> str | None:
    """What to do about a file that Git LFS has not downloaded; None for other files."""
    if not head.startswith(LFS_POINTER):
        return None
    file = shlex.quote(os.path.basename(name))
    return f"a Git LFS pointer, not the file itself; download it: git lfs pull --include {file}"


def foreign_profile(head: bytes, name: str) -> str | None:
    """What a profiler's file is that only its own tools read, and how to convert it; None for other files."""
    quoted, lowered = shlex.quote(name), name.lower()
    if pointer := lfs_pointer(head, name):
        return pointer
    if head.startswith(_NSYS_REPORT):
        return f"a native report of Nsight Systems; export it: nsys export --type sqlite {quoted}"
    if lowered.endswith(".nvvp"):
        if head.startswith(_ZIP):
            return f"a session of NVIDIA's Visual Profiler; extract the profile in it: unzip {quoted}"
        return (
            "a session of NVIDIA's Visual Profiler without nvprof's tables; profile again: "
            "nvprof -o trace.nvprof COMMAND"
        )
    if head.lstrip()[1:].lstrip().startswith(b'"rocprofiler-sdk-tool"') or lowered.endswith((".pftrace", ".otf2")):
        return (
            "JSON of rocprofv3, or a trace for Perfetto or Vampir; write a database or CSV instead: "
            "rocprofv3 --output-format rocpd --kernel-trace --memory-copy-trace --hip-trace -- COMMAND"
        )
    if head.startswith(b"device,HBMBw,"):
        return "ceilings that rocprof-compute measured; for its kernels give pmc_perf.csv and sysinfo.csv of the folder"
    if lowered.endswith(".xplane.pb") or (b"/device:GPU:" in head and b"/host:CPU" in head and b"\0" in head):
        return (
            "an XPlane profile of JAX or TensorFlow; profile with Nsight Systems instead: "
            "nsys profile --trace cuda,nvtx --cuda-graph-trace node -o run COMMAND && "
            "nsys export --type sqlite run.nsys-rep (on AMD GPUs: rocprofv3 --kernel-trace -- COMMAND)"
        )
    return None


def foreign_model(head: bytes, name: str) -> str | None:
    """What a model's file is if it is no config; None for text that may be one."""
    if pointer := lfs_pointer(head, name):
        return pointer
    if head.startswith(_GGUF):
        return (
            "a GGUF file, whose weights have no config.json; give the model that it was converted from and its format: "
            "roof estimate ORGANIZATION/MODEL --weights int4"
        )
    if name.endswith((".safetensors", ".bin", ".pt", ".pth")) or head.startswith((_ZIP, _PICKLE)):
        return "a file of weights; give the config.json beside it"
    return None
