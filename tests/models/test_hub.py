"""Sources of configs. No test uses the network: huggingface_hub is replaced by a test double."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from roofmodel.errors import ModelError
from roofmodel.models import hub

TINY = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100}
UNKNOWN = "some-organization/some-model"


Request = tuple[str, str, bool | None]  # name, file, token (None: the user's token; False: no token)


def hub_answers(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, str], Any]) -> list[Request]:
    """Install a test double for huggingface_hub; returns the list of its requests."""
    requests: list[Request] = []

    def hf_hub_download(name: str, file: str, token: bool | None = None) -> Any:
        requests.append((name, file, token))
        return answer(name, file)

    package, utils = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.utils")
    package.__dict__.update(hf_hub_download=hf_hub_download, utils=utils)
    utils.__dict__.update(logging=SimpleNamespace(set_verbosity_error=lambda: None))
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)
    return requests


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use an empty cache, ignore the machine's settings, and fail if huggingface_hub is called."""
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    requests = hub_answers(monkeypatch, lambda name, file: None)
    yield
    assert requests == []


@pytest.fixture
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, config: Any = TINY, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


def refused(folder: Path, content: str | bytes) -> tuple[Path, str]:
    """Write a config.json with this content; return the file and the error message."""
    file = folder / "config.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file, refusal(str(file))


def refusal(model: str) -> str:
    """The one-line error message for a model."""
    with pytest.raises(ModelError) as caught:
        hub.load(model)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


# --- Packaged names and paths -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_a_packaged_name_takes_precedence_over_a_folder_and_a_dot_selects_the_path(
    working_folder: Path, name: str
) -> None:
    write(working_folder / name)
    assert hub.load(name).name == "openai-community/gpt2"
    assert hub.load(name).stack.hidden == 768
    assert hub.load(f"./{name}").stack.hidden == 48
    assert hub.load(str(working_folder / name)).stack.hidden == 48


def test_a_folder_is_found_without_a_dot_if_its_name_is_not_packaged(working_folder: Path) -> None:
    write(working_folder / "mine")
    arch = hub.load("mine")
    assert (arch.name, arch.stack.hidden) == ("mine", 48)


def test_a_tilde_expands_to_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "mine")
    assert hub.load("~/mine").stack.hidden == 48


@pytest.mark.parametrize(
    ("given", "name"), [("mine", "mine"), ("mine/config.json", "mine"), ("mine/tiny.json", "tiny")]
)
def test_a_model_is_named_after_its_folder_or_its_file(working_folder: Path, given: str, name: str) -> None:
    write(working_folder / "mine")
    write(working_folder / "mine", name="tiny.json")
    assert hub.load(f"./{given}").name == name


def test_a_model_in_the_current_folder_has_the_name_of_the_folder(working_folder: Path) -> None:
    write(working_folder)
    assert hub.load(".").name == "work"
    assert hub.load("config.json").name == "work"


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    message = refusal(str(tmp_path))
    assert message.startswith(f"{tmp_path}: ")
    assert "has no config.json" in message


@pytest.mark.parametrize(
    "path", ["./missing", "./missing/config.json", "/nonexistent/config.json", "../no-such-folder"]
)
def test_a_missing_path_is_refused_without_a_hub_lookup(working_folder: Path, path: str) -> None:
    message = refusal(path)
    assert message.startswith(f"{Path(path)}: no such file or folder")
    assert "config.json" in message


def test_a_config_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert "config.json" in refusal(str(tmp_path))


def test_the_home_folder_of_an_unknown_user_is_refused() -> None:
    assert "~nosuchuser" in refusal("~nosuchuser/config.json")


def test_a_name_longer_than_any_file_name_is_refused() -> None:
    refusal("a" * 5000)


def test_a_folder_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch, working_folder: Path) -> None:
    def stat(path: Path, **options: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "exists", lambda path: stat(path))
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    message = refusal("./locked/config.json")
    assert "locked/config.json" in message
    assert "Permission denied" in message


def test_an_unreadable_file_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path)

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(str(file)) == f"{file}: cannot be read (Permission denied)"


