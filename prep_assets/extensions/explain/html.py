"""HTML pages: templates in which whatever data says is visible and inert, and files that are written whole."""

from __future__ import annotations

import os
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from prep_assets.caches import bounded_cache
from prep_assets.text.visible import one_line
from prep_assets.version import __version__


def render_template(package: str, name: str, **values: Any) -> str:
    """Render ``<name>.html.jinja`` of a package with the style of all pages."""
    template = _environment(package).get_template(f"{name}.html.jinja")
    return str(template.render(**values, style=Markup(file_of("prep_assets.extensions.explain", "page.css")), version=__version__))


@bounded_cache("page templates", 8)
def _environment(package: str) -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(partial(file_of, package)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_make_visible,
    )
    environment.filters["number"] = _number
    environment.filters["percent"] = lambda value: "" if value is None else f"{value:.1%}"
    environment.filters["size"] = _size
    return environment


def _make_visible(value: Any) -> Any:
    """Make what a template writes visible, before jinja2 escapes it."""
    return value if isinstance(value, Markup) else one_line(str(value))


def file_of(package: str, name: str) -> str:
    """A text file of a package."""
    return files(package).joinpath(name).read_text("utf-8")


def _number(value: int | float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def write_page(path: Path, html: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(html, "utf-8")
    temporary.replace(path)
