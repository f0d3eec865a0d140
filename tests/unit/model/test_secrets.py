import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.secrets import _RULES, HIDDEN, hide, redact, redacted, without_login

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
        f"https://me:pa@{SECRET}@example.org/simple",
        f"https://me:pa/{SECRET}@example.org/simple",
        f"https://me:pa#{SECRET}?@example.org/simple",
        f"MYSQL_PWD={SECRET} mysql",
        f"SSHPASS={SECRET} sshpass -e ssh host",
        f"export DB_PASS='{SECRET}'",
        f"AUTHORIZATION_HEADER={SECRET}",
        f"JWT={SECRET}",
        f"eyJ{SECRET}.eyJ{SECRET}.{SECRET}",
        f"hf_{SECRET}",
        f"AccountKey={SECRET};EndpointSuffix=core.windows.net",
    ],
)
def test_a_secret_does_not_pass(line: str) -> None:
    assert SECRET not in redact(line)
    assert HIDDEN in redact(line)


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
        "https://host:8080/package@1.0 and https://host/a@b",
        "PWD=/home/me OLDPWD=/tmp",
        "12 passed, 1 pass: all of it",
    ],
)
def test_what_is_none_stays(line: str) -> None:
    assert redact(line) == line


@given(st.text(max_size=300))
def test_any_text_will_do(line: str) -> None:
    redact(line)


@given(
    name=st.sampled_from(["x-token", "SSHPASS", "DB_PAT", "apiKey", "Bearer", "authorization"]),
    before=st.sampled_from(["", "--", "https://", "?", "-----BEGIN RSA PRIVATE KEY-----", "AKIA"]),
    between=st.sampled_from([" ", "=", ": ", "@", "_"]),
    value=st.from_regex(r"[A-Za-z0-9_-]{3,70}", fullmatch=True),
)
def test_no_rule_is_left_out_that_applies(name: str, before: str, between: str, value: str) -> None:
    """Rules are tried only on texts that have certain parts."""
    line = expected = f"{before}{name}{between}{value}"
    for _, rule, replacement in _RULES:
        expected = re.sub(rule, replacement, expected)
    assert redact(line) == expected


NAMES = [
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "PASSWORD",
    "PIP_PASSWD",
    "API_KEY",
    "OPENAI_APIKEY",
    "MYSQL_PWD",
    "SSHPASS",
    "DB_PASS",
    "PGPASSWORD",
    "AUTHORIZATION_HEADER",
    "AUTHORIZATION",
    "JWT",
    "MY_JWT",
    "SESSION_COOKIE",
    "AZURE_DEVOPS_EXT_PAT",
    "SSH_PRIVATE_KEY",
    "SSH_AUTH_SOCK",
    "GPG_PASSPHRASE",
]


@pytest.mark.parametrize("name", NAMES)
def test_secrets_are_hidden_by_their_name(name: str) -> None:
    assert redacted({name: "x", name.lower(): "x"}) == {name: HIDDEN, name.lower(): HIDDEN}


@pytest.mark.parametrize(
    "name", ["KEYBOARD", "PATH", "AUTHOR", "MONKEY", "CFLAGS", "PWD", "OLDPWD", "PASSES", "PATTERN"]
)
def test_others_are_not(name: str) -> None:
    assert redacted({name: "x"}) == {name: "x"}


@given(st.from_regex(r"[a-z0-9]{1,9}:[a-zA-Z0-9%@#]{4,12}", fullmatch=True), st.text(max_size=20))
def test_logins_in_addresses_are_hidden(login: str, before: str) -> None:
    (value,) = redacted({"INDEX": f"{before} https://{login}@example.org/simple"}).values()
    assert login not in value
    assert value.endswith(f"https://{HIDDEN}@example.org/simple")


def test_a_long_path_is_no_key() -> None:
    path = "/opt/vendor/toolkits/cuda/releases/thirteen/point/zero/linux/aarch64/root"
    assert hide("CUDA_HOME", path) == path


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://me:pa@ss@host/a@b", "https://host/a@b"),
        ("https://token@host", "https://host"),
        ("https://host/a", "https://host/a"),
        ("ssh://git:pw@host/a", "ssh://git@host/a"),
        ("git+ssh://git@host/a", "git+ssh://git@host/a"),
        ("git@host:a", "git@host:a"),
        ("/a/b", "/a/b"),
        ("", ""),
    ],
)
def test_urls_without_their_login(url: str, clean: str) -> None:
    assert without_login(url) == clean
