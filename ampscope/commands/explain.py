"""`ampscope explain`: prints the page of a rule."""

from __future__ import annotations

import argparse

from ampscope.errors import AmpscopeError


class Command:
    """Print the page of a diagnosis: what it means, how it is decided, what to do.

    CODE is a code such as AMP203, or its name (loss-scale-too-low). --all lists every diagnosis.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("code", metavar="CODE", nargs="?", help="code or name of a diagnosis")
        parser.add_argument("--all", action="store_true", help="list every diagnosis on one line each")

    def run(self, args: argparse.Namespace) -> int:
        if args.all:
            _print_list()
        elif args.code:
            _print_page(args.code)
        else:
            raise AmpscopeError("Name a diagnosis, as in `ampscope explain AMP203`; `--all` lists them.")
        return 0


def _print_list() -> None:
    from ampscope.diagnose.rule import all_rules

    for rule in all_rules():
        print(f"{rule.code}  {rule.severity:<8}  {rule.name}")


def _print_page(code: str) -> None:
    import sys

    from ampscope.diagnose.pages import page
    from ampscope.diagnose.rule import all_rules, find_rule

    rule = find_rule(code)
    if rule is None:
        from difflib import get_close_matches

        known = [text for r in all_rules() for text in (r.code, r.name)]
        close = get_close_matches(code.upper(), known, n=1) or get_close_matches(code.lower(), known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise AmpscopeError(f"There is no diagnosis {code!r}.{hint} `ampscope explain --all` lists them.")
    text = page(rule)
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(text, code_theme="ansi_dark"), width=min(100, console.width))
