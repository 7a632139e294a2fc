"""Personal data in a text: what is redacted, and what should have been."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

REDACTED = re.compile(r"\bNAME_\d+\b|<PRESIDIO_ANONYMIZED_\w+>")
"""What LMSYS-Chat-1M and WildChat write in the place of a name."""


def pii(text: str) -> str | None:
    """The kind of personal data in a text, None if none is seen.

    "We filter out samples with personal identifiable information" (appendix G). The paper does not
    say how, and its code only skips what the publishers marked as redacted: the patterns are ours.
    They do not see names and postal addresses.
    """
    return next((kind for kind, (pattern, check) in PII.items()
                 if any(check(match.group()) for match in pattern.finditer(text))), None)


def _luhn(number: str) -> bool:
    """The check digit of payment cards: from the right, every second digit counts double."""
    digits = [int(c) for c in number if c.isdecimal()][::-1]
    doubled = [sum(divmod(2 * d, 10)) for d in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _iban(number: str) -> bool:
    """ISO 13616: the first four characters moved to the end, letters from A = 10; 1 modulo 97."""
    plain = number.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _of_someone(address: str) -> bool:
    """False for what is no address, or one of a private network, such as 192.168.0.1."""
    try:
        return ipaddress.IPv4Address(address).is_global
    except ValueError:
        return False


def _long_enough(number: str) -> bool:
    """E.164 allows 15 digits. With 8 it may be a pair of years."""
    return 9 <= sum(c.isdecimal() for c in number) <= 15


PII: dict[str, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    kind: (re.compile(pattern, re.ASCII), check) for kind, pattern, check in (
        ("e-mail", r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}(?![\w(])", bool),
        ("IPv4", r"(?<![\w.])(?<![vV]ersion )\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)", _of_someone),
        ("card", r"(?<![\w.+-])[2-6](?:\d{12,18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}"
                 r"|\d{3}([ -])\d{6}\2\d{5})(?!\.?\w)", _luhn),
        ("IBAN", r"\b[A-Z]{2}\d{2}(?: ?[A-Z\d]{4}){2,7}(?: ?[A-Z\d]{1,3})?\b", _iban),
        ("phone", r"(?<![\w+.-])(?:"
                  r"\+\d{1,3}(?:[ .-]?(?:\(\d{1,4}\)|\d{2,})){1,6}"  # international
                  r"|(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[.-])[2-9]\d\d[.-]\d{4}"  # US, Canada
                  r"|0\d{1,3}-\d{3,4}-\d{3,4}"  # with the 0 before an area code
                  r"|(?i:phone|tel|call|mobile|fax|whatsapp)\b[^\d\n+]{0,20}"
                  r"\(?\d{2,}\)?(?:[ .-]?\d{2,})*"
                  r")(?![\w-])", _long_enough),
    )
}
