"""Takes private text out of what leaves the machine, and counts it. Numbers and model names stay.

It errs on the side of removing: what looks like a secret goes, unless it is a name that the trace knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ampscope.report import credentials

_GENERIC_TEXT = """
root user users ubuntu admin test guest nobody jovyan docker runner build work home app dev localhost gpu
cpu cuda node host train training model models data norm linear loss scale scaler adam adamw sgd grad
gradient step steps weight weights bias layer layers block blocks head attention conv embedding encoder
decoder float half torch python ampscope forward backward optimizer update batch tensor module main none
true false inf nan and the
"""
_GENERIC = frozenset(_GENERIC_TEXT.split())
"""Words that as a user or host name identify nobody, and whose removal would spoil the report."""

_SEGMENT = r"[^\s/\\'\"`<>|:;,*?()\[\]{}=]+"
_POSIX = re.compile(rf"(?<![\w./~\\<>*+\-)\]}}|])/{_SEGMENT}(?:/{_SEGMENT})*/?")
_WINDOWS = re.compile(rf"(?<![\w])[A-Za-z]:[\\/]{_SEGMENT}(?:[\\/]{_SEGMENT})*")
_UNC = re.compile(rf"\\\\{_SEGMENT}(?:\\{_SEGMENT})+")
_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,15})://([^\s'\"`<>|)\]}]+)", re.IGNORECASE)
_MAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(?![\w-])")
_AT_HOST = re.compile(
    r"(?<![\w.+-])[A-Za-z_][A-Za-z0-9_.-]*@[A-Za-z][A-Za-z0-9.-]*[A-Za-z0-9](?=[\s:/,;)'\"]|$)"
)
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){5,7}[0-9a-fA-F]{1,4}(?![\w:.])")
_LINE = re.compile(r"(.*?)((?::\d+)*)", re.DOTALL)
_LIBRARY = re.compile(r"^(?:.*[\\/](?:site|dist)-packages|.*?[\\/]lib[\\/]python3\.\d+)[\\/]")
_PUBLIC = (
    "pytorch.org",
    "github.com",
    "arxiv.org",
    "docs.nvidia.com",
    "developer.nvidia.com",
    "huggingface.co",
)
_LOCAL = ("127.0.0.1", "0.0.0.0", "255.255.255.255")
_SHARED = ("/home", "/users", "/usr", "/etc", "/opt", "/var", "/lib", "c:")
"""As a working directory these would turn foreign paths into relative ones."""

_SYSTEM = ("/dev/", "/proc/", "/sys/")


@dataclass(frozen=True)
class Removed:
    """How often one kind of private text was taken out, and how many different ones there were."""

    kind: str
    places: int
    distinct: int


@dataclass
class Redactor:
    """Replaces private text by placeholders such as `<user>` and remembers what it did.

    Paths below `roots`, the directories of the run, become relative, and `home` becomes `~`. `users` and `hosts`
    are names to take out wherever they stand as a word; `keep` names of modules, tensors and ops that stay as they
    are. With `enabled` False nothing changes.
    """

    roots: Iterable[str] = ()
    home: str | None = None
    users: Iterable[str] = ()
    hosts: Iterable[str] = ()
    keep: Collection[str] = ()
    enabled: bool = True
    _seen: dict[str, dict[str, int]] = field(default_factory=dict, init=False, repr=False)
    _users: re.Pattern[str] | None = field(default=None, init=False, repr=False)
    _hosts: re.Pattern[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.keep = frozenset(self.keep)
        self.users, self.hosts = tuple(self.users), tuple(self.hosts)
        self.roots = tuple(sorted(set(self.roots), key=lambda root: (-len(root), root)))
        names = {name.lower() for name in self.keep}
        self._users = _words(self.users, names)
        self._hosts = _words([h for full in self.hosts for h in (full, full.split(".")[0])], names)

    @property
    def removed(self) -> tuple[Removed, ...]:
        """What was taken out so far, most frequent first."""
        rows = [Removed(k, sum(v.values()), len(v)) for k, v in self._seen.items()]
        return tuple(sorted(rows, key=lambda r: (-r.places, r.kind)))

    def text(self, text: str) -> str:
        """A sentence, message, SQL or traceback."""
        if not self.enabled or not text or text in self.keep:
            return text
        text = self._roots(self._sub(_URL, text, self._url))
        text = credentials.replace(text, self._secret, self.keep)
        text = self._sub(_MAIL, text, lambda m: self._note("e-mail address", m[0], "<email>"))
        for pattern in (_UNC, _WINDOWS, _POSIX):
            text = self._sub(pattern, text, lambda m: self._path(m[0]))
        text = self._sub(_AT_HOST, text, self._at_host)
        if self._hosts:
            text = self._hosts.sub(lambda m: self._word("host name", m, "<host>"), text)
        if self._users:
            text = self._users.sub(lambda m: self._word("user name", m, "<user>"), text)
        text = self._sub(_IPV4, text, self._ipv4)
        return self._sub(_IPV6, text, lambda m: self._note("IP address", m[0], "<ip>"))

    def path(self, path: str) -> str:
        """A file or directory name that is the whole string."""
        if not self.enabled or not path or path in self.keep:
            return path
        path = self._roots(path)
        absolute = path.startswith(("/", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", path)
        if not absolute:
            return self.text(path)
        bare, line = _LINE.fullmatch(path).groups()  # type: ignore[union-attr]
        return self.text(f"{self._path(bare)}{line}")

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Command-line words: the value after `--api-key`, in `--api-key=X` and in `KEY=X` goes too."""
        if not self.enabled:
            return tuple(argv)
        out: list[str] = []
        secret_next = False
        for word in argv:
            if secret_next and not word.startswith("--"):
                out.append(self._secret(word))
                secret_next = False
                continue
            out.append(self.text(word))
            secret_next = word.startswith("-") and "=" not in word and credentials.is_secret_name(word)
        return tuple(out)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables by name: only plain values of numerics and threading switches stay."""
        if not self.enabled:
            return dict(variables)
        return {
            name: value
            if credentials.is_public_switch(name, value)
            else self._note("environment value", f"{name}={value}", "<value>")
            for name, value in variables.items()
        }

    def _note(self, kind: str, original: str, replacement: str) -> str:
        places = self._seen.setdefault(kind, {})
        places[original] = places.get(original, 0) + 1
        return replacement

    def _sub(self, pattern: re.Pattern[str], text: str, make: Callable[[re.Match[str]], str]) -> str:
        return pattern.sub(lambda m: m[0] if m[0] in self.keep else make(m), text)

    def _secret(self, value: str) -> str:
        if value in self.keep or value.startswith("<"):
            return value
        return self._note("secret", value, "<secret>")

    def _word(self, kind: str, match: re.Match[str], replacement: str) -> str:
        return self._note(kind, match[0].lower(), replacement)

    def _url(self, match: re.Match[str]) -> str:
        host = match[2].split("/")[0].rsplit("@", 1)[-1].split(":")[0].lower()
        public = any(host == p or host.endswith("." + p) for p in _PUBLIC)
        if public and "@" not in match[2] and "?" not in match[2]:
            return match[0]
        if host in ("localhost", *_LOCAL) and "@" not in match[2]:
            return f"{match[1]}://{match[2].split('/')[0]}"
        return self._note("URL", match[0], f"<{match[1].lower()}-url>")

    def _at_host(self, match: re.Match[str]) -> str:
        user, host = match[0].split("@", 1)
        known = user in self.users or host in self.hosts or match.string[match.end() :][:1] == ":"
        return self._note("user name", match[0], "<user>@<host>") if known else match[0]

    def _ipv4(self, match: re.Match[str]) -> str:
        octets = [int(part) for part in match[0].split(".")]
        if match[0] in _LOCAL or max(octets) > 255:
            return match[0]
        return self._note("IP address", match[0], "<ip>")

    def _roots(self, text: str) -> str:
        """Known directories first: they may hold blanks, which end a path of unknown shape."""
        known = [(root, ".", "absolute path") for root in self.roots]
        for root, shown, kind in (*known, (self.home or "", "~", "home path")):
            bare = root.rstrip("/\\")
            if not bare or bare.lower() in _SHARED:
                continue
            pattern = re.compile(
                rf"(?<![\w.~/\\-]){re.escape(bare)}(?:(?P<more>[/\\])(?=[^\s/\\'\"])|(?![\w-]|\.\w))"
            )
            text = pattern.sub(partial(self._root, shown, kind), text)
        return text

    def _root(self, shown: str, kind: str, match: re.Match[str]) -> str:
        self._note(kind, match[0], "")
        if not match["more"]:
            return shown
        return "" if shown == "." else f"{shown}/"

    def _path(self, path: str) -> str:
        if path.startswith(_SYSTEM):
            return path
        library = _LIBRARY.match(path)
        if library:
            return self._note("absolute path", path, f"<python>/{path[library.end() :]}")
        home = re.match(r"(?:/home|/Users|[A-Za-z]:[\\/]Users)[\\/][^\\/]+|/root(?=/|$)", path)
        if home:
            rest = path[home.end() :].replace("\\", "/")
            return self._note("home path", path, f"~{rest}")
        parts = [part for part in re.split(r"[\\/]", path) if part]
        if len(parts) < 2 and not path.startswith("\\\\"):
            return path
        return self._note("absolute path", path, f"<path>/{parts[-1]}")


def _words(names: Iterable[str], kept: Collection[str]) -> re.Pattern[str] | None:
    """One pattern for names that identify somebody: not generic, and not the name of a part of the model."""
    wanted = {n for n in names if len(n) >= 3 and n.lower() not in _GENERIC and n.lower() not in kept}
    if not wanted:
        return None
    longest_first = "|".join(re.escape(n) for n in sorted(wanted, key=lambda n: (-len(n), n)))
    return re.compile(rf"(?<![\w.-])(?:{longest_first})(?!\.?\w|-)", re.IGNORECASE)
