"""Width and height of an image, from the header of its file. No pixel is decoded."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, Refused

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
FAULTS = (OSError, ValueError, SyntaxError, LookupError, TypeError, ArithmeticError, EOFError, struct.error, zlib.error)
"""What Pillow raises for bytes that are not a picture."""
ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held; from 5 on width and height change places."""


def resolution_of(path: Path) -> tuple[int, int]:
    """Width and height in pixels, turned as its EXIF orientation says, which is how processors see it.

    Raises:
        Refused: ``unreadable_image``.
        ConfigError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError("image_tokens reads the resolution of images with Pillow: pip install 'prep-assets[images]'") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large pictures: none is decoded
            with Image.open(path, formats=FORMATS) as image:
                width, height = image.size
                if min(width, height) < 1:
                    raise ValueError(f"{width} x {height} pixels")
                return (height, width) if _orientation(image) >= 5 else (width, height)
    except (*FAULTS, Image.DecompressionBombError) as error:
        detail = f"{str(path)[:400]}: its header gives no resolution ({str(error)[:100]}); needs one of {', '.join(FORMATS)}"
        raise Refused("unreadable_image", detail, stage="render") from error


def _orientation(image: Any) -> int:
    """What the header says; a PNG's `getexif` would decode its pixels to look behind them."""
    from PIL import Image

    if image.format != "PNG":
        found = image.getexif().get(ORIENTATION, 1)
    else:
        exif = Image.Exif()
        exif.load(image.info.get("exif"))
        found = exif.get(ORIENTATION, 1)
    return found if isinstance(found, int) else 1
