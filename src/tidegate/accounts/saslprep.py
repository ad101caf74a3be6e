"""SASLprep (RFC 4013): the form in which user names and passwords are compared in SCRAM.

The tables are those of `stringprep` in the standard library (Unicode 3.2, as RFC 3454 demands).
"""

import stringprep
from unicodedata import ucd_3_2_0 as unicode32

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str, *, is_stored: bool = False) -> str:
    """The prepared form; ValueError if a character is prohibited. Stored strings may not hold unassigned ones."""
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    prepared = unicode32.normalize("NFKC", mapped)
    for character in prepared:
        if any(is_in(character) for is_in in _PROHIBITED):
            raise ValueError("a prohibited character")
        if is_stored and stringprep.in_table_a1(character):
            raise ValueError("a character that Unicode 3.2 does not assign")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """RFC 3454 section 6: right-to-left text has no left-to-right characters, and begins and ends as such."""
    if not any(stringprep.in_table_d1(c) for c in text):
        return
    if any(stringprep.in_table_d2(c) for c in text):
        raise ValueError("mixed directions of writing")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("right-to-left text that begins or ends otherwise")
