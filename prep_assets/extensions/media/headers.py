"""The size of an image, the length of audio, the frames of a video: from the headers of their files. Nothing is decoded."""

from __future__ import annotations

import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import AUDIO, VIDEO

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
FAULTS = (OSError, ValueError, SyntaxError, LookupError, TypeError, ArithmeticError, EOFError, struct.error, zlib.error)
"""The exceptions that Pillow raises for bytes that are not an image."""
ORIENTATION = 0x0112
"""The EXIF tag of the camera's orientation; from 5 on width and height are swapped."""


def resolution_of(path: Path | BytesIO) -> tuple[int, int]:
    """Width and height of an image in pixels, after its EXIF orientation is applied, as image processors see it.

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


def size_of(kind: str, path: Path | BytesIO) -> tuple[float, ...]:
    """`resolution_of` an image, `length_of` audio, or `frames_of` a video. Only an image may be in memory."""
    if kind not in (AUDIO, VIDEO) or isinstance(path, BytesIO):
        return resolution_of(path)
    return length_of(path) if kind == AUDIO else frames_of(path)


def length_of(path: Path) -> tuple[int, int]:
    """Samples of an audio file, of one channel, and their rate, from its header.

    Raises:
        Refused: ``unreadable_audio``.
        ConfigError: soundfile is missing.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: without its library
        raise ConfigError("audio_tokens reads the length of audio with soundfile: pip install 'prep-assets[audio]'") from error
    try:
        about = soundfile.info(str(path))
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        detail = f"{str(path)[:400]}: its header gives no length ({str(error)[:100]}); needs WAV, FLAC, OGG or MP3"
        raise Refused("unreadable_audio", detail, stage="render") from error
    return int(about.frames), int(about.samplerate)


def frames_of(path: Path) -> tuple[int, float, int, int]:
    """Frames of the first stream of a video, frames per second, width and height in pixels, as decoders report them. No frame is decoded.

    Raises:
        Refused: ``unreadable_video``; ``video_frames``, if header and content differ, so that decoders would sample other frames.
        ConfigError: PyAV is missing.
    """
    try:
        import av
    except ImportError as error:
        raise ConfigError("video_tokens reads the frames of video with PyAV: pip install 'prep-assets[video]'") from error
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            width, height, stated, rate = stream.width, stream.height, stream.frames, stream.average_rate
            packets = [(packet.pts, packet.duration) for packet in container.demux(stream) if packet.size]
            begin, end = min(pts for pts, _ in packets), max(pts + duration for pts, duration in packets)
            seconds = float((end - begin) * stream.time_base)
            if min(width, height, rate, seconds) <= 0:
                raise ValueError(f"{width} x {height} pixels, {rate} frames per second")
    except (av.error.FFmpegError, OSError, LookupError, ValueError, TypeError) as error:
        detail = f"{str(path)[:400]}: its frames cannot be counted ({str(error)[:100]})"
        raise Refused("unreadable_video", detail, stage="render") from error
    if stated not in (0, len(packets)) or abs(len(packets) / seconds - rate) > rate / 1000:
        detail = (
            f"{str(path)[:400]}: its header states {stated:,} frames, {float(rate):g} per second; it has {len(packets):,}, {len(packets) / seconds:g} "
            "per second. Write it again with a constant frame rate"
        )
        raise Refused("video_frames", detail, stage="render")
    return len(packets), float(rate), width, height


def _orientation(image: Any) -> int:
    """The EXIF orientation in the header, 1 to 8. A PNG's `getexif` would decode its pixels to read the data after them."""
    from PIL import Image

    if image.format != "PNG":
        orientation = image.getexif().get(ORIENTATION, 1)
    else:
        exif = Image.Exif()
        exif.load(image.info.get("exif"))
        orientation = exif.get(ORIENTATION, 1)
    return orientation if isinstance(orientation, int) else 1
