"""Finds a model by name: the packaged catalog, a path (config.json or YAML), the Hugging Face cache, the Hub.

The network comes last, only for names of the form `organization/model`, and only if `huggingface_hub` is installed.
This module checks that a config is a JSON object; `config.py` reads it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.errors import (
    JSON_NUMBER_TOO_LONG,
    LIST_MODELS,
    AnswerNote,
    Message,
    ModelError,
    Option,
    Text,
    shorten,
    suggest,
)
from roofmodel.files.text_files import MAX_DEPTH, depth, expand, foreign_model, printable, read_text, rename_files
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import DESCRIBED, architecture
from roofmodel.models.fields import ConfigLocation
from roofmodel.options.values import MTP

CATALOG = Path(__file__).parent / "configs"
NETWORK_TIMEOUT_SECONDS = 5
MODEL_OPTIMIZER_FILE = "hf_quant_config.json"
"""Model Optimizer's description of a quantized checkpoint, beside a config.json that may lack it."""
NAMES_A_FORMAT = re.compile("fp8|fp4|int8|int4|awq", re.IGNORECASE)
"""Hub ids for which the Hub is asked for it: nvidia/Llama-3.1-8B-Instruct-FP8."""
TUNING = re.compile(r"-(?:[Ii]nstruct|it|[Cc]hat|Base|pt)(?=-|$)")
DATE = re.compile(r"-\d{4}$")
SAME_ARCHITECTURE = {
    "deepseek-ai/deepseek-r1-zero": "DeepSeek-R1", "deepseek-ai/deepseek-v3.2-exp": "DeepSeek-V3.2",
    "deepseek-ai/deepseek-v3.2-speciale": "DeepSeek-V3.2", "deepseek-ai/deepseek-r1-distill-llama-8b": "Llama-3.1-8B",
    "deepseek-ai/deepseek-r1-distill-llama-70b": "Llama-3.1-70B", "moonshotai/kimi-k2.6": "Kimi-K2.5",
    "moonshotai/kimi-k2.7-code": "Kimi-K2.5",
}  # fmt: skip
"""Models with names of their own -> the packaged model that they start from."""
FORMAT_SUFFIX = re.compile(
    r"-(?:(?P<fp8>FP8|FP8-dynamic|W8A8-FP8)|(?P<nvfp4>NVFP4|FP4)|(?P<int8>GPTQ-Int8|INT8|W8A8|W8A16|w8a8)"
    r"|(?P<int4>AWQ|GPTQ|GPTQ-Int4|INT4|W4A16|AWQ-INT4|4bit))$",
    re.IGNORECASE,
)
"""Ends of the names of quantized checkpoints, by the format that `--weights` takes."""
_HEAD = 1 << 10  # bytes from which a file of weights is recognized
UNAUTHORIZED = (401, 403)  # HTTP status codes


class UnknownModel(ModelError):
    """A model name that was not found."""


class Checkpoint(NamedTuple):
    """A packaged checkpoint: the config keys that counting needs, with their source."""

    id: str
    aliases: tuple[str, ...]
    parameters: int | None  # as published; None: unconfirmed
    parameters_source: str
    source: str
    config: dict[str, Any]
    base: str = ""  # the packaged checkpoint of the same sizes, whose config this one changes


def load(model: str | os.PathLike[str], family: str | None = None, head: str | None = None) -> Architecture:
    """The Architecture of a packaged name, a path or a Hub id, read as `family` if given. Raises ModelError.

    `head` is the end of a class name, such as `ForSequenceClassification`, which replaces `architectures` of the
    config; so is the part of a name after `@`.

    Looked up in this order: a path that starts with `.`, `/` or `~`; the packaged catalog; any other path that exists;
    the local Hugging Face cache; a packaged model that it is fine-tuned from; the Hub.
    """
    if isinstance(model, os.PathLike):
        return _from_path(expand(model), family, head)
    if not isinstance(model, str) or not model.strip():
        raise ModelError(f"{shorten(model)} is not a model; give a name (see ", LIST_MODELS, "), a path or a Hub id")
    named = re.fullmatch(r"(.+)@(\w+)", model)
    if named and not os.path.exists(expand(model)):
        return load(named[1], family, named[2])
    if model.startswith((".", "/", "~")):
        return _from_path(expand(model), family, head)
    entry = packaged(model)
    if entry is not None:
        return from_entry(entry, family, head)
    if os.path.exists(model):
        return _from_path(Path(model), family, head)
    if model.endswith((".json", ".yaml", ".yml")):
        return _from_path(Path(model), family, head)  # raises: no such file
    if cached := _in_local_cache(model):
        return _from_file(cached, model, family, head)
    if tuned := fine_tuned(model):
        return from_entry(tuned, family, head, model)
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model):
        return _from_file(_from_hub(model), model, family, head)
    raise UnknownModel(_unknown(model))


