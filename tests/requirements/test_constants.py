"""Constants of requirement rows that no scenario needs to reach."""

import pytest

from proxy.core.context.minimal_frame_block import MINIMAL_BLOCK_CHARACTERS
from proxy.core.text import truncate_to_tokens
from proxy.core.tools.autonomy_tools import MAX_HISTORY_SHOWN
from proxy.core.tools.context_tools import DEFAULT_PREVIEW_CHARACTERS


@pytest.mark.proves("S1-113", "S1-129", "S3-08")
def test_limits_are_those_of_the_requirements() -> None:
    assert DEFAULT_PREVIEW_CHARACTERS == 2_000
    assert MAX_HISTORY_SHOWN == 20
    assert MINIMAL_BLOCK_CHARACTERS == 2_000


@pytest.mark.proves("S1-59")
def test_a_cut_falls_on_a_word_border_only_within_the_last_fifth() -> None:
    near, far = "a" * 85 + " " + "b" * 100, "a" * 75 + " " + "b" * 100

    assert truncate_to_tokens(near, 112, len) == "a" * 85 + " [truncated]"
    assert truncate_to_tokens(far, 112, len) == "a" * 75 + " " + "b" * 24 + " [truncated]"