# --- Invalid files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n "model_type": gpt2\n}', "2:16"),  # ` "model_type": ` is 15 characters
        ("", "1:1"),
        ("model_type: gpt2\n", "1:1"),
        ('{"model_type": "gpt2",}', "1:23"),  # the brace after the last comma (in Python 3.13, the comma: 1:22)
        ('{"model_type": "gpt2"} {}', "1:24"),
        ("{'model_type': 'gpt2'}", "1:2"),
        ('{\n "a": 1\n "b": 2}', "3:2"),
    ],
)
def test_invalid_json_is_refused_with_line_and_column(tmp_path: Path, text: str, place: str) -> None:
    file, message = refused(tmp_path, text)
    places = [place, "1:22"] if place == "1:23" else [place]  # Python 3.13 points at the comma itself
    assert message.startswith(tuple(f"{file}:{where}: not JSON (" for where in places))
    assert "give a model's config.json" in message


@pytest.mark.parametrize(
    ("text", "kind"),
    [("[]", "a list"), ('"gpt2"', "a text"), ("5", "a number"), ("null", "null"), ("true", "a boolean")],
)
def test_json_without_an_object_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    file, message = refused(tmp_path, text)
    assert message.startswith(f"{file}: contains {kind};")
    assert "{...}" in message


def test_a_byte_order_mark_and_carriage_returns_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(TINY, indent=1).replace("\n", "\r\n").encode())
    assert hub.load(str(file)).stack.hidden == 48


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\xff", b"\xff\xfe{\x00}\x00", bytes(range(256))])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file, message = refused(tmp_path, content)
    assert message.startswith(f"{file}: not a text file")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 100_000, "more than 50 nested lists and objects"),
        ('{"a":' * 100_000, "more than 50 nested lists and objects"),
        ('{"model_type": "gpt2", "n_embd": ' + "9" * 5000 + "}", "a number has thousands of digits"),
    ],
    ids=["lists", "objects", "a number of 5000 digits"],
)
def test_extreme_json_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    file, message = refused(tmp_path, text)
    assert message.startswith(f"{file}: {expected}")


def test_every_depth_of_nesting_has_an_error_message_with_the_file(tmp_path: Path) -> None:
    """Some depths exceed the limit of the JSON reader; the other values are printed in the message."""
    file = tmp_path / "config.json"
    for depth in range(800, 1010):
        file.write_text(json.dumps(TINY)[:-1] + ', "n_inner": ' + "[" * depth + "]" * depth + "}", encoding="utf-8")
        assert str(file) in refusal(str(file))


# --- The local cache --------------------------------------------------------------------------------


def cached(root: Path, name: str = UNKNOWN, revision: str = "0123abcd") -> Path:
    """A config.json as huggingface_hub lays it out below its cache folder."""
    folder = root / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision, encoding="utf-8")
    return write(folder / "snapshots" / revision)


@pytest.mark.parametrize(
    ("variable", "root"),
    [("HF_HUB_CACHE", "cache"), ("HF_HOME", "cache/hub"), ("XDG_CACHE_HOME", "cache/huggingface/hub")],
)
def test_a_cached_download_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, root: str) -> None:
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv(variable, str(tmp_path / "cache"))
    cached(tmp_path / root)
    arch = hub.load(UNKNOWN)
    assert (arch.name, arch.stack.hidden) == (UNKNOWN, 48)


def test_the_cache_of_the_home_folder_is_the_usual_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    cached(tmp_path / ".cache" / "huggingface" / "hub")
    assert hub.load(UNKNOWN).stack.hidden == 48


def test_the_cache_is_used_offline_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cached(tmp_path / "huggingface" / "hub")
    assert hub.load(UNKNOWN).stack.hidden == 48


def test_a_packaged_name_takes_precedence_over_the_cache(tmp_path: Path) -> None:
    cached(tmp_path / "huggingface" / "hub", "openai-community/gpt2")
    assert hub.load("openai-community/gpt2").stack.hidden == 768


def test_an_incomplete_cache_entry_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = cached(tmp_path / "huggingface" / "hub")
    file.unlink()
    assert UNKNOWN in refusal(UNKNOWN)
    (file.parents[2] / "refs" / "main").write_bytes(b"\xff\xfe")
    assert UNKNOWN in refusal(UNKNOWN)


def test_a_broken_config_in_the_cache_is_named_with_its_file(tmp_path: Path) -> None:
    file = cached(tmp_path / "huggingface" / "hub")
    file.write_text("{", encoding="utf-8")
    assert refusal(UNKNOWN).startswith(f"{file}:1:2: not JSON")


# --- The Hub ----------------------------------------------------------------------------------------


