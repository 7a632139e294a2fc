"""Personal data and its near misses, by hand."""

import pytest

from rmutils.preference.instructions import pii


@pytest.mark.parametrize("kind, text", [
    ("e-mail", "Write to ann.lee+work@mail.example.co.uk, please."),
    ("e-mail", "MAIL:ANN@EXAMPLE.ORG"),
    ("phone", "Call +44 (0)20 7946 0958 now."),
    ("phone", "Ring +4915112345678."),
    ("phone", "My number is (415) 555-2671."),
    ("phone", "1-415-555-2671"),
    ("phone", "電話は03-1234-5678です"),
    ("phone", "090-1234-5678 is mine"),
    ("phone", "Mobile: 0170 123 45 67"),
    ("IPv4", "ping 93.184.216.34:80"),
    ("IPv4", "The server is 8.8.8.8."),
    ("card", "Pay with 4111 1111 1111 1111!"),
    ("card", "378282246310005"),
    ("card", "3782-822463-10005"),
    ("card", "5555555555554444"),
    ("IBAN", "Send it to GB82 WEST 1234 5698 7654 32 today"),
    ("IBAN", "DE89370400440532013000"),
])
def test_personal_data_is_seen(kind, text):
    assert pii(text) == kind


@pytest.mark.parametrize("text", [
    "From 1998-2004 and the phone of 2007-2008; 1,234,567 users on 2024-05-17 or 01-02-2024",
    "What is 1200 + 3400 - 55 * 1000000000? And 100-200-3000? Is +12 - 34 + 567 - 8901 positive?",
    "3.14159265358979323846 and 0.4111111111111111 and 1e+1234567890",
    "Python 3.11.4, Chrome 120.0.6099.109, version 1.2.3.4, v1.2.3.4, section 1.2.3.4.5, 256.1.1.1",
    "192.168.0.1, 127.0.0.1, 10.0.0.8, 255.255.255.0",
    "Sort 345 678 9012 1234 5678. Sort 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1.",
    "4111 1111 1111 1112 and 378282246310006 and 9999999999999995",
    "GB83 WEST 1234 5698 7654 32 and DE89370400440532013001 and AB12 CDEF GHIJ",
    "@app.route and y = W@x.T and z = a@b.T.copy() and user@localhost and C@D",
    "Call me at 5 or at 6. Call f(1, 2, 3). Tell me about the telephone of 1876 1877 and 1878",
    "ISBN 978-3-16-148410-0, RFC 2822, 60 by 24 by 3600, 1,000,000,000",
])
def test_other_numbers_are_none(text):
    assert pii(text) is None


def test_check_digits():
    """Of the ten numbers that differ in their last digit only, one is right."""
    assert [d for d in range(10) if pii(f"411111111111111{d}")] == [1]
    assert [d for d in range(10) if pii(f"DE8937040044053201300{d}")] == [0]