# --- Packaged ---------------------------------------------------------------------------------------


def load_draft(draft: str | os.PathLike[str] | None) -> Architecture | None:
    """The draft model of speculative decoding; None without one, and for the model's own multi-token prediction."""
    return None if draft in (None, MTP) else load(draft)


def packaged(name: str) -> Checkpoint | None:
    """The packaged entry of a Hub id, of the part after its slash, or of an older name."""
    wanted = name.lower()
    if "/" in wanted:
        path = _files().get(wanted.replace("/", "--"))
        if path:
            return _entry(path)
    else:
        for stem, path in _files().items():
            if stem.partition("--")[2] == wanted:
                return _entry(path)
    for entry in catalog():
        if wanted in (alias.lower() for alias in entry.aliases):
            return entry
    return None


def fine_tuned(name: str) -> Checkpoint | None:
    """The packaged entry whose architecture a fine-tuned model has, by its name: `Llama-3.1-8B-Instruct` has that of
    `Llama-3.1-8B`. An organization must be the same."""
    lower = name.lower()
    name = next((same for known, same in SAME_ARCHITECTURE.items() if lower in (known, known.partition("/")[2])), name)
    organization, _, wanted = name.rpartition("/")
    for entry in catalog():
        for alias in (entry.id, *entry.aliases):
            owner, _, stem = alias.rpartition("/")
            if _untuned(wanted) == _untuned(stem) and organization.lower() in ("", owner.lower()):
                return entry
    return None


def _untuned(name: str) -> str:
    """A model's name in lower case without what marks a tuned or a base model, and without the date at its end.

    A lower-case `base` is a size: bert-base.
    """
    return DATE.sub("", TUNING.sub("", name)).lower()


def catalog() -> Iterator[Checkpoint]:
    """All packaged entries, by id."""
    for _, path in sorted(_files().items(), key=lambda file: file[0].replace("--", "/")):
        yield _entry(path)


def _files() -> dict[str, Path]:
    return {name[:-5].lower(): CATALOG / name for name in os.listdir(CATALOG) if name.endswith(".json")}


def _entry(path: Path) -> Checkpoint:
    fields = json.loads(path.read_text(encoding="utf-8"))
    if base := fields.get("base"):
        fields["config"] = {**_entry(_files()[base.lower().replace("/", "--")]).config, **fields["config"]}
    return Checkpoint(**{**fields, "aliases": tuple(fields["aliases"])})


def from_entry(entry: Checkpoint, family: str | None = None, head: str | None = None, tuned: str = "") -> Architecture:
    """The Architecture of an entry; `tuned` is the name of a model that is fine-tuned from it."""
    if entry.config["model_type"] == DESCRIBED:
        arch = _described(entry, family, head)
    else:
        arch = architecture(_with_head(entry.config, head), entry.id, entry.id, family)
    notes: list[Text] = []
    if tuned:
        dated = DATE.search(TUNING.sub("", tuned)) and not DATE.search(entry.id)
        context = f"; a dated release may allow longer contexts than its {arch.max_tokens} positions" if dated else ""
        notes.append(
            AnswerNote(
                f"{shorten(tuned)} is counted as {entry.id}, the packaged model with the same architecture{context}"
            )
        )
    if family is not None:
        return replace(arch, notes=(*notes, *arch.notes))
    if entry.parameters is None and head is None:
        notes.append(f"{entry.id}: its parameter count is {entry.parameters_source}")
    return replace(arch, notes=tuple(notes))


