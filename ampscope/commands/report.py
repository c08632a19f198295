"""`ampscope report`: writes the report of a run to a file or to the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path

from ampscope.errors import AmpscopeError

SUFFIXES = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json", ".zip": "zip"}


class Command:
    """Write a report of a run for a ticket: Markdown, HTML, JSON or zip.

    RUN is the directory that `ampscope run` printed; without it the latest run below ampscope-runs/ is read.
    The suffix of FILE says the format. Without -o, Markdown and JSON go to the terminal.

    Private text is taken out unless you say --no-redact: home and absolute paths, user and host names, values
    of the environment, addresses, and secrets in command lines and messages. The report lists what was removed.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", help="a run directory (default: the latest)")
        parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write to FILE, replacing it")
        parser.add_argument(
            "--format",
            choices=("md", "html", "json", "zip"),
            help="default: from the suffix of FILE, else md",
        )
        parser.add_argument("--no-redact", action="store_true", help="leave private text in")

    def run(self, args: argparse.Namespace) -> int:
        import sys

        output: Path | None = args.output
        chosen = args.format or _format_of(output)
        if output is None and chosen in ("html", "zip"):
            raise AmpscopeError(f"A {chosen} report goes into a file: add `-o report.{chosen}`.")
        data = _report(args.run, chosen, redact=not args.no_redact)
        if output is None:
            sys.stdout.write(data.decode("utf-8"))
            return 0
        _write(output, data)
        print(f"[ampscope] wrote {output} ({_size(len(data))})", file=sys.stderr)
        return 0


def _format_of(output: Path | None) -> str:
    if output is None:
        return "md"
    known = SUFFIXES.get(output.suffix.lower())
    if known is None:
        raise AmpscopeError(
            f"{output} does not say which format to write: end it in .md, .html, .json or .zip, or add --format."
        )
    return known


def _report(run: str | None, chosen: str, redact: bool) -> bytes:
    from ampscope.diagnose.engine import diagnose
    from ampscope.diagnose.silence import read_silence
    from ampscope.report.write import make, to_bytes
    from ampscope.trace.reader import open_trace

    with open_trace(run) as trace:
        made = make(trace, diagnose(trace, read_silence(Path.cwd())), redact)
        return to_bytes(made, trace, chosen)


def _write(output: Path, data: bytes) -> None:
    from ampscope.trace.files import write_atomic

    if output.is_dir():
        raise AmpscopeError(f"{output} is a directory; name a file in it, such as {output / 'report.md'}.")
    try:
        if output.exists() and not output.is_file():
            # A device or a pipe, such as /dev/stdout, is written to and never replaced.
            output.write_bytes(data)
        else:
            # Replacing a link would leave what it points at as it was.
            write_atomic(output.resolve() if output.is_symlink() else output, data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise AmpscopeError(f"{output} could not be written ({reason}); choose another file.") from error


def _size(count: int) -> str:
    return f"{count} bytes" if count < 10_000 else f"{count / 1000:.0f} kB"
