"""What commands say, in one table: of a sound workspace, of one with a fault, and of one without a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prep_assets.graph.graph import CHECKS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Result
from prep_assets_tests.cli.conftest import CONFIGS, Run


def edited(family: str, old: str, new: str) -> Callable[[Workspace], None]:
    """Another configuration; without `old`, with something added."""

    def edit(workspace: Workspace) -> None:
        path = workspace.configs / f"{family}.yaml"
        path.write_text(path.read_text("utf-8").replace(old, new) if old else path.read_text("utf-8") + new, "utf-8")

    return edit


def without_quarantine(workspace: Workspace) -> None:
    directory = (workspace.stores / "sft_tokens" / "chats" / "current").resolve()
    directory.with_name(f"{directory.name}.quarantine.jsonl").unlink()


def cut_short(workspace: Workspace) -> None:
    payload = (workspace.stores / "sft_packed" / "current").resolve() / "sft_packed.h5"
    payload.write_bytes(payload.read_bytes()[:100])


def altered(workspace: Workspace) -> None:
    payload = (workspace.stores / "sft_packed" / "current").resolve() / "sft_packed.h5"
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.write_bytes(content)


def failed(workspace: Workspace) -> None:
    store = workspace.built("sft_packed")
    workspace.place("sft_packed").record(store, {"mask_alignment": Result(False, "row 7 trains the prompt")})


def without_chats(workspace: Workspace) -> None:
    (workspace.stores / "sft_tokens" / "chats" / "current").unlink()


FAULTS: Mapping[str, Callable[[Workspace], None]] = {
    "no store": lambda workspace: shutil.rmtree(workspace.stores),
    "no chats": without_chats,
    "shorter rows": edited("sft", "row_len: 256", "row_len: 128"),
    "no configuration": lambda workspace: (workspace.configs / "sft.yaml").write_text("domains: {}", "utf-8"),
    "mistyped key": lambda workspace: (workspace.configs / "sft.yaml").write_text("tokeniser: x\n", "utf-8"),
    "mistyped export": edited("sft", "", "exports: {trl: {from: sft_packed, to: hf_arow}}\n"),
    "quarantine gone": without_quarantine,
    "file cut short": cut_short,
    "file altered": altered,
    "failed check": failed,
}
SHOWING = ("path", "inspect", "verify", "stats", "quarantine")
CHATS, TOKENIZER = CONFIGS / "samples" / "chats.jsonl", CONFIGS / "tokenizer"
DOCTOR = f"doctor --dataset {CHATS} --tokenizer {TOKENIZER} -n 20 --trainer"
OUT = "-o {stores}/../out"
WRONG = (
    *((f"{command} sft_pakced", "no asset 'sft_pakced'; did you mean 'sft_packed'?") for command in SHOWING),
    *((f"{each} sft_tokens -p doly", "no partition 'doly'; did you mean 'dolly'? There are: dolly, chats") for each in SHOWING),
    ("path sft_packed -p dolly", "sft_packed has no partitions"),
    ("path sft_tokens", "--partition: dolly, chats"),
    ("path sft_packed --draft", "sft_packed has no draft"),
    ("verify -p dolly", "of which asset"),
    ("prune -p dolly", "of which asset"),
    ("inspect sft_packed --row 99999", "row 99,999 of sft_packed: there are"),
    ("inspect preference_tokens --stream chose", "no stream 'chose'; did you mean 'chosen'? There are: chosen, rejected"),
    ("inspect sft_packed --stream zzz", "no stream 'zzz'. There are: sft_packed"),
    ("inspect rl_groups", "no domain of rl.yaml has a schema that gives a Group"),
    ("quarantine sft_tokens --reason to_long", "did you mean 'too_long'? Reasons: tokenize/too_long"),
    ("build", "No assets given"),
    ("build sft_packed --all", "--all builds every asset"),
    ("build sft_paked", "did you mean 'sft_packed'?"),
    ("build sft_packed -p dolly", "sft_packed has no partitions"),
    ("build sft_packed --exit-code", "--exit-code needs --dry-run"),
    ("build sft_packed --review --publish", "leave out one of them"),
    ("build sft_packed --set row_len", "needs the form KEY=VALUE"),
    ("build sft_packed --set packing.row_length=5", "did you mean 'row_len'?"),
    ("build sft_packed --set template=chatml", "it is an option of sft_template, sft_tokens"),
    ("build sft_packed rl_tokens --set engine=reference", "--set is for assets of one family"),
    ("schemas alpacca", "no schema 'alpacca'; did you mean 'alpaca'? Known: "),
    ("sniff {stores}/gone.jsonl", "gone.jsonl"),
    ("dataset-info {stores}/none.json", "no file"),
    (f"{DOCTOR} axolotel", "did you mean 'axolotl'"),
    ("launch-snippet --trainer axolotel", "did you mean 'axolotl'"),
    ("launch-snippet --trainer verl sft_packed", "verl takes JSONL, not packed table"),
    ("json-schema stf", "no family 'stf'; did you mean 'sft'?"),
    (f"export sft_paked -t mds {OUT}", "no asset 'sft_paked'; did you mean 'sft_packed'"),
    (f"export sft_packed -t mdss {OUT}", "no export format 'mdss'; did you mean 'mds'"),
    (f"export sft_packed -t mds -s dev {OUT}", "sft_packed has no stream 'dev'. It has: sft_packed, sft_dev_packed"),
    (f"export sft_packed -t mds --option size=1 {OUT}", "no option 'size'"),
    (f"export sft_packed -t mds --option size_limt=1 {OUT}", "no option 'size_limt'; did you mean 'size_limit'"),
    (f"export sft_packed -t mds --option size_limit {OUT}", "needs the form KEY=VALUE"),
    (f"export sft_packed -t mds --option size_limit=big {OUT}", "--option size_limit=big: "),
    (f"export sft_packed -t hf_arrow --option split=a --option split=b {OUT}", "given twice"),
    (f"export sft_raw -p chats -t mds {OUT}", "no asset 'sft_raw' that can be exported"),
    (f"export sft_tokens -t mds {OUT}", "Say which with --partition: dolly, chats"),
    (f"export sft_tokens -p chats -t megatron {OUT}", "would lose the loss mask of sft_tokens"),
    (f"export pretrain_tokens -t litdata {OUT}", "needs the option 'block_size'"),
    (f"export rl_prompts -t verl {OUT}", "data_source is needed"),
    (f"export sft_packed -t packed_parquet --option rows_per_file=0 {OUT}", "--option rows_per_file=0: Input should be greater than"),
    (f"export sft_packed -t megatron --option name=../../escape {OUT}", "--option name=../../escape: must be the name of a file"),
)
FAULTY = (
    ("no store", f"export sft_packed -t mds {OUT}", "\n  prep-assets build sft_packed\n"),
    ("no store", "verify", "there is no store in"),
    ("no store", "verify", "prep-assets build sft_packed"),
    ("no store", "verify sft_tokens -p dolly", "there is no store of sft_tokens[dolly]"),
    ("no store", "verify sft_tokens -p dolly", "prep-assets build sft_tokens --partition dolly"),
    ("no store", "path sft_tokens -p dolly", "\n  prep-assets build sft_tokens --partition dolly\n"),
    ("no store", "stats sft_tokens --json", "prep-assets build sft_tokens --partition dolly"),
    ("mistyped key", "path sft_tokens -p dolly", "tokeniser: unknown key; did you mean 'tokenizer'?"),
    ("quarantine gone", "quarantine sft_tokens -p chats", "is gone"),
    ("file cut short", "inspect sft_packed", "truncated file"),
    ("file cut short", "inspect sft_packed", "prep-assets verify sft_packed"),
    ("file cut short", f"export sft_packed -t mds {OUT}", "sft_packed.h5: "),
    ("file altered", f"export sft_packed -t mds {OUT}", "sft_packed.h5: content altered"),
    ("failed check", "path sft_packed", "mask_alignment: row 7 trains the prompt"),
)
SAID = (
    ("", "path sft_packed", 0, "={stores}/sft_packed/current\n"),
    ("", "path sft_tokens --partition chats", 0, "={stores}/sft_tokens/chats/current\n"),
    ("", "path rl_raw", 0, "={stores}/rl_raw/gsm8k/current\n"),
    ("failed check", "path sft_packed --even-if-failed", 0, "={stores}/sft_packed/current\n"),
    ("shorter rows", "path sft_packed", 0, "={stores}/sft_packed/current\n"),
    ("", "build sft_packed", 0, "=✓ sft_packed is up to date: nothing to do\n"),
    ("no store", "build sft_packed --dry-run", 0, "5 stores would be built"),
    ("no store", "build sft_packed --dry-run", 0, "no store yet"),
    ("", "verify sft_tokens -p chats", 0, f"all {len(CHECKS['sft_tokens'])} checks of 1 store passed"),
    ("", "verify sft_tokens -p chats", 0, "!dolly"),
    ("no chats", "verify sft_tokens", 0, "not built, so not checked: sft_tokens[chats]"),
    ("", "quarantine sft_packed", 0, "=sft_packed: no record was refused here; what feeds it: prep-assets quarantine sft_tokens\n"),
    ("mistyped export", "status", 1, "exports.trl.to: no export format 'hf_arow'; did you mean 'hf_arrow'"),
    ("no configuration", "status", 1, "sft.yaml"),
    ("no configuration", "status", 1, "!any more"),
    ("no configuration", "status", 1, "rl_tokens"),
    ("", f"{DOCTOR} torchtune", 1, "the trainer itself is not run"),
    ("", f"{DOCTOR} torchtune", 1, "the header of an answer is trained"),
    ("", f"{DOCTOR} torchtune", 1, "⟪+<|im_start|>assistant"),
    ("", f"{DOCTOR} torchtune", 1, "labels are equal on 0 of 20 rows"),
    ("", f"{DOCTOR} trl", 0, "labels are equal on 20 of 20 rows"),
    ("", f"{DOCTOR} trl --template chatml", 1, "labels are equal on 0 of 0 rows"),
)


@pytest.fixture
def workspace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The workspace that is built, or a copy of it with a fault."""
    monkeypatch.setattr("prep_assets.extensions.doctor.labels.trl_version", lambda: None)
    if not request.param:
        built: Workspace = request.getfixturevalue("built")
        return built
    mine: Workspace = request.getfixturevalue("mine")
    FAULTS[request.param](mine)
    return mine