def _described(entry: Checkpoint, family: str | None, head: str | None) -> Architecture:
    """The Architecture of an entry whose config has the keys of a YAML description."""
    _has_no_classes(entry.id, family, head)
    from roofmodel.models import yaml_description

    description = {key: value for key, value in entry.config.items() if key != "model_type"}
    return yaml_description.architecture(description, entry.id, ConfigLocation(entry.id))


def _has_no_classes(name: str, family: str | None, head: str | None) -> None:
    """Raises ModelError where a description should be read with a class or a family of transformers."""
    if head is not None:
        raise ModelError(f"{name}@{head}: a YAML description states its head itself, with the key head")
    if family is not None:
        raise ModelError(
            Option("family"),
            f": {name} is a YAML description, which has no family; ",
            Option("family"),
            " needs a config.json",
        )


def _with_head(config: dict[str, Any], head: str | None) -> dict[str, Any]:
    """A config with another head; the names of classes begin differently in each family, which `config.py` knows."""
    return config if head is None else {**config, "architectures": [head]}


# --- Files ------------------------------------------------------------------------------------------


def _from_path(path: Path, family: str | None, head: str | None) -> Architecture:
    folder = os.path.isdir(path)
    file = path / "config.json" if folder else path
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        if folder:
            raise ModelError(f"{path}: {_folder_without_config(path)}") from None
        raise ModelError(
            f"{path}: no such file or folder; give a config.json, a folder with one, or a YAML file"
        ) from None
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from None
    if file.suffix in (".yaml", ".yml"):
        return _from_yaml(file, family, head)
    parent = file.resolve().parent
    named_by_folder = file.name == "config.json" and parent != expand("~").resolve()  # whose name is the user's
    return _from_file(file, printable(parent.name if named_by_folder else file.stem), family, head)


def _folder_without_config(folder: Path) -> str:
    """What a folder contains instead of a config.json, and what to give."""
    if (adapter := folder / "adapter_config.json").is_file():
        base = _read(adapter).get("base_model_name_or_path")
        command = f": roof estimate {shlex.quote(base)}" if isinstance(base, str) and base else ""
        return f"the adapter of a model (adapter_config.json), not a model; give the model that it adapts{command}"
    if (folder / "params.json").is_file():
        return (
            "a checkpoint in Meta's or Mistral's own format (params.json); give its Hub id, or convert it: "
            "python -m transformers.models.llama.convert_llama_weights_to_hf "
            f"--input_dir {shlex.quote(str(folder))} --output_dir converted"
        )
    if any(folder.glob("*.gguf")):
        file = min(folder.glob("*.gguf"))
        return f"this folder has no config.json; {file.name} is {foreign_model(b'GGUF', file.name)}"
    return "this folder has no config.json; give a folder that contains a model's config.json"


def _from_yaml(file: Path, family: str | None, head: str | None) -> Architecture:
    _has_no_classes(str(file), family, head)
    from roofmodel.models import yaml_description

    return _without_folders(yaml_description.load(file), file, printable(file.name))


def _from_file(file: Path, name: str, family: str | None, head: str | None) -> Architecture:
    config, beside = _with_head(_read(file), head), file.with_name(MODEL_OPTIMIZER_FILE)
    if file.name == "config.json" and not config.get("quantization_config") and beside.is_file():
        config = {**config, "quantization_config": _read(beside)}
    arch = architecture(config, name, str(file), family)
    return _without_folders(arch, file, f"{name}/config.json" if file.name == "config.json" else printable(file.name))


def _without_folders(arch: Architecture, file: Path, shown: str) -> Architecture:
    """The same model with notes that name its file as `shown`, without folders that may name people and machines."""
    return replace(arch, notes=tuple(rename_files(note, {str(file): shown}) for note in arch.notes))


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            foreign = foreign_model(opened.read(_HEAD), str(file))
        if foreign:
            raise ModelError(f"{file}: {foreign}")
        text = read_text(file)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ModelError(f"{file}: not a text file; give a model's config.json") from None
    except ValueError as error:
        raise ModelError(f"{file}: {error}; give a model's config.json") from None
    try:
        config = json.loads(text, object_pairs_hook=partial(_without_duplicates, file))
        too_deep = depth(config) > MAX_DEPTH
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise ModelError(f"{place}: not JSON ({error.msg}); give a model's config.json") from None
    except ValueError:
        raise ModelError(f"{file}: {JSON_NUMBER_TOO_LONG}") from None
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ModelError(f"{file}: more than {MAX_DEPTH} nested lists and objects; give a model's config.json")
    if not isinstance(config, dict):
        raise ModelError(f"{file}: contains {_JSON_KINDS[type(config)]}; a config.json contains an object {{...}}")
    return config