def test_an_id_that_is_not_local_is_requested_from_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path / "download")
    requests = hub_answers(monkeypatch, lambda name, wanted: str(file))
    arch = hub.load(UNKNOWN)
    assert (arch.name, arch.stack.hidden) == (UNKNOWN, 48)
    assert requests == [(UNKNOWN, "config.json", False)]


def test_formats_beside_a_config_that_lacks_them_are_read(tmp_path: Path) -> None:
    """NVIDIA's checkpoints: hf_quant_config.json of Model Optimizer. The config's own settings come first."""
    formats = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    write(tmp_path, formats, "hf_quant_config.json")
    file = write(tmp_path)
    for given in (str(tmp_path), str(file)):
        quantized = hub.load(given).quantization
        assert quantized
        assert (quantized.weights, quantized.kv) == ("nvfp4", "fp8")
    other = hub.load(str(write(tmp_path, TINY | {"quantization_config": {"quant_method": "fp8"}}))).quantization
    assert other
    assert other.weights == "fp8"


def test_formats_beside_a_config_are_requested_for_an_id_that_names_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(tmp_path / "download")
    formats = write(tmp_path / "download", {"quantization": {"quant_algo": "FP8"}}, "hf_quant_config.json")
    requests = hub_answers(monkeypatch, lambda name, wanted: str(file if wanted == file.name else formats))
    quantized = hub.load("some-organization/some-model-FP8").quantization
    assert quantized
    assert quantized.weights == "fp8"
    assert [wanted for _, wanted, _ in requests] == ["config.json", "hf_quant_config.json"]


