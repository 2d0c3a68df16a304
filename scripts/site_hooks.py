"""Extend the documentation site: run the commands that create its pictures, add the notebooks, convert LaTeX to MathML.

mkdocs calls these hooks (see mkdocs.yml). If a page shows `$ roof … -o NAME` and links to NAME, the build runs that
command and adds the file.
"""

from __future__ import annotations

import functools
import html
import os
import posixpath
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import nbconvert
import nbformat
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "lectures").glob("*.ipynb"))


def on_config(config: Any) -> None:
    """Add the notebooks to the navigation, after the how-to pages."""
    if NOTEBOOKS:
        config.nav.insert(3, {"Lectures": [f"lectures/{path.stem}.md" for path in NOTEBOOKS]})


def on_files(files: Any, config: Any) -> None:
    """Add the files that commands create, and the notebooks as pages with their pictures and without solutions."""
    for page in files.documentation_pages():
        folder = posixpath.dirname(page.src_uri)
        for command, name in re.findall(r"^\$ (roof .*-o (\S+).*)$", page.content_string, re.MULTILINE):
            if f"]({name})" in page.content_string:
                files.append(File.generated(config, posixpath.join(folder, name), content=_created(command, name)))
    for notebook in NOTEBOOKS:
        lecture = nbformat.read(notebook, 4)
        lecture.cells = [cell for cell in lecture.cells if "solution" not in cell.metadata.get("tags", ())]
        downloaded = nbformat.writes(lecture)
        text, resources = nbconvert.MarkdownExporter().from_notebook_node(_without_output_headings(lecture))
        picture_names = {name: f"{notebook.stem}-{name}" for name in resources["outputs"]}
        for name, picture in resources["outputs"].items():
            text = text.replace(f"]({name})", f"]({picture_names[name]})")
            files.append(File.generated(config, f"lectures/{picture_names[name]}", content=picture))
        files.append(File.generated(config, f"lectures/{notebook.name}", content=downloaded))
        files.append(File.generated(config, f"lectures/{notebook.stem}.md", content=_linked(text, notebook.name)))


def _without_output_headings(notebook: Any) -> Any:
    """Turn headings in the output of cells into bold lines, so that the table of contents lists the lecture's own."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text/markdown" in output.get("data", ()):
                parts = output.data["text/markdown"].split("```")  # every second one is code
                parts[::2] = [re.sub(r"^#+ (.+)$", r"**\1**", part, flags=re.MULTILINE) for part in parts[::2]]
                output.data["text/markdown"] = "```".join(parts)
    return notebook


def _linked(text: str, name: str) -> str:
    """Add a link to the notebook below the title, which is the first line."""
    title, _, rest = text.lstrip().partition("\n")
    return f"{title}\n\nTo run it, open [{name}]({name}) in the folder `examples/lectures` of a checkout.\n{rest}"


@functools.cache  # `mkdocs serve` builds repeatedly
def _created(command: str, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, text=True, capture_output=True)
        if done.returncode:
            raise PluginError(f"{command}: {done.stderr}")
        return (Path(folder) / name).read_bytes()


def on_page_content(content: str, **context: Any) -> str:
    """Convert formulas to MathML, which browsers draw without a script; remove the cog comments."""
    content = re.sub(
        r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>',
        lambda match: _mathml(html.unescape(match[2]), "block" if match[1] == "div" else "inline"),
        content,
        flags=re.DOTALL,
    )
    return re.sub(r"<!-- \[\[\[.*?-->", "", content, flags=re.DOTALL)


def _mathml(latex: str, display: str) -> str:
    return convert(latex.replace("{aligned}", "{split}"), display=display)  # latex2mathml supports split only


_EXTERNAL = re.compile(
    r"""<(?:script|img|iframe|link(?! rel="?canonical))\b[^>]*\s(?:src|href)="?(?:https?:)?//[^>]*>"""
)


def on_post_page(output: str, page: Any, **context: Any) -> None:
    """Raise PluginError if a page would fetch something from a network."""
    if match := _EXTERNAL.search(output):
        raise PluginError(f"{page.file.src_uri}: would be fetched from a network: {match[0]}")
