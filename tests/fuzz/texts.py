"""Texts that somebody may send who means harm, or knows no better."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.hostile import HOSTILE_NAMES

# What parsers of numbers stumble over.
ODD_NUMBERS = (
    *("0", "-0", "1", "-1", "0.0", ".5", "5.", "1.5", "00012", "+3", " 7 ", "1_000"),
    *("nan", "NaN", "-nan", "inf", "Infinity", "-inf", "1e5", "1e308", "1e309"),
    *("1e-308", "5e-324", "0x10", "1,5", "\u0661\u0662", "\u00b2", "1.5.2", "--1"),
    *("9" * 15, "9" * 16, "9" * 19, "9" * 400, "0." + "0" * 400 + "1"),
    *("9" * 5000, "1" + "0" * 308, "18446744073709551616", "1700000000"),
    *("1700000000000", "253402300800", "-9223372036854775809"),
)

MOST_TEXT = 65_536

numbers = st.one_of(
    st.sampled_from(ODD_NUMBERS),
    st.integers().map(str),
    st.floats().map(str),
    st.decimals(places=3).map(str),
)
names = st.one_of(
    st.sampled_from(HOSTILE_NAMES),
    st.text(max_size=60),
    st.text(st.characters(), max_size=300),
    st.text(
        alphabet="\0\n\r\t\x1b[];<>&\"'/\\{}%\ud800\udcff\u202e\x85\u2028a.",
        max_size=60,
    ),
)


def long(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The same thing again and again, up to the most that a server may send."""
    return st.tuples(texts, st.integers(1, MOST_TEXT)).map(
        lambda pair: (pair[0] * (1 + pair[1] // max(1, len(pair[0]))))[:MOST_TEXT]
    )


def any_text(*usual: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pieces = st.one_of(*usual, numbers, st.text(max_size=20))
    return st.one_of(
        pieces,
        st.lists(pieces, max_size=6).map("".join),
        st.text(max_size=200),
        long(st.one_of(pieces, st.text(min_size=1, max_size=4))),
    )
