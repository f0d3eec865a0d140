import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.secrets import redact

SECRET = "Zq8Xv7Lm2Np4Rt6Wy9Bc"


@pytest.mark.parametrize(
    "line",
    [
        f"Looking in indexes: https://user:{SECRET}@packages.example.org/simple",
        f"git clone https://{SECRET}@example.org/a/b.git",
        f"git clone https://x-access-token:ghp_{SECRET}@example.org/a/b.git",
        f"export HF_TOKEN={SECRET}",
        f'"password": "{SECRET}"',
        f"aws_secret_access_key = {SECRET}{SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"curl -H 'Authorization: token {SECRET}' https://example.org",
        f"--build-arg PIP_PASSWORD={SECRET}",
        f"twine upload --password {SECRET} dist/*",
        f"GET https://example.org/a?X-Amz-Signature={SECRET}&x=1",
        f"remote: ghp_{SECRET}",
        f"glpat-{SECRET} was revoked",
        f"MY_API_KEY: {SECRET}",
        "-----BEGIN OPENSSH PRIVATE KEY-----" + SECRET,
        SECRET * 4,
    ],
)
def test_a_secret_does_not_pass(line: str) -> None:
    assert SECRET not in redact(line)
    assert "[hidden]" in redact(line)


def test_the_id_of_a_key_is_one() -> None:
    assert "AKIA" not in redact("aws: AKIAIOSFODNN7EXAMPLE is not valid")


@pytest.mark.parametrize(
    "line",
    [
        'a.cpp:3:4: error: missing binary operator before token "("',
        "tokenizers==0.15.0 is required",
        "git@github.com:owner/repository.git",
        "nvcc fatal   : Unsupported gpu architecture 'compute_30'",
        "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs",
        "ERROR: https://github.com/pytorch/pytorch/issues/1 has more",
    ],
)
def test_what_is_none_stays(line: str) -> None:
    assert redact(line) == line


@given(st.text(max_size=300))
def test_any_text_will_do(line: str) -> None:
    redact(line)
