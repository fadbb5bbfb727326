"""What a provider charges for the requests that it answered, at the prices of the table."""

from collections.abc import Sequence

from llm_test_provider import Usage
from llm_test_provider.script import ReceivedRequest
from proxy.accounting.tariff import Tariff

MILLION = 1_000_000


def charged(usage: Usage, row: Tariff) -> float:
    """USD for one answer of the provider."""
    dear = (row.long_input, row.long_output) if 0 < row.long_context < usage.prompt else (1.0, 1.0)
    fresh, short = usage.prompt - usage.cached - usage.written, usage.written - usage.written_long
    paid = fresh + row.read * usage.cached + row.write * short + 2 * usage.written_long
    return (paid * row.input * dear[0] + usage.completion * (row.output or 0.0) * dear[1]) / MILLION


def sum_charged(asked: Sequence[ReceivedRequest], row: Tariff) -> float:
    return sum(charged(received.usage, row) for received in asked if received.usage)
