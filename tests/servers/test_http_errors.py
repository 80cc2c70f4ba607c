"""What refusals of remote servers mean, in words."""

from __future__ import annotations

import pytest

from muxway.net.http_errors import refusal


@pytest.mark.parametrize(
    ("challenge", "advice"),
    [
        ('Bearer resource_metadata="https://x.example/.well-known/oauth-protected-resource"', "OAuth login"),
        ('Bearer realm="x", Resource_Metadata="https://x.example/y"', "OAuth login"),
        ('Bearer realm="x"', "other credentials"),
        (None, "other credentials"),
    ],
)
def test_a_server_that_wants_a_login_is_told_from_one_that_wants_another_token(
    challenge: str | None, advice: str
) -> None:
    """RFC 9728, 5.1: `resource_metadata` in WWW-Authenticate."""
    said = refusal(401, b"", (), challenge=challenge).what
    assert advice in said
    assert "`headers`" in said
