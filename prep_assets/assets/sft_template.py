"""The certificate of the chat template: what it does with conversations, and by which proofs their masks hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.options import IMAGES, TEMPLATE
from prep_assets.assets.stage import Asset, Check, Store
from prep_assets.assets.versions import SFT as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.tokens import tokenizer_recipe
from prep_assets.config.models import Sft
from prep_assets.disk.written import write_json
from prep_assets.errors import TemplateError
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Draft
from prep_assets.templates.certify import Certificate, certify


def check_policy(workspace: Workspace) -> Certificate:
    """The certificate of the family's template.

    Raises:
        TemplateError: the template cannot support what the configuration asks of it; nothing has been read yet.
    """
    family = workspace.family(Sft)
    certificate = certify(workspace.template(family))
    faults = certificate.faults(train_on_eos=family.train_on_eos, train_headers=family.train_headers)
    if family.expand == "turns" and not workspace.template(family).shows_thinking:
        faults.append(f"expand: turns is about reasoning, and template {certificate.template} writes none; leave it out")
    if faults:
        raise TemplateError("; ".join(faults))
    return certificate


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    family = workspace.family(Sft)
    return {"tokenizer": tokenizer_recipe(workspace, family), "template": workspace.template(family).hash}


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write down what the family's chat template does with conversations."""
    family = workspace.family(Sft)
    certificate = certify(workspace.template(family), workspace.vocabulary(family)).as_dict()
    write_json(payload / "certificate.json", certificate, indent=1, ensure_ascii=False)
    return Draft({}, {}, ())


def _policy(store: Store) -> Verdict:
    certificate = check_policy(store.workspace)
    return Verdict(True, f"masks are provable by {', '.join(certificate.proofs)}; turns end with {certificate.stop_token!r}", {})


ASSET = Asset(
    name="sft_template",
    family="sft",
    description="Certificate of the chat template: what it makes of system prompts, reasoning and tools, and how masks are proven.",
    version=VERSION,
    depends=_depends,
    write=_write,
    options=(*TEMPLATE, *IMAGES),
    checks=(INTEGRITY, Check("policy_supported", "The chat template supports the mask policy that the configuration asks for.", _policy)),
    kind="json",
)
