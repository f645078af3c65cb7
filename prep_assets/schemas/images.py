"""The ``images`` column of a row and the marks in its text that say where the images stand. Only paths: no image is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, Region
from prep_assets.schemas.fields import as_text, value_at, wrong_type


def no_images() -> Images:
    """For messages that have no column of images: marks in their text are text."""
    return Images({}, "images", "<image>")


class Images:
    """The images of one row, handed out in order as their marks are met.

    A row without the column has no marks: the token is then plain text (a page about HTML may well contain ``<image>``). Where the column
    is called ``images``, one called ``image`` stands in for it: many data sets with one image a row have that.
    """

    __slots__ = ("_key", "_paths", "_taken", "_token")

    def __init__(self, row: Mapping[str, Any], key: str, token: str) -> None:
        column = row.get(key)
        if key == "images" and column is None and row.get("image") is not None:
            key, column = "image", row["image"] or []
        self._key, self._token, self._taken = key, token, 0
        self._paths = None if column is None else _paths(column, key)

    def split(self, text: str, weight: float | None) -> list[Region]:
        """`text` as text and image regions. Each mark takes the next image of the row."""
        if self._paths is None or self._token not in text:
            return [Region(TEXT, text, weight)] if text else []
        regions: list[Region] = []
        for number, piece in enumerate(text.split(self._token)):
            if number:
                regions.append(Region(IMAGE, self.take(), weight))
            if piece:
                regions.append(Region(TEXT, piece, weight))
        return regions

    def take(self) -> str:
        """The path of the next image."""
        paths = self._paths or []
        if self._taken >= len(paths):
            raise Refused("image_count", f"more images are placed in the text than the {len(paths)} of {self._key!r}")
        self._taken += 1
        return paths[self._taken - 1]

    def require_all_taken(self) -> None:
        """Refuse (``image_count``) a row with images that no mark places."""
        if self._paths is not None and self._taken < len(self._paths):
            raise Refused("image_count", f"{self._key!r} has {len(self._paths)} images, the text places {self._taken} with {self._token!r}")


def image_path(value: object, where: str) -> str:
    """The path or URL of one image: a string, or an object with ``path`` or ``url`` (the forms of Hugging Face and of OpenAI)."""
    if isinstance(value, Mapping):
        key = "path" if value.get("path") is not None else "url"
        value = value_at(value, key, where)
    path = as_text(value, where)
    if not path:
        raise Refused("missing_image", f"{where!r} is an empty path")
    return path


def _paths(column: object, key: str) -> list[str]:
    if isinstance(column, str | Mapping):
        return [image_path(column, key)]
    if isinstance(column, list | tuple):
        return [image_path(value, f"{key}[{i}]") for i, value in enumerate(column)]
    return wrong_type(column, key, "an array of paths")
