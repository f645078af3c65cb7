"""Files in records, such as images, for which tokens stand: what the extension that knows them is asked for.

The entry point `files` of the group `prep_assets.media` names a class as `RecordFiles`. Without one no family takes files: records with some are rejected,
since a render has no token for them, and stores with some are not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prep_assets import plugins
from prep_assets.config.family import Domain, Family
from prep_assets.errors import Refused
from prep_assets.packing import Mixture, PackPlan
from prep_assets.samples import MEDIA, Region, Sample, Turn
from prep_assets.stores.images import Image, ImageBlock, Images
from prep_assets.stores.table import Table
from prep_assets.text.spans import Placed

if TYPE_CHECKING:
    from prep_assets.proofs.verdict import Verdict


class RecordFiles:
    """The files in records of a family, or of one of its domains; here there are none, and what only files need is not asked for."""

    tokens: Mapping[str, str] = {}
    """Kind of files → the control token that stands for one, of the kinds that the family takes."""

    def __init__(self, workspace: Any, family: Family, domain: Domain | None = None) -> None:
        self.workspace, self.family, self.domain = workspace, family, domain

    def recipe(self) -> dict[str, Any]:
        """What decides how many tokens a file has."""
        return {}

    def marks(self) -> dict[str, Any]:
        """Kind of files → the text in place of one in a render, before its own placeholder is known."""
        return {}

    def ids(self) -> dict[str, int]:
        """Kind of files → the id of its token.

        Raises:
            ConfigError: the token could not tell where files stand.
        """
        return {}

    def all_ids(self) -> list[int]:
        """The ids of all tokens that may stand for files or around them."""
        return []

    @staticmethod
    def folder(configs: Path, domain: Domain) -> Path | None:
        """What the paths of files are relative to; `None` if a domain names none."""
        return None

    def ready(self, sample: Sample) -> Sample:
        """The sample with a placeholder for each file that is shown.

        Raises:
            Refused: a file that cannot be used.
        """
        return sample

    def ready_again(self, sample: Sample) -> Sample:
        """As `ready`, by code of its own.

        Raises:
            CheckFailed: a file that cannot be used.
        """
        return sample

    def block(self, placed: Placed) -> ImageBlock:
        """What is stored of files: where they stand, and what they are."""
        raise NotImplementedError

    def verdicts(self, tables: Iterable[Table]) -> Iterator[Verdict]:
        """Whether files stand where their tokens do, and are what tables say of them; nothing for a family without files."""
        return iter(())

    def read_again(self, images: Images) -> Iterator[tuple[Image, Image]]:
        """Each stored file, and the same read again."""
        return iter(())

    @staticmethod
    def compare(references: Iterable[tuple[Image, Image]]) -> Verdict:
        """Whether stored files are those that were read again."""
        raise NotImplementedError

    @staticmethod
    def write_packed(payload: Path, table: str, plan: PackPlan, mixture: Mixture, stores: Sequence[Table]) -> dict[str, int]:
        """Write the files of a packed table, those of its records at their places in the rows, and count them.

        Raises:
            PrepAssetsError: a row's border goes through one.
        """
        return {}

    @staticmethod
    def check_packed(packed: Table, tables: Mapping[str, Table]) -> Verdict:
        """Whether the files of a packed table are those of its records."""
        raise NotImplementedError


def record_files() -> type[RecordFiles]:
    """The class of the extension; `RecordFiles` where there is none."""
    return plugins.of_extension("media", "files") or RecordFiles


def shown_files(turns: Iterable[Turn]) -> list[Region]:
    """The files of a record that are not dropped before rendering."""
    return [region for turn in turns for region in turn.regions if region.kind in MEDIA and not region.drop]


def reject_files(turns: Iterable[Turn], stage: str) -> None:
    """Reject (``unsupported_media``) turns with files in families of text only."""
    if files := shown_files(turns):
        raise Refused(
            "unsupported_media",
            f"{files[0].kind} {files[0].text[:200]!r}: this family has text only; images need pretrain or sft, audio and video sft",
            stage=stage,
        )