@pytest.mark.parametrize(
    ("name", "packaged"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
        ("deepseek-ai/DeepSeek-R1-Zero", "deepseek-ai/DeepSeek-R1"),
        ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("DeepSeek-V3.2-Exp", "deepseek-ai/DeepSeek-V3.2"),
        ("Kimi-K2.6", "moonshotai/Kimi-K2.5"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "meta-llama/Llama-3.1-8B"),
        ("moonshotai/Kimi-K2", "moonshotai/Kimi-K2-Instruct"),
        ("moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct"),
        ("google/gemma-3-27b-it", "google/gemma-3-27b-pt"),
        ("google/gemma-2-9b-it", "google/gemma-2-9b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mistral-Small-24B-Base-2501"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistralai/Mistral-Small-24B-Base-2501"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-v0.3"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
    ],
)
def test_a_fine_tuned_model_has_the_architecture_of_a_packaged_one_and_says_so(name: str, packaged: str) -> None:
    arch = hub.load(name)
    assert arch.name == packaged
    assert f"{name!r} is counted as {packaged}" in str(arch.notes[0])


@pytest.mark.parametrize(
    "name", ["someone/Llama-3.1-8B-Instruct", "Llama-3.1-9B-Instruct", "bert", "t5", "Qwen2.5-VL-7B"]
)
def test_another_organization_or_size_is_not_taken_for_a_packaged_model(name: str) -> None:
    assert hub.fine_tuned(name) is None


def test_the_note_on_a_dated_release_says_that_its_context_may_be_longer() -> None:
    """Qwen3-30B-A3B has 40960 positions, and its release of July 2025 262144."""
    note = str(hub.load("Qwen/Qwen3-30B-A3B-Instruct-2507").notes[0])
    assert note.endswith("a dated release may allow longer contexts than its 40960 positions")
    assert "dated" not in str(hub.load("meta-llama/Llama-3.1-8B-Instruct").notes[0])


def test_a_fine_tuned_model_in_the_local_cache_is_read_from_there(tmp_path: Path) -> None:
    folder = tmp_path / "huggingface" / "hub" / "models--meta-llama--Llama-3.1-8B-Instruct"
    write(folder / "snapshots" / "1")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("1")
    assert hub.load("meta-llama/Llama-3.1-8B-Instruct").stack.hidden == 48


class HubError(Exception):
    """A test double of huggingface_hub's HfHubHTTPError, with the response of the Hub."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(("status", "tokens"), [(401, [False, None]), (403, [False, None]), (404, [False])])
def test_the_token_is_sent_only_if_the_hub_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, tokens: list[bool | None]
) -> None:
    file, answers = write(tmp_path / "download"), iter([HubError(status), None])

    def answer(name: str, wanted: str) -> str:
        if error := next(answers):
            raise error
        return str(file)

    requests = hub_answers(monkeypatch, answer)
    if len(tokens) == 2:
        assert hub.load(UNKNOWN).stack.hidden == 48
    else:
        assert "404 Client Error" in refusal(UNKNOWN)
    assert [token for _, _, token in requests] == tokens


def test_the_token_is_sent_where_huggingface_hub_wraps_the_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A 403 of the Hub becomes a LocalEntryNotFoundError without a response, raised from the refusal."""
    file = write(tmp_path / "download")
    requests: list[Request] = []

    def answer(name: str, wanted: str) -> str:
        if len(requests) == 1:
            raise FileNotFoundError("cannot find the requested files") from HubError(403)
        return str(file)

    requests = hub_answers(monkeypatch, answer)
    assert hub.load(UNKNOWN).stack.hidden == 48
    assert [token for _, _, token in requests] == [False, None]


@pytest.mark.parametrize("name", ["gpt2-xxl", "no-such-model", "a/b/c", "-x/y", "a b/c", "../x/y", ".", "/", ""])
def test_an_invalid_hub_id_is_not_sent_to_the_hub(working_folder: Path, name: str) -> None:
    refusal(name)  # _no_network fails if the Hub is called


@pytest.mark.parametrize("setting", ["1", "true", "YES", "on"])
def test_offline_mode_skips_the_hub_and_the_message_says_so(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", setting)
    message = refusal(UNKNOWN)
    assert f"unknown model {UNKNOWN!r}" in message
    assert "HF_HUB_OFFLINE is set" in message


@pytest.mark.parametrize("setting", ["", "0", "false"])
def test_an_offline_switch_that_is_off_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", setting)
    file = write(tmp_path / "download")
    hub_answers(monkeypatch, lambda name, wanted: file)
    assert hub.load(UNKNOWN).stack.hidden == 48


def test_without_huggingface_hub_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("huggingface_hub", "huggingface_hub.utils"):
        monkeypatch.setitem(sys.modules, module, None)  # makes the import fail
    message = refusal(UNKNOWN)
    assert f"unknown model {UNKNOWN!r}" in message
    assert "pip install huggingface_hub" in message


def test_an_error_of_the_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, file: str) -> Any:
        raise OSError("404 Client Error\n\nRepository Not Found\nIf you are trying to access ...")

    hub_answers(monkeypatch, fail)
    message = refusal(UNKNOWN)
    assert UNKNOWN in message
    assert "404 Client Error" in message
    assert "Repository Not Found" not in message


def test_an_error_without_a_message_is_named_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, file: str) -> Any:
        raise ConnectionError

    hub_answers(monkeypatch, fail)
    assert "(ConnectionError)" in refusal(UNKNOWN)


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """A network that does not answer until the test ends."""
    event = threading.Event()
    yield event
    event.set()


def test_a_network_without_answers_costs_only_the_timeout(
    monkeypatch: pytest.MonkeyPatch, silence: threading.Event
) -> None:
    answers = []
    monkeypatch.setattr(hub, "NETWORK_TIMEOUT_SECONDS", 0.2)
    hub_answers(monkeypatch, lambda name, file: answers.append(silence.wait(60)))
    message = refusal(UNKNOWN)
    assert not answers
    assert UNKNOWN in message
    assert "no answer within 0.2 s" in message


def test_the_timeout_is_five_seconds() -> None:
    assert hub.NETWORK_TIMEOUT_SECONDS == 5


# --- Unknown names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typo", "name"),
    [
        ("gpt2-xxl", "'gpt2-xl'"),
        ("gtp2", "'gpt2'"),
        ("bert-base-casd", "'bert-base-cased'"),
        ("Llama-3.1-8", "'Llama-3.1-8B'"),
        ("pythia-70", "'pythia-70m'"),
        ("opt125m", "'opt-125m'"),
    ],
)
def test_an_unknown_name_offers_the_nearest_ones(typo: str, name: str) -> None:
    message = refusal(typo)
    assert message.startswith(f"unknown model {typo!r}; did you mean ")
    assert name in message
    assert "roofmodel.list_models()" in message


def test_the_error_for_an_unknown_name_lists_the_places_searched() -> None:
    message = refusal("zzzzzzzz")
    assert "did you mean" not in message
    assert all(words in message for words in ("not packaged", "not a path", "not in the local Hugging Face cache"))
