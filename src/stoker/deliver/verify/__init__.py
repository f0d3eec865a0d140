"""Is a wheel what it claims to be, and what was asked for? Facts held against expectations.

``checks.examine`` judges a ``Case`` and is pure; ``sampling`` reads machine code for it; ``trial``
installs the wheel and uses it.
"""
