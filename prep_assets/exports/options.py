"""Types of formats' options, with the bounds that pydantic checks."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError


def _plain(name: str) -> str:
    if name in ("", ".", "..") or any(each in name for each in "/\\\0"):
        raise PydanticCustomError("file_name", "must be the name of a file in the export's folder: not empty, without / and \\")
    return name


def _split(name: str) -> str:
    if re.fullmatch(r"\w+", name) is None:
        raise PydanticCustomError("split_name", "must be the name of a split: letters, digits and _")
    return name


Count = Annotated[int, Field(ge=1)]
"""A number of rows, tokens or bytes, at least 1."""
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""A token id, which every format holds in int32 or less."""
FileName = Annotated[str, AfterValidator(_plain)]
"""A name that stays in the folder of the export."""
Split = Annotated[str, AfterValidator(_split)]
"""A split's name, as Hugging Face `datasets` accepts it."""
