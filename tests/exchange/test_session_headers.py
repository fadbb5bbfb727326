"""What clients tell of themselves in headers."""

import pytest

from proxy.exchange.thread.session_headers import client_name


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (b"claude-cli/2.0.14 (external, cli)", "claude-cli"),
        (b"codex_cli_rs/0.42.0 (Debian 13.0.0; x86_64) dumb", "codex_cli_rs"),
        (b"OpenAI/Python 1.54.0", "OpenAI/Python"),
        (b"Anthropic/JS 0.52.0", "Anthropic/JS"),
        (b"  opencode/0.9.1", "opencode"),
        (b"python-httpx/0.27", "python-httpx"),
        (b"node", "node"),
        (b"", ""),
        (b"<script>", ""),
        (b"\xff\xfe", ""),
        (b"a" * 5000, "a" * 40),
    ],
)
def test_a_client_is_known_by_its_first_product_without_a_version(told: bytes, name: str) -> None:
    assert client_name([(b"host", b"here"), (b"user-agent", told)]) == name


def test_a_client_without_a_user_agent_has_no_name() -> None:
    assert client_name([]) == ""
