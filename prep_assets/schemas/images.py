"""The ``images`` column of a row and the marks in its text that say where the images stand. Only paths: no image is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, Region
from prep_assets.schemas.fields import as_integer, as_text, value_at, wrong_type
from prep_assets.schemas.view import has_content


class Images:
    """The images of one row, handed out in order as their marks are met.

    A row without the column has no marks: the token is then plain text (a page about HTML may well contain ``<image>``). Where the column
    is called ``images``, one called ``image`` stands in for it: many data sets with one image a row have that.
    """

    __slots__ = ("_images", "_key", "_taken", "_token")

    def __init__(self, row: Mapping[str, Any], key: str, token: str) -> None:
        column = row.get(key)
        if key == "images" and column is None and row.get("image") is not None:
            key, column = "image", row["image"] if has_content(row["image"]) else []
        self._key, self._token, self._taken = key, token, 0
        self._images = None if column is None else images_of(column, key)

    def __bool__(self) -> bool:
        """Whether the row has the column."""
        return self._images is not None

    def split(self, text: str, weight: float | None) -> list[Region]:
        """`text` as text and image regions. Each mark takes the next image of the row."""
        if self._images is None or self._token not in text:
            return [Region(TEXT, text, weight)] if text else []
        regions: list[Region] = []
        for number, piece in enumerate(text.split(self._token)):
            if number:
                regions.append(replace(self.take(), loss_weight=weight))
            if piece:
                regions.append(Region(TEXT, piece, weight))
        return regions

    def take(self) -> Region:
        """The next image."""
        images = self._images or []
        if self._taken >= len(images):
            raise Refused("image_count", f"more images are placed in the text than the {len(images)} of {self._key!r}")
        self._taken += 1
        return images[self._taken - 1]

    def require_all_taken(self) -> None:
        """Refuse (``image_count``) a row with images that no mark places."""
        if self._images is not None and self._taken < len(self._images):
            raise Refused(
                "image_count", f"{self._key!r} has {len(self._images)} images, the text places {self._taken} with {self._token!r}"
            )


def image_of(value: object, where: str, beside: Mapping[str, Any] | None = None) -> Region:
    """One image: its path or URL, a string or an object with ``path`` or ``url`` (the forms of Hugging Face and of OpenAI), and its ``width`` and
    ``height`` in pixels, where the object says them, or what stands `beside` it.

    Raises:
        Refused: ``missing_image``; ``image_resized``, where a row asks for another resolution than that of the picture.
    """
    attributes = value if isinstance(value, Mapping) else beside or {}
    if isinstance(value, Mapping):
        key = "path" if value.get("path") is not None else "url"
        value = value_at(value, key, where)
    path = as_text(value, where)
    if not path:
        raise Refused("missing_image", f"{where!r} is an empty path")
    if resized := [key for key in RESIZING if attributes.get(key) is not None]:
        detail = (
            f"{where!r} asks for {resized[0]} {attributes[resized[0]]!r}; one rule counts the tokens of all images of a store. Leave it out"
        )
        raise Refused("image_resized", detail)
    return Region(IMAGE, path, size=_size(attributes, where))


RESIZING = ("resized_width", "resized_height", "min_pixels", "max_pixels")
"""What Qwen's own rows say of single images."""


def _size(attributes: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    sides = [attributes.get(name) for name in ("width", "height")]
    if sides == [None, None]:
        return None
    width, height = (as_integer(side, f"{where}.{name}") for side, name in zip(sides, ("width", "height"), strict=True))
    if min(width, height) < 1:
        raise Refused("wrong_type", f"{where!r} is {width} x {height} pixels, needs 1 or more along each side")
    return width, height


def images_of(column: object, key: str) -> list[Region]:
    """The images of a column: one, or an array of them."""
    if isinstance(column, str | Mapping):
        return [image_of(column, key)]
    if isinstance(column, list | tuple):
        return [image_of(value, f"{key}[{i}]") for i, value in enumerate(column)]
    return wrong_type(column, key, "an array of paths")
