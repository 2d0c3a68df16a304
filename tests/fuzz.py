"""Fuzz the input files of roofmodel: configs and descriptions of models, device files, and profiler files.

    python -m tests.fuzz --seconds 30                       each target for half a minute, as CI does
    python -m tests.fuzz --seconds 3600 configs devices     two of the targets, an hour each
    python -m tests.fuzz --seed 17 configs                  from another seed
    python -m tests.fuzz FILE…                              the check of files that failed (.json, .yaml)

Configs and device files are packaged ones with a few random changes. An input must be rejected by a RoofError of one
line, or give results that JSON can express, within ten seconds of CPU time and four gigabytes. A file that fails is
kept in the working folder. Profiler files are fuzzed by `tests.profiles.fuzz`, with the coverage of the readers.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import yaml

import roofmodel
from roofmodel.devices import library
from roofmodel.errors import RoofError
from roofmodel.models import hub

ROOT = Path(__file__).parents[1]
CPU_SECONDS, MEMORY_BYTES = 10, 4 * 2**30
LONGEST_MESSAGE = 2000  # characters

NUMBERS = (0, 1, -1, 2, 3, 7, 128, 0.5, -0.0, 1e308, math.inf, math.nan, 10**6, 10**9, 2**63, 10**30)
TEXTS = ("", "0", "1024", "gelu", "rmsnorm", "full_attention", "\x1b[31m\n", "\u202e", "\ud800", "[l](javascript:0)")
OTHER = (None, True, False, [], [0], [1, 2, 3], ["full_attention"], {}, {"type": "linear"}, [[[[]]]], {"a": {"b": {}}})
QUANTITIES = (
    "0 GB/s",
    "-1 GB/s",
    "1e400 GB/s",
    "nan GB/s",
    "inf TFLOP/s",
    "GB/s",
    "1 TFLOP/s",
    "1e-30 GHz",
    "5 parsec",
)


def mutated(tree: Any, rng: random.Random, odd: tuple[Any, ...], donors: list[Any]) -> Any:
    """A copy of a tree of dicts and lists with one to four changes: odd values, missing keys, values of a donor."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 4)):
        parent, key = rng.choice([*_places(tree)])
        match rng.randrange(8):
            case 0 | 1:
                del parent[key]
            case 2:
                donor = rng.choice(donors)
                if isinstance(parent, dict) and isinstance(donor, dict) and donor:
                    name = rng.choice([*donor])
                    parent[name] = copy.deepcopy(donor[name])
            case 3 | 4 | 5 if type(parent[key]) in (int, float):
                parent[key] = parent[key] * rng.choice((-1, 0, 0, 2, 3, 1000)) + rng.choice((0, 0, 1))
            case _:
                parent[key] = copy.deepcopy(rng.choice(odd))
        if not tree:
            break
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys, at any depth."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def damaged(text: str, rng: random.Random) -> bytes:
    """The text, one time in ten cut off or with some bytes changed."""
    content = bytearray(text.encode("utf-8", errors="surrogatepass"))
    if content and rng.random() < 0.1:
        del content[rng.randrange(len(content)) :]
    elif content and rng.random() < 0.1:
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


def configs(rng: random.Random) -> tuple[str, bytes]:
    """The name and content of a config.json or of a description in YAML."""
    if rng.random() < 0.8:
        tree = mutated(rng.choice(CONFIGS), rng, (*NUMBERS, *TEXTS, *OTHER), CONFIGS)
        return "config.json", damaged(json.dumps(tree), rng)
    tree = mutated(rng.choice(DESCRIPTIONS), rng, (*NUMBERS, *TEXTS, *OTHER), DESCRIPTIONS)
    return "model.yaml", damaged(yaml.safe_dump(tree), rng)


def devices(rng: random.Random) -> tuple[str, bytes]:
    """The name and content of a device file."""
    tree = mutated(rng.choice(DEVICES), rng, (*NUMBERS, *TEXTS, *OTHER, *QUANTITIES), DEVICES)
    return "device.yaml", damaged(yaml.safe_dump(tree), rng)


def check_config(path: Path) -> None:
    """Estimate the model in one phase, which the content selects."""
    phase = ("prefill", "generate", "train", None)[zlib.crc32(path.read_bytes()) % 4]
    json.dumps(roofmodel.estimate(path, "a100", phase=phase, seq=32).to_dict(), allow_nan=False)


def check_device(path: Path) -> None:
    """Validate the device, and estimate a model on it."""
    str(roofmodel.check_hardware(path))
    json.dumps(roofmodel.show_hardware(path).data, allow_nan=False)
    for dtype in ("fp16", "fp32"):
        json.dumps(roofmodel.estimate("gpt2", path, seq=32, dtype=dtype).to_dict(), allow_nan=False)


def problem(check: Callable[[Path], None], path: Path) -> str:
    """The violated requirement, if a file is neither rejected nor processed correctly; else empty."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        check(path)
    except RoofError as error:
        message = str(error)
        if len(message) > LONGEST_MESSAGE or "\n" in message:
            return f"message of {len(message)} characters and {message.count(chr(10)) + 1} lines: {message[:200]!r}"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {CPU_SECONDS} s of CPU time")


Draw = Callable[[random.Random], tuple[str, bytes]]
TARGETS: dict[str, tuple[Draw, Callable[[Path], None]]] = {
    "configs": (configs, check_config),
    "devices": (devices, check_device),
}


def fuzz(target: str, seconds: float, seed: int, keep: Path) -> int:
    """Check random inputs for some seconds; print and keep those that fail. Returns their number."""
    draw, check = TARGETS[target]
    end, failed, number = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in count(1):
            name, content = draw(random.Random(f"{target} {seed} {number}"))
            path = Path(folder, name)
            path.write_bytes(content)
            if found := problem(check, path):
                failed += 1
                kept = keep / f"fuzz-{target}-{seed}-{number}{path.suffix}"
                kept.write_bytes(content)
                _say(f"{found}\n{kept}: failed\n")
            if time.monotonic() > end:
                break
    _say(f"{target}: {number} inputs, {failed} failed")
    return failed


def main() -> int:
    """The exit status: 1 if an input failed."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="configs, devices, profiles (default: all), or files that failed")
    parser.add_argument("--seconds", type=float, default=30, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    names = given.what or [*TARGETS, "profiles"]
    failed = 0
    if "profiles" in names:
        names.remove("profiles")
        command = [sys.executable, "-m", "tests.profiles.fuzz", f"-max_total_time={given.seconds:.0f}", "-verbosity=0"]
        failed += subprocess.run(command, check=False).returncode != 0
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for name in names:
        if name in TARGETS:
            failed += fuzz(name, given.seconds, given.seed, Path.cwd())
        else:
            check = check_device if "devices" in name or "device" in Path(name).stem else check_config
            found = problem(check, Path(name))
            _say(found or f"{name}: passes")
            failed += bool(found)
    return int(failed > 0)


CONFIGS: list[Any] = [entry.config for entry in hub.catalog()]
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}
    },
    "kv_cache_scheme": {"type": "float", "num_bits": 8},
    "ignore": ["lm_head", "re:.*self_attn.*"],
}
CONFIGS += [config | {"quantization_config": QUANTIZATION} for config in CONFIGS[::4]]
DESCRIPTIONS: list[Any] = [yaml.safe_load(file.read_text("utf-8")) for file in ROOT.glob("examples/models/*.yaml")]
DEVICES: list[Any] = [yaml.safe_load(library.find(name).read_text("utf-8")) for name in library.names()]

if __name__ == "__main__":
    sys.exit(main())
