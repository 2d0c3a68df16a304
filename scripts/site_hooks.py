"""What the site holds beside its pages: files that their commands make, and notebooks; formulas become MathML.

Called by mkdocs, as mkdocs.yml says. A page that shows `$ roof … -o NAME` and has a link to, or a picture of, NAME gets
that file, made by that very command.
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
    """Notebooks stand behind the how-to pages."""
    if NOTEBOOKS:
        config.nav.insert(3, {"Lectures": [f"lectures/{path.stem}.md" for path in NOTEBOOKS]})


def on_files(files: Any, config: Any) -> None:
    """Adds what commands make, and the notebooks as pages with their pictures."""
    for page in files.documentation_pages():
        folder = posixpath.dirname(page.src_uri)
        for command, name in re.findall(r"^\$ (roof .*-o (\S+).*)$", page.content_string, re.MULTILINE):
            if f"]({name})" in page.content_string:
                files.append(File.generated(config, posixpath.join(folder, name), content=_made(command, name)))
    for notebook in NOTEBOOKS:
        text, resources = nbconvert.MarkdownExporter().from_notebook_node(_plain(nbformat.read(notebook, 4)))
        named = {name: f"{notebook.stem}-{name}" for name in resources["outputs"]}
        for name, content in resources["outputs"].items():
            text = text.replace(f"]({name})", f"]({named[name]})")
            files.append(File.generated(config, f"lectures/{named[name]}", content=content))
        files.append(File.generated(config, f"lectures/{notebook.name}", content=notebook.read_bytes()))
        files.append(File.generated(config, f"lectures/{notebook.stem}.md", content=_linked(text, notebook.name)))


def _plain(notebook: Any) -> Any:
    """The notebook, with the headings of what its cells print as bold lines: a lecture's contents are its own."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text/markdown" in output.get("data", ()):
                parts = output.data["text/markdown"].split("```")  # every second one is code
                parts[::2] = [re.sub(r"^#+ (.+)$", r"**\1**", part, flags=re.MULTILINE) for part in parts[::2]]
                output.data["text/markdown"] = "```".join(parts)
    return notebook


def _linked(text: str, name: str) -> str:
    """A lecture's page, which begins with its title, with the notebook that it is made from."""
    title, _, rest = text.lstrip().partition("\n")
    return f"{title}\n\nTo run it: [{name}]({name}), in the folder `examples/lectures` of a checkout.\n{rest}"


@functools.cache  # for `mkdocs serve`, which builds again and again
def _made(command: str, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, text=True, capture_output=True)
        if done.returncode:
            raise PluginError(f"{command}: {done.stderr}")
        return (Path(folder) / name).read_bytes()


def on_page_content(content: str, **context: Any) -> str:
    """Formulas in MathML, which browsers draw without a script."""
    content = re.sub(
        r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>',
        lambda found: _mathml(html.unescape(found[2]), "block" if found[1] == "div" else "inline"),
        content,
        flags=re.DOTALL,
    )
    return re.sub(r"<!-- \[\[\[.*?-->", "", content, flags=re.DOTALL)  # how scripts/docs wrote the page


def _mathml(latex: str, display: str) -> str:
    return convert(latex.replace("{aligned}", "{split}"), display=display)  # the one of the two that it knows


_FETCHED = re.compile(
    r"""<(?:script|img|iframe|link(?! rel="?canonical))\b[^>]*\s(?:src|href)="?(?:https?:)?//[^>]*>"""
)


def on_post_page(output: str, page: Any, **context: Any) -> None:
    """Nothing is fetched from a network. Raises PluginError for a page that would."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri}: fetched from a network: {found[0]}")
