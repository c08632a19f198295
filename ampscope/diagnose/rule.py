"""What a rule is: a pure function over `Signals` with a code, a name, a severity and the tables it needs.

Registers rules and finds their files; runs none of them (that is the engine's) and knows no threshold.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Severity, Where

if TYPE_CHECKING:
    from ampscope.diagnose.signals import Signals

Found = Iterator[Finding | Abstain]
Check = Callable[["Rule", "Signals"], Found]

ROOT, MECHANISM, SYMPTOM, OUTLOOK = 0, 1, 2, 3
"""How deep in the chain of cause and effect a diagnosis stands: what somebody wrote or chose; the arithmetic
that failed; what was seen of it; what would come next. Of two findings of one severity the deeper cause comes first."""


@dataclass(frozen=True)
class Rule:
    """One diagnosis of the catalogue.

    `needs` names tables of the trace that must hold rows: where one is empty the engine abstains for the
    rule. `explains` names the codes, and the kinds of general symptom (`symptoms.KINDS`), that follow from it
    in the same step; `later` those that can only follow from it in a later step, through the weights.
    """

    code: str
    name: str
    severity: Severity
    needs: tuple[str, ...]
    explains: tuple[str, ...]
    later: tuple[str, ...]
    depth: int
    check: Check

    @property
    def page(self) -> str:
        """The page that `ampscope explain` prints: the docstring of the rule's module, in Markdown."""
        return inspect.cleandoc(sys.modules[self.check.__module__].__doc__ or "")

    @property
    def summary(self) -> str:
        """First paragraph of the page, on one line."""
        return self.page.split("\n\n")[0].replace("\n", " ")

    def finding(
        self,
        where: Where,
        claim: str,
        recommendation: str,
        *,
        evidence: Iterable[Evidence | None] = (),
        severity: Severity | None = None,
        falsifier: str = "",
        change: Change | None = None,
        causes: tuple[str, ...] = (),
    ) -> Finding:
        """A finding of this rule; evidence that could not be measured (None) is left out."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            where=where,
            claim=claim,
            recommendation=recommendation,
            change=change or Change(),
            evidence=tuple(e for e in evidence if e is not None),
            falsifier=falsifier,
            causes=(*self.explains, *self.later, *causes),
        )


_RULES: dict[str, Rule] = {}


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    needs: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
    later: tuple[str, ...] = (),
    depth: int = ROOT,
) -> Callable[[Check], Rule]:
    """Decorator: turns `check(rule, signals)` into the `Rule` of that code.

    The function is a generator and gets its own `Rule` first, so that it can make findings with
    `rule.finding(...)`. It yields nothing when all is well, and one `Abstain` when it lacks its signal.
    """

    def register(check: Check) -> Rule:
        known = _RULES.get(code)
        if known is not None and known.check.__module__ != check.__module__:
            raise ValueError(f"{code} is defined twice: in {known.check.__module__} and {check.__module__}")
        # Families of codes are named as a whole, the rule's own among them: nothing explains itself.
        after = tuple(c for c in explains if c != code)
        much_later = tuple(c for c in later if c != code)
        made = _RULES[code] = Rule(code, name, severity, needs, after, much_later, depth, check)
        return made

    return register


def all_rules() -> tuple[Rule, ...]:
    """Every rule in `diagnose/rules`, by code. A new file there is found by its name, `ampNNN_….py`.

    A file that cannot be imported is held by a stand-in that fails when it is run, as the coverage then says.
    """
    package = import_module("ampscope.diagnose.rules")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("amp"):
            try:
                import_module(f"{package.__name__}.{module.name}")
            except Exception as error:
                from ampscope.diagnose.unloaded import stand_in

                missing = stand_in(module.name, error)
                _RULES[missing.code] = missing
    return tuple(_RULES[code] for code in sorted(_RULES))


def find_rule(code: str) -> Rule | None:
    """The rule of a code or a name, in any case; None when there is none."""
    wanted = code.strip().lower()
    return next((r for r in all_rules() if wanted in (r.code.lower(), r.name)), None)
