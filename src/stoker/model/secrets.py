"""Takes tokens, passwords and keys out of text before anybody sees it: rather too much."""

import re

_HIDDEN = "[hidden]"
_NAME = (
    r"[\w.-]{0,40}(?i:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credentials?)s?(?:[_.-][\w.-]{0,20})?"
)

_RULES = (
    # user:password@ and token@ in addresses
    (re.compile(r"(?<=://)[^\s/@'\"]{1,300}@"), _HIDDEN + "@"),
    (
        re.compile(
            r"(?i)\b(authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:basic|bearer|token)?\s{0,3})[^\s'\",]{4,}"
        ),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,3})[\w.~+/=-]{8,}"), rf"\1{_HIDDEN}"),
    # NAME_TOKEN=value, "password": "value", --api-key value
    (
        re.compile(rf"(\b{_NAME}['\"]?\s{{0,3}}[=:]\s{{0,3}}['\"]?)(?!//)[^\s'\",;&]{{3,}}"),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(rf"(--{_NAME}\s{{1,3}})(?!-)[^\s'\"]{{3,}}"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?<![A-Za-z0-9/+])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"), _HIDDEN),
    (
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}"
            r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{8,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|dckr_pat_[\w-]{8,}"
            r"|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
        ),
        _HIDDEN,
    ),
    (re.compile(r"^\s*[A-Za-z0-9+/]{60,}={0,2}$"), _HIDDEN),  # a line of a key or certificate
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,4096}"), _HIDDEN),
    # the signatures of signed addresses
    (
        re.compile(r"(?i)([?&](?:x-amz-[\w-]{1,40}|sig|signature|key|auth)=)[^\s&'\"]{4,}"),
        rf"\1{_HIDDEN}",
    ),
)


def redact(text: str) -> str:
    for rule, replacement in _RULES:
        text = rule.sub(replacement, text)
    return text


def without_login(url: str) -> str:
    """A URL as it may be written down and used again; the user name of ssh is no secret."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    if not separator:
        return url
    user = f"{login.partition(':')[0]}@" if login and scheme.endswith("ssh") else ""
    return redact(f"{scheme}://{user}{host}{slash}{path}")
