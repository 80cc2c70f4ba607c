"""Texts of any script, as the terms that they are found by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.search.words import stem, telling, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create_pull_request", ["creat", "pull", "request"]),
        ("create-pull.request/now", ["creat", "pull", "request", "now"]),
        ("Creating pull requests", ["creat", "pull", "request"]),
        ("createPullRequest", ["creat", "pull", "request", "createpullrequest"]),
        ("PDFReader", ["pdf", "read", "pdfread"]),
        ("GitHub", ["git", "hub", "github"]),
        ("github", ["github"]),
        ("base64 S3 mp3", ["base64", "s3", "mp3"]),
        ("URLs IDs", ["url", "id"]),
        ("Café naïve", ["caf", "naiv"]),
        ("天気予報", ["天気", "気予", "予報"]),
        ("書", ["書"]),
        ("날씨 예보", ["날씨", "예보"]),
        ("พยากรณ์", ["พย", "ยา", "าก", "กร", "รณ", "ณ์"]),
        ("погода", ["погода"]),
        ("", []),
        ("🌧 — …", []),
    ],
)
def test_texts_become_terms(text: str, expected: list[str]) -> None:
    """docs/discovery.md#ranking: names are split, words lose their endings, scripts without blanks give pairs."""
    assert terms(text) == expected


@pytest.mark.parametrize(
    "forms",
    [
        ("create", "creates", "created", "creating"),
        ("translate", "translates", "translation", "translator"),
        ("query", "queries"),
        ("search", "searches", "searching", "searched"),
        ("get", "getting"),
        ("convert", "converter", "converts"),
        ("issue", "issues"),
        ("box", "boxes"),
        ("history", "histories"),
    ],
)
def test_forms_of_one_word_are_one_term(forms: tuple[str, ...]) -> None:
    """docs/discovery.md#ranking."""
    assert len({stem(one) for one in forms}) == 1


def test_no_text_becomes_much_longer() -> None:
    """docs/discovery.md#limits: U+FDFA stands for four words, so a query of 2,000 of them would be one of 8,000."""
    assert len(terms("\ufdfa" * 1000)) < 300


def test_words_that_say_little_are_left_out() -> None:
    """docs/discovery.md#ranking: in texts and queries, not in names."""
    assert telling(terms("I want to get the weather of a city")) == ["weath", "citi"]


@given(st.text(max_size=400))
def test_any_text_gives_bounded_terms_and_always_the_same(text: str) -> None:
    """docs/discovery.md#limits: any script, any character."""
    found = terms(text)
    assert found == terms(text)
    assert all(0 < len(one) <= 200 for one in found)
    assert len(found) <= 40 * len(text) + 1
