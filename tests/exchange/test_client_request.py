"""What is read of a body that the proxy does not read."""

import pytest

from proxy.exchange.rounds import names_in


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (rb'{"model": "m", "previous_response_id": "resp_1"}', ("m", "resp_1")),
        (b'{"model": "m", "previous_response_id": "\xff"}', ("m", "")),
        (b'{"model": "\xff", "previous_response_id": "resp_1"}', (None, "resp_1")),
        (rb'{"model": "m", "previous_response_id": "resp_1", "input": "\ud800"}', ("m", "resp_1")),
        (rb'{"model": "m", "previous_response_id": "\ud800"}', ("m", "")),
        ('{"model": "m", "previous_response_id": "resp_1"}'.encode("utf-8-sig"), ("m", "resp_1")),
        ('{"model": "m", "previous_response_id": "resp_1"}'.encode("utf-16"), ("m", "resp_1")),
        (b"[" * 100_000, (None, "")),
        (rb'{"model": 1, "previous_response_id": ["resp_1"]}', (None, "")),
        (rb'{"input": 1}', (None, "")),
        (b'{"model": "m"', (None, "")),
    ],
)
async def test_each_name_is_read_by_itself(body: bytes, names: tuple[str | None, str]) -> None:
    assert await names_in(body) == names
