"""Replaces tokens, passwords and keys in text that is shown or stored, rather too many than too
few. This is the only module that defines what a secret looks like.
"""

import re
from collections.abc import Mapping

HIDDEN = "***"
# Names of variables with secret values; PWD and OLDPWD are folders.
_SECRET = (
    r"(?i)TOKEN|SECRET|PASSW|PASSPHRASE|PASS(?![A-Z])|CREDENTIAL|PRIVATE|APIKEY|JWT|AUTHORIZATION|COOKIE"
    r"|(?<![A-Z])(?:KEY|AUTH|PAT)(?![A-Z])|(?<=_)PWD(?![A-Z])"
)
_NAME = (
    r"(?:[\w.-]{0,40}(?i:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|private[_-]?key|credentials?)s?(?:[_.-][\w.-]{0,20})?"
    r"|[A-Z0-9_]{0,40}(?:_PASS|SSHPASS|_PWD|JWT|AUTHORIZATION|_PAT)(?:_[A-Z0-9_]{0,20})?)"
)

_NAMES = (
    *("token", "secret", "passw", "passphrase", "key", "credential"),
    *("_pass", "sshpass", "_pwd", "jwt", "authorization", "_pat"),
)

# Each with parts of which a text must have one, in lower case, for the rule to apply: most texts
# have none, and rules are compiled at first use, by re itself.
_RULES = (
    # user:password@ and token@ in addresses, up to the last @ of the host's part; a password may
    # hold a slash, but what stands behind a port is a path
    (("://",), r"(?<!ssh://)(?<=://)[^\s/'\"]{1,300}@", HIDDEN + "@"),
    (("://",), r"(?<=://)[^\s/@:'\"]{1,100}:(?!\d{1,5}/)[^\s@'\"]{1,300}@", HIDDEN + "@"),
    (
        ("authorization",),
        (
            r"(?i)\b(authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:basic|bearer|token)?\s{0,3})[^\s'\",]{4,}"
        ),
        rf"\1{HIDDEN}",
    ),
    (("bearer",), r"(?i)\b(bearer\s{1,3})[\w.~+/=-]{8,}", rf"\1{HIDDEN}"),
    # NAME_TOKEN=value, "password": "value", --api-key value
    (
        _NAMES,
        (rf"(\b{_NAME}['\"]?\s{{0,3}}[=:]\s{{0,3}}['\"]?)(?!//)[^\s'\",;&]{{3,}}"),
        rf"\1{HIDDEN}",
    ),
    (_NAMES, rf"(--{_NAME}\s{{1,3}})(?!-)[^\s'\"]{{3,}}", rf"\1{HIDDEN}"),
    (
        ("akia", "asia", "abia", "acca"),
        r"(?<![A-Za-z0-9/+])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        HIDDEN,
    ),
    (
        ("gh", "glpat-", "hf_", "sk-", "xox", "pypi-", "npm_", "dckr_pat_", "aiza", "eyj"),
        (
            r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}"
            r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{8,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|dckr_pat_[\w-]{8,}"
            r"|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
        ),
        HIDDEN,
    ),
    ((), r"^\s*[A-Za-z0-9+/]{60,}={0,2}$", HIDDEN),  # a line of a key or certificate
    (("-----begin ",), r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,4096}", HIDDEN),
    # the signatures of signed addresses
    (
        ("?", "&"),
        (r"(?i)([?&](?:x-amz-[\w-]{1,40}|sig|signature|key|auth)=)[^\s&'\"]{4,}"),
        rf"\1{HIDDEN}",
    ),
)
_SHORTEST_WITHOUT_PARTS = 60  # characters


def redact(text: str) -> str:
    """Return a text with the secrets in it replaced."""
    lower = text.lower() if text.isascii() else None  # other letters may count as equal in re
    for parts, rule, replacement in _RULES:
        if lower is None or _may_apply(parts, lower):
            text = re.sub(rule, replacement, text)
    return text


def _may_apply(parts: tuple[str, ...], lower: str) -> bool:
    """Return whether a rule may apply. What other rules hide adds none of the parts."""
    if not parts:
        return len(lower) >= _SHORTEST_WITHOUT_PARTS
    return any(part in lower for part in parts)


def is_secret(name: str) -> bool:
    """Return whether the name of a variable or option says that its value is secret."""
    return bool(re.search(_SECRET, name))


def hide(name: str, value: str) -> str:
    """Return the value of a variable or option in a form that may be stored."""
    if is_secret(name):
        return HIDDEN
    shown = redact(value)
    return value if shown == HIDDEN and value.startswith("/") else shown  # a long path is not a key


def hide_in_word(word: str) -> str:
    """Return a word of a command line, such as -DNAME=VALUE, in a form that may be stored."""
    name, equals, value = word.partition("=")
    return f"{name}={hide(name.removeprefix('-D'), value)}" if equals else redact(word)


def redacted(values: Mapping[str, str]) -> dict[str, str]:
    """Return variables by name, with secret values replaced."""
    return {name: hide(name, value) for name, value in sorted(values.items())}


def without_login(url: str) -> str:
    """Return a URL without its password, still usable; the user name of ssh is not a secret."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    if not separator:
        return url
    user = f"{login.partition(':')[0]}@" if login and scheme.endswith("ssh") else ""
    return redact(f"{scheme}://{user}{host}{slash}{path}")
