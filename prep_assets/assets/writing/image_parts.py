"""The images of a record, ready to be rendered: each is there, and has the placeholder that its processor writes for its resolution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import ImageFiles
from prep_assets.config.image_rules import Fixed, ImageRule
from prep_assets.config.models import Domain, Family, image_token
from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, Region, Sample, Turn
from prep_assets.templates.placeholders import placeholder_of


@dataclass(frozen=True)
class ImageParts:
    """The images of a domain.

    Attributes:
        files: the images themselves.
        rule: how many tokens stand for one; `None`: equally many for each.
        token: the image token; ``""`` where the family refuses images.
    """

    files: ImageFiles
    rule: ImageRule | None = None
    token: str = ""

    @classmethod
    def of_domain(cls, workspace: Workspace, family: Family, domain: Domain) -> ImageParts:
        """The images of a domain, as the configuration reads them."""
        return cls(ImageFiles(workspace.image_folder(domain)), workspace.image_rule(family), image_token(family) or "")

    def ready(self, sample: Sample) -> Sample:
        """The sample with a placeholder for each image that is shown. Pictures are never decoded.

        Raises:
            Refused: an image that is not there (see `ImageFiles.digest`), or whose resolution is not known, contradicted, or refused by the rule.
        """
        if not any(region.kind == IMAGE and not region.drop for turn in sample.turns for region in turn.regions):
            return sample
        turns = [replace(turn, regions=self._regions(turn)) for turn in sample.turns]
        return replace(sample, turns=tuple(turns))

    def _regions(self, turn: Turn) -> tuple[Region, ...]:
        return tuple(self._ready(region) if region.kind == IMAGE and not region.drop else region for region in turn.regions)

    def _ready(self, region: Region) -> Region:
        self.files.digest(region.text)  # one that is not there would be trained on as if it were
        if self.rule is None:
            return region
        if isinstance(self.rule, Fixed):
            return replace(region, size=None, placeholder=placeholder_of(self.rule, self.token, 1, 1))
        size = self._size(region)
        try:
            return replace(region, size=size, placeholder=placeholder_of(self.rule, self.token, *size))
        except Refused as refusal:
            raise Refused(refusal.reason, f"{region.text[:200]!r}: {refusal.detail}", stage="render") from refusal

    def _size(self, region: Region) -> tuple[int, int]:
        found = self.files.resolution(region.text)
        if found is None and region.size is None:
            detail = f"{region.text[:200]!r} is a URL, which is not opened; state its width and height in the row, or store the file below image_dir"
            raise Refused("no_resolution", detail, stage="render")
        if found is not None and region.size is not None and found != region.size:
            said, read = (" x ".join(map(str, size)) for size in (region.size, found))
            raise Refused("resolution_differs", f"{region.text[:200]!r} has {read} pixels, its row says {said}", stage="render")
        size = found or region.size
        assert size is not None
        return size
