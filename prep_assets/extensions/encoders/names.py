"""`template: encoder:NAME`: formats that two packages write, and the user's own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from prep_assets.errors import TemplateError, nearest
from prep_assets.extensions.encoders import own
from prep_assets.extensions.encoders.formats import PREFIX, Format

_SHIPPED = {"deepseek-v4": "deepseek", "gpt-oss": "harmony"}
"""Name → module with a `FORMAT`."""


def find(name: str, base: Path | None) -> Format | None:
    """The format that a template's name asks for; `None` if it is no ``encoder:NAME``.

    Raises:
        TemplateError: there is no such format, a package that it needs is missing, or the user's function fails its own chats.
    """
    if not name.startswith(PREFIX):
        return None
    wanted = name.removeprefix(PREFIX)
    if ":" in wanted:
        return own.format_of(wanted)
    if wanted not in _SHIPPED:
        raise TemplateError(
            f"no encoder {wanted!r}{nearest(wanted, _SHIPPED) or '.'} Known: {', '.join(_SHIPPED)}, or a function of your own, "
            f"{PREFIX}package.module:function (docs/encoders.md)"
        )
    found: Format = import_module(f"{__package__}.{_SHIPPED[wanted]}").FORMAT
    found.check_installed()
    return found
