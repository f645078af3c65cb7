"""Values of the domain key as folders: no value leaves the output directory or nests in it, and every folder can be read back.

A value is written as it is where it is letters, digits, ``_``, ``-``, inner dots and inner spaces; anything else as the percent code of its
UTF-8 bytes, as in a URL. ``domains.json`` says which folder is which value.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass, field

from prep_assets.errors import PrepAssetsError

DEFAULT = "__default__"
"""AstrAI's folder for records without a domain."""
EMPTY = "%empty"
LONGEST = 200
"""Bytes of a folder's name; file systems take 255."""
_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}


def folder_of(value: str) -> str:
    """The folder of a domain value; different values have different folders."""
    last = len(value) - 1
    coded = "".join(char if _is_plain(char, i in (0, last)) else _percent(char) for i, char in enumerate(value))
    if value == DEFAULT or coded.split(".")[0].casefold() in _RESERVED:
        coded = _percent(coded[0]) + coded[1:]
    raw = coded.encode()
    if len(raw) > LONGEST:
        kept = raw[: LONGEST - 40].decode(errors="ignore")
        coded = f"{kept}%sha{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    return coded or EMPTY


def _is_plain(char: str, at_end: bool) -> bool:
    return char.isalnum() or char in "_-" or (char in ". " and not at_end)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


@dataclass(slots=True)
class Domains:
    """The domain values seen so far.

    Attributes:
        values: value of each folder, in the order in which they came up; `None` for records without one.
    """

    values: dict[str, str | None] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)

    def folder(self, value: object) -> str:
        """The folder of a record whose domain key holds `value`; what is no string has no domain.

        Raises:
            PrepAssetsError: another value has a folder that some file systems take for the same (they ignore case, or compose accents).
        """
        text = value if isinstance(value, str) else None
        folder = DEFAULT if text is None else folder_of(text)
        if folder not in self.values:
            same = self._by_name.setdefault(unicodedata.normalize("NFC", folder).casefold(), folder)
            if same != folder:
                raise PrepAssetsError(
                    f"domains {self.values[same]!r} and {text!r} become folders {same!r} and {folder!r}, which are one folder where file "
                    "systems ignore case or compose accents. Spell the domain alike in the data"
                )
            self.values[folder] = text
        return folder
