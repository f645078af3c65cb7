"""The resolution of an image from its header, compared with the picture that transformers loads."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.extensions.media.headers import ORIENTATION, resolution_of
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.pictures import png

Image = pytest.importorskip("PIL.Image")


def picture(kind: str, width: int = 7, height: int = 3, orientation: int | None = None) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    more = {} if kind in ("GIF", "BMP") else {"exif": exif}
    Image.new("RGB", (width, height)).save(file, kind, **more)
    return file.getvalue()


@pytest.mark.parametrize("orientation", [None, *range(1, 9)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_it_is_that_of_the_picture_that_a_processor_gets(kind: str, orientation: int | None, tmp_path: Path) -> None:
    from transformers.image_utils import load_image

    path = tmp_path / "picture"
    path.write_bytes(picture(kind, orientation=orientation))
    assert resolution_of(path) == load_image(str(path)).size


def test_no_pixel_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, photo = tmp_path / "picture", picture("JPEG", orientation=6)
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    for content, size in ((png(9000, 5000, orientation=8), (5000, 9000)), (photo, (3, 7))):
        path.write_bytes(content)
        assert resolution_of(path) == size


@pytest.mark.parametrize("content", [b"", b"no picture", picture("PNG")[:20], picture("TIFF"), png(1 << 30, 1 << 30), png(0, 9)])
def test_what_has_none_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"unreadable_image: .* needs one of PNG, JPEG"):
        resolution_of(path)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP"]), data=st.data())
def test_damaged_headers_are_read_or_refused(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(picture(kind, orientation=6))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "picture"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        width, height = resolution_of(path)
    except Refused as refused:
        assert refused.reason == "unreadable_image"
    else:
        assert width > 0 and height > 0
