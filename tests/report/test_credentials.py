from __future__ import annotations

import pytest

from ampscope.report.credentials import is_public_switch, is_secret_name, replace


@pytest.mark.parametrize(
    "name",
    ["--api-key", "WANDB_API_KEY", "HF_TOKEN", "token", "--password", "dbPassword", "auth_token",
     "AWS_SECRET_ACCESS_KEY", "--hub-token", "client-secret", "sentry_dsn",
     "SLACK_WEBHOOK", "privateKey", "--wandb-key"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["--max_tokens", "pad_token", "eos-token", "num_tokens", "tokenizer", "--lr", "token_embedding.weight", "author",
     "--key-dim", "monkey", "keys", "n_heads", "--accumulate", "mask_token", "passes"],
)  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "hf_AbCdEfGhIjKlMnOpQrStUvWx",
        "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx",
        "ghp_0123456789abcdefABCDEF0123456789abcd",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdefABCDEF",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123456",
        "0123456789abcdef0123456789abcdef01234567",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "dGhpcyBpcyBhIHRlc3QgMTIzNDU2Nzg5MA3fQz9x==",
    ],
)
def test_shapes_of_secrets(text: str) -> None:
    assert replace(f"sent {text}, refused", lambda _: "X") == "sent X, refused"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--api-key abc --lr 3e-4", "--api-key X --lr 3e-4"),
        ("PASSWORD='a b' python x", "PASSWORD='X' python x"),
        ('{"token": "abc", "lr": 0.1}', '{"token": "X", "lr": 0.1}'),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer X"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----.", "X."),
        ("--token 5", "--token 5"),
        ("password=1234", "password=X"),
    ],
)
def test_secrets_by_their_name(text: str, shown: str) -> None:
    assert replace(text, lambda _: "X") == shown


@pytest.mark.parametrize(
    "text",
    [
        "transformer_encoder_layers_0_self_attention_in_proj_weight",
        "BertForSequenceClassificationWithPooling2DHead",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn",
        "12345678901234567890123456789012345",
        "1.2345678901234567e-308",
        "c10::complex_cast_kernel_cuda_implementation_2",
        "step 3: loss=2.31 scale=65536 tokens/s=12000",
    ],
)
def test_long_names_and_numbers_are_no_secrets(text: str) -> None:
    assert replace(text, lambda _: "X") == text


def test_a_value_of_a_kept_name_stays() -> None:
    assert (
        replace("secret_head.weight=3.4", lambda _: "X", {"secret_head.weight"}) == "secret_head.weight=3.4"
    )
    assert replace("secret_head.weight=3.4", lambda _: "X") == "secret_head.weight=X"


def test_switches_of_the_numerics_are_public() -> None:
    assert is_public_switch("OMP_NUM_THREADS", "8")
    assert is_public_switch("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,backend:native")
    assert not is_public_switch("TORCH_HOME", "/home/alice/.cache")
    assert not is_public_switch("WANDB_PROJECT", "secret")
    assert not is_public_switch("TORCH_API_KEY", "abc")