@pytest.mark.parametrize(("workspace", "line", "said"), [*(("", *each) for each in WRONG), *FAULTY], indirect=["workspace"])
def test_what_is_wrong_is_one_message_and_leaves_nothing(workspace: Workspace, run: Run, tmp_path: Path, line: str, said: str) -> None:
    before = {path for path in workspace.stores.parent.rglob("*") if ".hashes" not in path.parts}
    result = run(*line.replace("{stores}", str(workspace.stores)).split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and said in result.stderr and "Traceback" not in result.stderr
    assert {path for path in workspace.stores.parent.rglob("*") if ".hashes" not in path.parts} == before


@pytest.mark.parametrize(("workspace", "line", "code", "said"), SAID, indirect=["workspace"])
def test_what_is_said(workspace: Workspace, run: Run, line: str, code: int, said: str) -> None:
    """A whole output begins with =, what is not in one with an exclamation mark."""
    result, expected = run(*line.split()), said.replace("{stores}", str(workspace.stores))
    assert result.exit_code == code, result.output
    if expected.startswith("="):
        assert result.stdout == expected[1:]
    else:
        assert (expected.removeprefix("!") in result.stdout) is not expected.startswith("!")


def test_notes_about_a_store_go_to_stderr(built: Workspace, mine: Workspace, run: Run) -> None:
    FAULTS["shorter rows"](mine)
    assert "changed: packing.row_len" in run("path", "sft_packed").stderr
    assert "no row could be compared" in run(*f"{DOCTOR} trl --template chatml".split()).stderr
