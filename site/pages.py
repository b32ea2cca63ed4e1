"""The pages that lie outside ``docs``: README and its like, examples, and notebooks, which are run.

MkDocs calls the functions that begin with ``on_`` (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads a hook by its file alone
from reference import with_definitions

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents at the top of the repository, and where they stand on the site."""

_has_to_run = True
"""Whether notebooks are run: not while pages are written and watched."""

_SHOWN_CODE = re.compile(r"(?<=\w)\.(ipynb|py)$")
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?(?=\))")


def on_startup(command: str, dirty: bool) -> None:
    """Show notebooks without what they print where pages are served to their writer."""
    global _has_to_run
    del dirty
    _has_to_run = command != "serve"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add documents from the top of the repository, examples, and notebooks with their outputs."""
    for name, page in DOCUMENTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_with_site_links(text, Path())))
    for path in sorted((ROOT / "examples").glob("*.py")):
        shown = f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
        files.append(File.generated(config, f"examples/{path.stem}.md", content=shown))
    with tempfile.TemporaryDirectory() as folder:  # one, in which the second finds the first's data
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            page = f"notebooks/{path.stem}.md"
            text = _with_site_links(_run_notebook(path, folder), Path("notebooks"), "notebooks")
            files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links from ``docs`` lead to the site's pages, and public names to their definitions."""
    del config, files
    if page.file.generated_by:
        return markdown
    return with_definitions(_with_site_links(markdown, Path("docs")))


def _with_site_links(text: str, folder: Path, place: str = ".") -> str:
    """Rewrite links between files of the repository as links between pages of the site.

    ``folder`` is where the file lies, ``place`` the folder of its page on the site.
    """

    def on_site(link: re.Match[str]) -> str:
        target = (ROOT / folder / link["target"]).resolve().relative_to(ROOT).as_posix()
        page = DOCUMENTS.get(target, _SHOWN_CODE.sub(".md", target.removeprefix("docs/")))
        return os.path.relpath(page, place) + (link["anchor"] or "")

    return _LINK.sub(on_site, text)


def _run_notebook(path: Path, folder: str) -> str:
    """Return a notebook as a page, with what its cells print; a cell that fails is an error."""
    notebook = nbformat.read(path, as_version=4)
    if _has_to_run:
        client = NotebookClient(
            notebook,
            timeout=300,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],
            coalesce_streams=True,
        )
        client.execute()
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    return text
