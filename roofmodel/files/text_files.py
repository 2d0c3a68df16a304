"""Text and YAML files that users write: paths with `~`, a size limit, YAML errors with file and line; other formats.

The YAML part is a thin layer over PyYAML's node graph. It rejects input that PyYAML's loader accepts: duplicate keys,
unknown keys (the message suggests the nearest known key), quantities without a unit or with the wrong unit. Results
show the names of files in printable characters and without folders, which may name people and machines. For a file in
a format that no reader reads, a message says what it is and which command makes it readable.
"""

from __future__ import annotations

import codecs
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from roofmodel.errors import Message, RoofError, Text, choices, shorten, suggest
from roofmodel.numbers import units


def display_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """The name that results show for each path: the file's own name, after its folder's if two files share a name.

    Examples:
        >>> display_names(["/home/someone/run.csv"])
        {'/home/someone/run.csv': 'run.csv'}
        >>> list(display_names(["/scratch/someone/a/run.csv", "b/run.csv"]).values())
        ['a/run.csv', 'b/run.csv']
    """
    files = {os.fspath(path): Path(path) for path in paths}
    count = Counter(file.name for file in files.values())
    return {
        path: printable(f"{file.parent.name}/{file.name}" if count[file.name] > 1 else file.name)
        for path, file in files.items()
    }


def rename_files(text: Text, names: Mapping[str, str]) -> Text:
    """A note or warning with each path in it replaced by its name in results."""
    parts = Message(text).parts
    for path in sorted(names, key=len, reverse=True):  # a path may begin with another one
        parts = tuple(part.replace(path, names[path]) if isinstance(part, str) else part for part in parts)
    return Message(*parts) if isinstance(text, Message) else parts[0]


def printable(text: str) -> str:
    """Replace unprintable characters with a blank or `\ufffd`, so that the text is safe to print in a terminal.

    Names of files, kernels and ranges come from users: they may contain escape sequences, bidirectional control
    characters, line ends, or unpaired surrogates (a file name that is not UTF-8).
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


LARGEST_TEXT = 16 * 2**20
"""Maximum file size in bytes. Config and device files have a few kilobytes."""
MAX_DEPTH = 50
"""Maximum nesting of lists and mappings; config and device files have less than ten levels."""
MAX_NODES = 100_000
"""Maximum number of YAML nodes with all aliases expanded; device files have about a thousand."""

# libyaml's parser, if PyYAML has it, is ten times faster and gives the same nodes
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def expand(path: str | os.PathLike[str]) -> Path:
    """Replace `~` or `~name` at the start of a path by the home directory, if it exists."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, leaves an unknown ~name as it is


def read_text(path: Path) -> str:
    """A text file's content, decoded as UTF-8 with or without BOM.

    Raises OSError if it cannot be read, NotUtf8Error if it is not UTF-8, ValueError if it is too large.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"larger than {LARGEST_TEXT // 2**20} MiB")
    return decode(content)


class NotUtf8Error(UnicodeDecodeError):
    """A file is not UTF-8 text: it is binary, or text in UTF-16 or another encoding."""

    def __str__(self) -> str:
        return "not text in UTF-8; save it as UTF-8"


def decode(content: bytes) -> str:
    """The text of a file's bytes, in UTF-8 with or without BOM. Raises NotUtf8Error."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotUtf8Error(*error.args) from None


class YamlValue(NamedTuple):
    """A value in a YAML file: its node, file, and path of keys."""

    node: Any
    file: str
    path: str
    kind: type[RoofError]  # the exception class of its errors

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def error(self, *message: Text) -> RoofError:
        return self.kind(f"{self.file}:{self.line}: ", *message)

    def mapping(
        self, known_keys: Collection[str] | None = None, required: Collection[str] = ()
    ) -> dict[str, YamlValue]:
        """The entries of a mapping by key. `known_keys` None accepts any key."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"{self.path or 'the file'} must be a mapping of keys to values")
        entries: dict[str, YamlValue] = {}
        for key_node, value_node in self.node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._replace(node=key_node).error("a key must be text, not a list or a mapping")
            key = str(key_node.value)
            if known_keys is not None and key not in known_keys:
                hint = suggest(key, known_keys) or f"; known here: {', '.join(known_keys)}"
                raise self._replace(node=key_node).error(f"unknown key {key!r}{hint}")
            if key in entries:
                problem = f"duplicate key {key!r}; line {entries[key].line} has it already"
                raise self._replace(node=key_node).error(problem)
            entries[key] = YamlValue(value_node, self.file, f"{self.path}.{key}".lstrip("."), self.kind)
        for key in required:
            if key not in entries:
                raise self.error(f"{self.path or 'the file'} lacks the key {key!r}")
        return entries

    def items(self) -> list[YamlValue]:
        """The entries of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"{self.path} must be a list")
        return [self._replace(node=node, path=f"{self.path}[{i}]") for i, node in enumerate(self.node.value)]

    def value(self) -> Any:
        """The value as YAML interprets it: text, number, boolean, null or list."""
        _complete_tags(self.node)
        try:
            return yaml.SafeLoader("").construct_object(self.node, deep=True)
        except (yaml.YAMLError, ValueError, KeyError, AttributeError):  # PyYAML's own for `!!bool x`, `!!timestamp x`
            raise self.error(f"{self.path} has a YAML tag that does not match its value") from None

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping of keys to values."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_null(self) -> bool:
        """Whether the value is empty or null."""
        return bool(_tag(self.node) == "tag:yaml.org,2002:null")

    def text(self) -> str:
        """A scalar as one line without control characters.

        Raises an error of `kind` for a list, a mapping, or an empty value.
        """
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value:
            raise self.error(f"{self.path} must be text")
        return printable(str(self.node.value))

    def flag(self) -> bool:
        """True or false."""
        flag = self.value()
        if not isinstance(flag, bool):
            raise self.error(f"{self.path} must be true or false")
        return flag

    def one_of(self, names: Collection[str]) -> str:
        """A text that is one of these names."""
        text = self.text()
        if text not in names:
            raise self.error(f"unknown {self.path.partition('[')[0]} {text!r}{choices(text, names)}")
        return text

    def integer(self, low: int = 1, high: int = 10**6) -> int:
        """An integer from `low` to `high`."""
        text = self.text()
        if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
            raise self.error(f"{self.path} is {shorten(text)}; it must be a whole number from {low} to {high}")
        return int(text)

    def number(self) -> float:
        """A number without a unit, not negative."""
        text = self.text()
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e9:
            raise self.error(f"{self.path} is {shorten(text)}; it must be a number without a unit, such as 0.85")
        return value

    def quantity(self, unit: str) -> int | float:
        """A number with a unit, in base units, greater than zero."""
        text = self.text()
        try:
            value = units.parse(text, unit)
        except ValueError as error:
            raise self.error(f"{self.path}: {error}") from None
        if value <= 0:
            raise self.error(f"{self.path} is {text!r}; it must be greater than zero")
        return value


