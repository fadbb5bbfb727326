"""The log of a running proxy: one event is one line, whatever somebody put into its fields."""

import io
import logging

from proxy.commands.journal import LONGEST, Line


def logged(message: str, **fields: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Line())
    log = logging.Logger("proxy.test")
    log.addHandler(handler)
    log.info(message, extra=fields)
    return stream.getvalue()


def test_an_event_is_one_line_with_its_fields_behind_it() -> None:
    line = logged("request", stack_id="r1", stack_reason="", stack_overhead_ms=1.23456789)

    assert line.endswith('Z info proxy.test request id=r1 reason="" overhead_ms=1.23457\n')


def test_a_field_forges_no_line_and_moves_no_cursor() -> None:
    """A11: what a client sends as a model's name, for one."""
    line = logged("request", stack_model="x\n2026 info proxy.app forged\x1b[2J")

    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_a_field_has_an_end() -> None:
    assert len(logged("request", stack_model="x" * 10_000)) < LONGEST + 100
