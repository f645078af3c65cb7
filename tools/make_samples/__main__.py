"""``python -m make_samples FOLDER``: write the samples into FOLDER/samples and the tokenizer into FOLDER/tokenizer."""

from __future__ import annotations

import argparse
from pathlib import Path

from make_samples.samples import write_samples
from make_samples.tokenizer import write_tokenizer


def main() -> None:
    """Parse the command line and write both."""
    parser = argparse.ArgumentParser(
        prog="python -m make_samples", description="Write the sample data sets and train the sample tokenizer."
    )
    parser.add_argument("folder", type=Path, help="receives the folders samples and tokenizer, e.g. configs")
    folder = parser.parse_args().folder
    write_samples(folder / "samples")
    write_tokenizer(folder / "tokenizer", folder / "samples")
    for path in sorted([*(folder / "samples").iterdir(), *(folder / "tokenizer").iterdir()]):
        print(f"{path.stat().st_size:>9,} bytes  {path}")


if __name__ == "__main__":
    main()
