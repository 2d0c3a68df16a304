"""Short names of kernels for legends: without boilerplate, with the template argument that identifies the kernel."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from roofmodel.report.columns import shorten
from roofmodel.report.table import NAME
from roofmodel.roofline.categories import WRAPPERS, base_name
from roofmodel.roofline.naming import display_name
from roofmodel.roofline.points import Point

MAX_SEARCHED_CHARACTERS = 20_000  # of a kernel's name: some have megabytes
MAX_WORDS = 4  # that are added to names that would be equal
MAX_ADDED_SHARE = 0.6  # of the width, for these words
_ELEMENTWISE = re.compile(r"(?:\w+::)*(?:\w+_)?(elementwise|reduce)_kernel(?= |$)")
_GENERIC_TYPE = re.compile(
    r"(?:const |unsigned |signed )*"
    r"(?:int|long|short|char|bool|double|void|(?:\w+::)?\w*(?:half|float)\d*(?:_t)?)[ *&]*",
    re.IGNORECASE,
)


def short_name(name: str) -> str:
    """`void cutlass::Kernel2<cutlass_80_s16816gemm>(Params)` as `cutlass_80_s16816gemm`."""
    if name.startswith(("Memcpy", "Memset")):
        return name  # the memory is in parentheses
    base = display_name(name)
    last = base.rpartition("::")[2]
    if last.lower() in WRAPPERS:
        return next(map(_without_suffix, _named_arguments(name, last)), base)
    if match := _ELEMENTWISE.match(base):
        function = base[match.end() :] or next((f" ({a})" for a in map(_last_part, _named_arguments(name, last))), "")
        return f"{match[1]}{function}" if function else base
    return base


def legend_names(names: Mapping[str, str], width: int) -> dict[str, str]:
    """Names of at most `width` characters that differ; `names` maps full names to short ones.

    Where short names are equal after they are cut, the first words that differ between the full names follow.
    """
    different: dict[str, list[str]] = {name: [] for name in names}
    for last in [False] * MAX_WORDS + [True]:
        equal = defaultdict(list)
        for name, short in names.items():
            equal[_with_words(short, different[name], width)].append(name)
        for group in (group for group in equal.values() if len(group) > 1):
            for i, (name, words) in enumerate(zip(group, _differences(group), strict=True), 1):
                if last:
                    different[name] = [f"#{i}"]
                else:
                    different[name] += [word for word in words if word not in different[name]][:1]
    return {name: _with_words(short, different[name], width) for name, short in names.items()}


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Short names of kernels, in at most `width` characters, that differ if the names do."""
    short = legend_names({name: short_name(name) for name in names}, width)
    return [short[name] for name in names]


KERNEL_NAME = NAME._replace(shorten=short_names)
"""The unit of a table's column of kernels."""


def names_of_points(points: Iterable[Point], width: int) -> dict[str, str]:
    """The names of points as `legend_names` gives them; predicted operators keep their names."""
    return legend_names({p.name: p.name if p.predicted else short_name(p.name) for p in points}, width)


def _with_words(short: str, words: Sequence[str], width: int) -> str:
    if not words:
        return shorten(short, width)
    added = shorten(" ".join(words), int(width * MAX_ADDED_SHARE))
    return f"{shorten(short, width - len(added) - 1)} {added}"


def _differences(names: Sequence[str]) -> list[list[str]]:
    """The words of each name that the others do not have at the same place, or, with other lengths, do not have."""
    split = [re.findall(r"[^\W_]+", name[:MAX_SEARCHED_CHARACTERS]) for name in names]
    if len({len(words) for words in split}) == 1:
        places = [place for place, words in enumerate(zip(*split, strict=True)) if len(set(words)) > 1]
        return [[words[place] for place in places] for words in split]
    common = set.intersection(*map(set, split))
    return [[word for word in dict.fromkeys(words) if word not in common] for words in split]


def _named_arguments(name: str, template: str) -> Iterator[str]:
    """The base names of a template's arguments that are neither numbers nor basic types."""
    _, _, rest = name[:MAX_SEARCHED_CHARACTERS].partition(f"{template}<")
    depth, start = 0, 0
    for match in re.finditer(r"[<>(),]", rest):
        sign, end = match[0], match.start()
        if depth == 0 and sign in ",>":
            text = rest[start:end].strip()
            if not re.match(r"\(|-?\d|true\b|false\b", text) and not _GENERIC_TYPE.fullmatch(text):
                yield base_name(text.partition("::[lambda")[0].partition("::{lambda")[0])
            start = end + 1
        depth += (sign in "<(") - (sign in ">)")
        if depth < 0:
            return


def _without_suffix(name: str) -> str:
    return re.sub(r"(?:::Kernel_traits|_?Params(?:Ex)?)$", "", name)


def _last_part(name: str) -> str:
    return name.rpartition("::")[2]
