"""What commands print: no control characters of names or texts, and ASCII where the stream has no UTF-8."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from prep_assets.cli import entry
from prep_assets.cli.main import app
from prep_assets_tests.graph.workspaces import TOKENIZER

STEERING = "\x1b[31m\x9b\u202e\x7f"
"""A colour, the control sequence introducer, right-to-left writing, and a deletion."""
NAME = f"na{STEERING}me.jsonl"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose source file has such a name, and whose rows have such texts; the last row is refused."""
    root = tmp_path_factory.mktemp("hostile")
    texts = [*(f"row {number} {STEERING} of text" for number in range(3)), 7]
    (root / NAME).write_text("".join(json.dumps({"text": text, "id": STEERING}, ensure_ascii=False) + "\n" for text in texts), "utf-8")
    (root / "configs").mkdir()
    options = {"tokenizer": TOKENIZER, "domains": {"a": {"files": ["../*.jsonl"], "schema": "text", "ignore": ["id"]}}}
    (root / "configs" / "pretrain.yaml").write_text(yaml.safe_dump(options), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        use(root, patch)
        assert CliRunner().invoke(app, ["build", "pretrain_tokens"]).exit_code == 0
    return root


def use(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PREP_ASSETS_CONFIG_DIR", str(root / "configs"))
    patch.setenv("PREP_ASSETS_STORE_DIR", str(root / "stores"))
    patch.delenv("PREP_ASSETS_TRACEBACK", raising=False)


def steering(text: str) -> set[str]:
    """The characters that could steer a terminal."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf")} - {"\n", "\t"}


COMMANDS = [
    "sniff FILE",
    "status",
    "inspect pretrain_tokens -p a",
    "stats pretrain_tokens -p a",
    "quarantine pretrain_tokens -p a",
    "trace pretrain_tokens -p a --row 0 --token 3",
    "trace pretrain_tokens -p a --row 0",
    "where RECORD",
    "verify pretrain_tokens -p a",
    "describe pretrain_tokens -p a --as card",
    "describe pretrain_tokens -p a --as croissant",
    "describe pretrain_tokens -p a",
    "quarantine pretrain_tokens -p a --json",
    "trace pretrain_tokens -p a --row 0 --json",
    "inspect pretrain_tokens -p a --json",
    "stats pretrain_tokens -p a --json",
    "sniff FILE --json",
    "build pretrain_tokens --dry-run --force",
    "diff pretrain_tokens -p a 0",
    "export pretrain_tokens -p a --to hf_parquet --out FILE",
    "build pretrain_tokens --set preprocessing.max_seq_len=" + STEERING,
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_could_steer_a_terminal(hostile: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    use(hostile, monkeypatch)
    words = [{"FILE": str(hostile / NAME), "RECORD": f"a#{NAME}:0"}.get(word, word) for word in command.split()]
    result = CliRunner().invoke(app, words)
    assert (result.output and result.exception is None) or isinstance(result.exception, SystemExit)
    assert steering(result.output) == set()


def test_json_keeps_the_characters(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(hostile, monkeypatch)
    result = CliRunner().invoke(app, ["quarantine", "pretrain_tokens", "-p", "a", "--json"])
    assert any(NAME in str(value) for value in _values(json.loads(result.stdout)))


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [inner for each in value.values() for inner in _values(each)]
    return [inner for each in value for inner in _values(each)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize(
    "command", ["--help", "build --help", "build pretrain_tokens --force", "inspect pretrain_tokens -p a", "status", "path nothing"]
)
def test_a_stream_without_utf_8_gets_signs_of_its_own(hostile: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, command: str) -> None:
    use(hostile, monkeypatch)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2)]
    monkeypatch.setattr(sys, "argv", ["prep-assets", *command.split()])
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)  # type: ignore[attr-defined]
    assert (ended.value.code or 0) == (1 if command == "path nothing" else 0), err
    assert "Traceback" not in err and (out + err).strip()
    if command.startswith("build p"):
        assert "+ pretrain_tokens[a]: built" in out + err
    if command.startswith("inspect"):
        assert "from a/na^[[31m<u+009b><u+202e><u+007f>me.jsonl:1" in out and "row 0" in out


def test_every_sign_of_the_output_has_its_own_in_ascii() -> None:
    """What has none is a backslash and digits, which nobody can read."""
    folder = Path(entry.__file__).parent
    printed = {char for path in folder.glob("*.py") for char in path.read_text("utf-8") if not char.isascii()}
    assert printed <= {*entry.MARKS}
    assert all(sign.isascii() for sign in entry.MARKS.values())


@pytest.mark.parametrize(
    "command",
    [
        *("status", "build pretrain_tokens", "verify pretrain_tokens -p a", "path pretrain_tokens -p a"),
        *("inspect pretrain_tokens -p a", "stats pretrain_tokens -p a", "quarantine pretrain_tokens -p a"),
        *("trace pretrain_tokens -p a --row 0", "where RECORD"),
    ],
)
def test_stores_that_can_only_be_read_are_looked_at_without_a_cache(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """As root may write everywhere, what would write below the stores fails here as on a file system that is mounted read-only."""
    root = shutil.copytree(hostile, tmp_path / "root", symlinks=True)
    use(root, monkeypatch)
    shutil.rmtree(root / "stores" / ".hashes")
    stores = str(root / "stores")

    def read_only(name: str) -> Any:
        write = getattr(Path, name)

        def refuse(path: Path, *words: Any, **options: Any) -> Any:
            mode = options.get("mode") or (words[0] if name == "open" and words else "r")
            if str(path).startswith(stores) and (name != "open" or set(str(mode)) & {*"wax+"}):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return write(path, *words, **options)

        return refuse

    for name in ("mkdir", "open", "write_text", "write_bytes", "replace", "rename", "unlink", "touch", "symlink_to"):
        monkeypatch.setattr(Path, name, read_only(name))
    result = CliRunner().invoke(app, [f"a#{NAME}:0" if word == "RECORD" else word for word in command.split()])
    assert result.exit_code == 0, (result.output, result.exception)
