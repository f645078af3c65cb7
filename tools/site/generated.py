"""Pages that `pages.py` made join those of `docs`, and a folder in the navigation stands for its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

MADE = Path("build/pages")
_FIRST = ("README.md", "index.md")


def on_config(config: Any) -> Any:
    """Called by MkDocs when it has read its configuration."""
    config.nav = [
        {title: [_expanded(each, Path(config.docs_dir)) for each in entries]} for part in config.nav for title, entries in part.items()
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs with the files that it found."""
    for path in sorted(MADE.rglob("*.md")):
        files.append(File.generated(config, path.relative_to(MADE).as_posix(), content=path.read_text("utf-8")))
    return files


def on_nav(nav: Any, files: Any, **_: Any) -> Any:
    """Called by MkDocs with the navigation: a page that would not be built stops it, as would one that nobody finds."""
    known = {page.file.src_uri for page in nav.pages}
    lost = [file.src_uri for file in files.documentation_pages() if file.src_uri not in known]
    lost += [file.src_uri for file in files if file.src_uri.endswith(".md") and file.inclusion.is_excluded()]
    if lost:
        raise PluginError(f"pages that are left out, or in no navigation: {', '.join(sorted(lost))}")
    return nav


def _expanded(entry: Any, docs: Path) -> Any:
    if not isinstance(entry, dict):
        return entry
    [(title, folder)] = entry.items()
    if not folder.endswith("/"):
        return entry
    names = sorted(
        (path.name for root in (docs, MADE) for path in (root / folder).glob("*.md")), key=lambda name: (name not in _FIRST, name)
    )
    return {title: [f"{folder}{name}" for name in names]}