def read_yaml(path: Path, kind: type[RoofError], expected: str, extract: Callable[[str], str] = str) -> YamlValue:
    """The root value of a YAML file; `extract` returns the YAML part of the text, `expected` names it in messages.

    Raises FileNotFoundError if there is no file, `kind` if it cannot be read or is not YAML.
    """
    try:
        text = extract(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise kind(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise kind(f"{path}: expected {expected}, got a file that is {error}") from None
    return parse_yaml(text, str(path), kind, expected)


def parse_yaml(text: str, file: str, kind: type[RoofError], expected: str) -> YamlValue:
    """The root value of a YAML text; messages name it `file`, and `expected` as its content. Raises `kind`."""
    try:
        node = _compose(text)
    except _LimitExceeded as error:
        raise kind(f"{file}:{error.line}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"{file}:{mark.line + 1}" if mark else file
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise kind(f"{position}: not YAML ({problem})") from None
    except ValueError as error:
        raise kind(f"{file}: expected {expected}, got a file that is {error}") from None
    if node is None:
        raise kind(f"{file}: expected {expected}, got an empty file")
    return YamlValue(node, file, "", kind)


def depth(value: Any) -> int:
    """The number of nested lists and mappings of a JSON value; stops counting above MAX_DEPTH."""
    levels, inside = 0, [value]
    while levels <= MAX_DEPTH and (inside := [each for each in inside if isinstance(each, dict | list)]):
        levels += 1
        inside = [part for each in inside for part in (each.values() if isinstance(each, dict) else each)]
    return levels


class _LimitExceeded(Exception):
    """A YAML text is nested too deeply or has too many nodes."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem)
        self.line = mark.line + 1


class _Loader(_PARSER):  # type: ignore[misc]
    """PyYAML's composer with a limit on nesting, which its recursion needs. It leaves tags that are not written empty.

    PyYAML calls these methods for each node.
    """

    depth = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH + 1:  # the root and a scalar at the deepest level are nodes, too
            raise _LimitExceeded(f"more than {MAX_DEPTH} nested lists and mappings", parent.start_mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> None:
        return None


def _compose(text: str) -> Any:
    """The node graph of the single document of a YAML text; None for an empty text.

    Raises _LimitExceeded, yaml.YAMLError.
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
    finally:
        loader.dispose()
    if "*" in text or len(text) > MAX_NODES:  # a short text without aliases has few values
        _limit_nodes(root)
    return root


def _limit_nodes(root: Any) -> None:
    """Raise _LimitExceeded for more than MAX_NODES nodes, aliases expanded; one inside its own anchor never ends."""
    nodes, count = [root], 1
    while nodes:
        node = nodes.pop()
        children: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            children = [each for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        count += len(children)
        if count > MAX_NODES:  # before the list of nodes grows
            raise _LimitExceeded(f"more than {MAX_NODES} values, with aliases expanded", root.start_mark)
        nodes += children


def _tag(node: Any) -> Any:
    """The tag of a node. `_Loader` leaves unwritten tags empty, because they are costly and few values need one."""
    if node.tag is None:
        plain = isinstance(node, yaml.ScalarNode) and not node.style
        resolver: Any = yaml.resolver.Resolver()
        node.tag = resolver.resolve(type(node), node.value, (plain, not plain))
    return node.tag


def _complete_tags(node: Any) -> None:
    """Fill the empty tags of a node and of all nodes in it."""
    _tag(node)
    for part in () if isinstance(node, yaml.ScalarNode) else node.value:
        for each in part if isinstance(part, tuple) else (part,):
            _complete_tags(each)


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


ASCII_FALLBACK = "roofmodel.ascii_fallback"
"""The error handler for streams, `errors=ASCII_FALLBACK`: it replaces each character that the stream's encoding lacks
by one ASCII character, so that columns stay aligned."""
_PAIRS = (
    "×x ·- ÷/ −- ≥> ≤< ≈~ –- —- …~ µu μu ²2 ³3 ᵀT “\" ”\" ‘' ’' →> ←< ↑^ ↓v "
    "─- ╌- │| ┤| ├| ┴+ ┬+ └+ ┘+ ┌+ ┐+ ╱/ ●* ◆* ■# ▲^ ▼v █# ▉# ▊# ▋# ▌= ▍- ▎. ▏. ░."
)
_ASCII = {pair[0]: pair[1] for pair in _PAIRS.split()}


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in missing), error.end


codecs.register_error(ASCII_FALLBACK, _to_ascii)
