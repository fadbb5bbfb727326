"""Files in base64 are cut out of a text before it is searched, and nothing else is."""

import base64
import random

import pytest

from proxy.core.text import KEPT_BASE64_LENGTH, shorten_base64

FILE = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
KEPT = FILE[:KEPT_BASE64_LENGTH]


@pytest.mark.parametrize(
    "shape",
    [
        '{"image_url":{"url":"data:image/png;base64,%s"},"type":"image_url"}',
        '{"source":{"data":"%s","media_type":"image/png","type":"base64"},"type":"image"}',
        'words {"file_data":"%s"} words {"url":"data:;base64,%s"} {"data":"%s"}',
    ],
)
def test_a_long_file_is_cut(shape: str) -> None:
    files = shape.count("%s")
    assert shorten_base64(shape % ((FILE,) * files)) == shape % ((KEPT,) * files)


@pytest.mark.parametrize(
    "run",
    [KEPT, "words " * 50_000, FILE + "\n" + FILE, FILE + " and more", "é" * 300_000, FILE + "\\n"],
    ids=["short", "words", "lines", "words behind", "letters", "escape"],
)
def test_what_is_no_long_file_stays(run: str) -> None:
    for shape in ('{"url":"data:;base64,%s"}', '{"data":"%s"}'):
        assert shorten_base64(shape % run) == shape % run


def test_a_file_without_an_end_stays() -> None:
    assert shorten_base64("data:;base64," + FILE) == "data:;base64," + FILE
