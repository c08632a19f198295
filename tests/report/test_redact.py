from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampscope.report.redact import Redactor, Removed

HOME, CWD, USER, HOST = "/home/alice", "/home/alice/my proj", "alice", "gpu-07.corp.example"
MODULES = (
    "decoder.layers.3.self_attn.in_proj_weight",
    "alice.norm",
    "blocks.0",
    "norm",
    "aten::mm",
    "secret_head.weight",
)


def make(enabled: bool = True) -> Redactor:
    return Redactor(roots=(CWD,), home=HOME, users=(USER,), hosts=(HOST,), keep=MODULES, enabled=enabled)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{CWD}/train.py:41", "train.py:41"),
        (f'File "{CWD}/a b/train.py", line 3', 'File "a b/train.py", line 3'),
        (f"in {CWD}.", "in .."),
        (f"{HOME}/data/x.bin", "~/data/x.bin"),
        ("/home/bob/data", "~/data"),
        ("/Users/carol/x.py and /root/y.py", "~/x.py and ~/y.py"),
        (r"C:\Users\dave\run\x.py", "~/run/x.py"),
        ("/usr/lib/python3.11/site-packages/torch/nn/functional.py", "<python>/torch/nn/functional.py"),
        ("/data/corp/imagenet/train.bin", "<path>/train.bin"),
        (r"\\server\share\x.bin", "<path>/x.bin"),
        ("/dev/shm/x /proc/self", "/dev/shm/x /proc/self"),
        ("alice on gpu-07 and GPU-07.corp.example", "<user> on <host> and <host>"),
        ("alice@gpu-07:/data/set/x", "<user>@<host>:<path>/x"),
        ("q@k^T / sqrt(d)", "q@k^T / sqrt(d)"),
        ("mail bob@corp.com now", "mail <email> now"),
        ("s3://bucket/x http://10.0.0.3:5000/?a=1", "<s3-url> <http-url>"),
        ("https://pytorch.org/docs/x.html", "https://pytorch.org/docs/x.html"),
        ("https://user:pw@github.com/x", "<https-url>"),
        ("tcp://127.0.0.1:29500", "tcp://127.0.0.1:29500"),
        ("from 10.1.2.3 to 127.0.0.1", "from <ip> to 127.0.0.1"),
        ("fe80:0:0:0:1:2:3:4", "<ip>"),
        ("steps/s, fp16/bf16, |Δw|/|w|, 3 / 4", "steps/s, fp16/bf16, |Δw|/|w|, 3 / 4"),
        ("malice and alice.norm", "malice and alice.norm"),
        ("SELECT x WHERE file = '/home/alice/my proj/train.py'", "SELECT x WHERE file = 'train.py'"),
    ],
)
def test_text(text: str, shown: str) -> None:
    redactor = make()
    assert redactor.text(text) == shown
    assert make(enabled=False).text(text) == text


@pytest.mark.parametrize("text", MODULES)
def test_names_of_the_model_stay(text: str) -> None:
    redactor = make()
    assert redactor.text(text) == text
    assert redactor.path(text) == text
    assert text in redactor.text(f"{text} returned inf in /home/alice/x.py")
    assert [r.kind for r in redactor.removed] == ["home path"]


def test_a_user_who_is_called_like_a_part_of_the_model_does_not_spoil_the_report() -> None:
    redactor = Redactor(users=("norm", "Linear", "al", "eve"), keep=("norm", "blocks.0.norm"))
    assert redactor.text("norm of Linear al eve") == "norm of Linear al <user>"


def test_paths_and_command_lines() -> None:
    redactor = make()
    assert redactor.path(f"{CWD}/sub dir/t.py") == "sub dir/t.py"
    assert redactor.path("train.py") == "train.py"
    assert redactor.argv(["python", f"{CWD}/t.py", "--token", "abc", "--lr", "3e-8", "--key=hunter2", "A_TOKEN=x"]) == (
        "python", "t.py", "--token", "<secret>", "--lr", "3e-8", "--key=hunter2", "A_TOKEN=<secret>",
    )  # fmt: skip
    assert redactor.argv(["--password", "--verbose"]) == ("--password", "--verbose")
    assert make(enabled=False).argv(["--token", "abc"]) == ("--token", "abc")


def test_environment_shows_switches_only() -> None:
    redactor = make()
    shown = redactor.environment({"OMP_NUM_THREADS": "1", "WANDB_API_KEY": "abc", "PATH": "/bin"})
    assert shown == {"OMP_NUM_THREADS": "1", "WANDB_API_KEY": "<value>", "PATH": "<value>"}


def test_what_was_removed_is_counted_by_kind() -> None:
    redactor = make()
    redactor.text("alice, alice and --token abc")
    redactor.text("alice with --token def in /home/alice")
    assert redactor.removed == (
        Removed("user name", 3, 1),
        Removed("secret", 2, 2),
        Removed("home path", 1, 1),
    )


WORDS = st.sampled_from(
    [f"{CWD}/train.py", HOME, "/data/a/b", "alice", "gpu-07", "--token abc", "KEY=x", "bob@corp.com", "10.0.0.7",
     "3e-8", "hf_AbCdEfGhIjKlMnOpQrStUvWx", "https://x.y/z", *MODULES, "loss", "(", ")", "'", '"', ",", ":", "=",
     "/", "\n", "é"]
)  # fmt: skip
SENTENCES = st.lists(WORDS, max_size=12).flatmap(
    lambda words: st.sampled_from(["", " ", "  "]).map(lambda gap: gap.join(words))
)


@given(SENTENCES)
def test_redaction_is_idempotent(text: str) -> None:
    once = make().text(text)
    again = make()
    assert again.text(once) == once


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_nothing_private_is_left(text: str) -> None:
    shown = make().text(text)
    for private in ("/home/", "hf_Ab", "corp.com", "10.0.0.7", "gpu-07", "/data/a"):
        assert private not in shown
    assert not re.search(r"\balice\b(?!\.norm)", shown)


@given(st.floats() | st.integers(), st.sampled_from(["the norm was {}.", "x={}", "({}, 1)", "lr: {}", "{}"]))
def test_numbers_stay(value: float, template: str) -> None:
    text = template.format(value)
    assert make().text(text) == text


@given(
    st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True), min_size=1, max_size=5).map(
        ".".join
    )
)
def test_module_names_stay_whole(name: str) -> None:
    redactor = Redactor(roots=(CWD,), home=HOME, users=(USER,), hosts=(HOST,), keep=(name,))
    assert redactor.text(name) == name
    assert redactor.path(name) == name
    assert name in redactor.text(f"module {name} overflowed")