_JSON_KINDS = {
    type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list",
}  # fmt: skip


def _without_duplicates(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict. Raises ModelError for a key with two different values."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping and mapping[key] != value:
            raise ModelError(
                f"{file}: duplicate key {shorten(key)}, with the values {shorten(mapping[key])} and {shorten(value)}; "
                "keep one"
            )
        mapping[key] = value
    return mapping


# --- The Hugging Face cache and the Hub -------------------------------------------------------------


def _in_local_cache(name: str) -> Path | None:
    """The config.json of a Hub id in the local Hugging Face cache; huggingface_hub is not imported."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        return None
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    root = expand(os.environ.get("HF_HUB_CACHE") or str(home / "hub"))
    folder = root / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        file = folder / "snapshots" / revision / "config.json"
        return file if file.is_file() else None
    except (OSError, UnicodeDecodeError):
        return None


def _from_hub(name: str) -> Path:
    """Downloads a config.json. Raises ModelError with what was tried and what would work."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        raise ModelError(_unknown(name), "; the Hub was not queried because HF_HUB_OFFLINE is set")
    try:
        import huggingface_hub
        from huggingface_hub.utils import logging
    except ImportError:
        raise ModelError(_unknown(name), "; to query the Hub, pip install huggingface_hub") from None
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # hides messages about retries

    def download() -> str:
        """The file, without the user's token unless the Hub asks for one (a gated or private model)."""
        token: bool | None = False
        try:
            file = str(huggingface_hub.hf_hub_download(name, "config.json", token=token))
        except Exception as error:
            statuses = (
                getattr(getattr(each, "response", None), "status_code", None) for each in (error, error.__cause__)
            )
            if not any(status in UNAUTHORIZED for status in statuses):
                raise
            token = None  # the user's
            file = str(huggingface_hub.hf_hub_download(name, "config.json", token=token))
        if NAMES_A_FORMAT.search(name) and not _read(Path(file)).get("quantization_config"):
            with suppress(Exception):  # no such file
                huggingface_hub.hf_hub_download(name, MODEL_OPTIMIZER_FILE, token=token)
        return file

    try:
        return Path(_within_timeout(download))
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(_unknown(name), f"; the Hub returned no config.json ({reason})") from None


def _within_timeout(download: Any) -> Any:
    """Runs a download in a daemon thread, so that an unresponsive network delays the command by 5 s at most."""
    import queue
    import threading

    result: queue.Queue[tuple[bool, Any]] = queue.Queue()

    def run() -> None:
        try:
            result.put((True, download()))
        except Exception as error:
            result.put((False, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        succeeded, value = result.get(timeout=NETWORK_TIMEOUT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer within {NETWORK_TIMEOUT_SECONDS} s") from None
    if not succeeded:
        raise value
    return value


def _unknown(name: str) -> Message:
    entries = list(catalog())
    known_names = [entry.id if "/" in name else entry.id.partition("/")[2] for entry in entries]
    known_names += [alias for entry in entries for alias in entry.aliases if ("/" in alias) == ("/" in name)]
    stripped = FORMAT_SUFFIX.search(name)
    if stripped and (entry := packaged(name[: stripped.start()]) or fine_tuned(name[: stripped.start()])):
        formats = [each for each, found in stripped.groupdict().items() if found]
        return Message(
            f"unknown model {shorten(name)}: not packaged, not a path, not in the local Hugging Face cache; "
            f"{entry.id} has the same architecture: give it with ", Option("weights", formats[0]),
            ", which converts all linear layers",
        )  # fmt: skip
    hint = suggest(name, known_names)
    return Message(
        f"unknown model {shorten(name)}{hint or ';'} not packaged (see ", LIST_MODELS, "), not a path, "
        "not in the local Hugging Face cache",
    )  # fmt: skip
