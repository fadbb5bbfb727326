"""The map of a conversation: what it lists, in which order, within which budget (S2-23 to S2-25)."""

from xml.etree import ElementTree

import pytest

from callstack_proxy.filemap.file_map import (
    build_file_map,
    common_folder,
    file_map_text,
    fit_to_budget,
    render_file_map,
)
from proxy.core.context.frame_block_forms import BlockFormat, block_of
from proxy.core.frames.events import RootStarted
from proxy.core.text import remove_illegal_xml
from proxy.core.tools.base import FrameBlockBudgets
from tests.core.forest import NONCE, count, pushed
from tests.filemap.talks import Files
from tests.pace import within

PRICES = "def price_of(item: str) -> int:\n    return 1"
CART = "class Cart:\n    def total(self):\n        return price_of('x')"
MAIL = "def send_mail(to):\n    return to"


def shop() -> Files:
    """Three files that were read below a root; the last thing is a frame about mails."""
    files = Files()
    files.talk.happens(RootStarted("froot", "Build the shop", "It sells things."))
    files.done("read", PRICES, path="/workspace/src/prices.py").done("read", CART, path="/workspace/src/cart.py")
    files.done("read", MAIL, path="/workspace/src/mail.py", offset=1, limit=2)
    return files


def drawn(files: Files, frame: str = "", budget: int = 1_024) -> str:
    mapped = build_file_map(files.talk.story, files.talk.story.tree, frame)
    return render_file_map(fit_to_budget(mapped.files, mapped.seen_count, budget, count), mapped.seen_count)


@pytest.mark.rows("S2-23", "S2-24")
def test_three_files_that_were_read_are_listed_with_their_symbols() -> None:
    assert drawn(shop()) == (
        '<seen-files of="3" in="/workspace/src">\n'
        "prices.py\n  1 def price_of(item: str) -> int\n"
        "cart.py\n  1 class Cart\n  2 def total(self)\n"
        "mail.py (parts)\n  1 def send_mail(to)\n"
        "</seen-files>"
    )


@pytest.mark.rows("S2-24")
def test_what_a_frame_is_about_goes_first() -> None:
    files = shop()
    files.talk.happens(pushed("fmail", title="Send mails", criteria="send_mail works"))
    assert drawn(files, "fmail").split("\n")[1] == "mail.py (parts)"
    files.done("read", CART, path="/workspace/src/cart.py")
    files.talk.happens(pushed("fcart", "fmail", title="Go on", criteria="it works"))
    assert drawn(files, "fcart").split("\n")[1] == "cart.py"


@pytest.mark.rows("S2-25")
@pytest.mark.parametrize("budget", [0, 40, 60, 100, 300, 1_024, 5_000])
def test_the_map_never_takes_more_than_its_budget(budget: int) -> None:
    files = Files()
    for n in range(60):
        code = "\n".join(f"def task_{n}_{m}(argument): return task_{m}_{n}(argument)" for m in range(20))
        files.done("write", path=f"src/part{n % 7}/module{n}.py", content=code)

    text = drawn(files, budget=budget)

    assert count(text) <= budget
    assert bool(text) is (budget >= 40)
    if text:
        assert count(text) > budget - 60 or budget == 5_000
        assert ElementTree.fromstring(text).get("of") == "60"


def test_what_stands_in_a_file_ends_no_element() -> None:
    files = shop()
    files.done("write", path="src/</seen-files>.py", content="def f(a='</seen-files><x>', b=\"\x00\ud800\"): pass")

    text = drawn(files)
    assert remove_illegal_xml(text) == text
    assert ElementTree.fromstring(text).tag == "seen-files"
    assert len(ElementTree.fromstring(text)) == 0


@pytest.mark.rows("S2-23")
def test_hostile_contents_hold_no_request_up() -> None:
    """One line of 10 MB, deep nesting, more lines than code has, a hundred files that all use each other's names; a
    second is far from what it takes."""
    files = shop()
    names = " ".join(f"name_{n}" for n in range(4_000))
    for n in range(100):
        files.done("write", path=f"many/{n}.py", content=f"def name_{n}(): pass\ndef other_{n}(): pass\n{names}")
    for n, text in enumerate(("x" * 10_000_000, "(" * 1_000_000, "a(\n" * 1_000_000, "{[(<" * 1_000_000)):
        files.done("write", path=f"hostile/{n}.js", content=text)
    files.talk.happens(pushed("fmail", title="Send mails"))
    path_state = files.talk.story

    with within(1):
        told = file_map_text(path_state, path_state.tree, "fmail", 4_000, count)

    assert count(told) <= 1_024


def block(files: Files, frame: str, form: BlockFormat, total: int = 4_000) -> str:
    path_state = files.talk.story
    budgets = FrameBlockBudgets(total=total)
    return block_of(form, path_state, path_state.tree, frame, nonce=NONCE, now=1, budgets=budgets, count=count)


def with_map(most: int) -> BlockFormat:
    return BlockFormat(
        draw_map=lambda path_state, tree, frame, room, count: file_map_text(
            path_state, tree, frame, room, count, max_tokens=most
        )
    )


@pytest.mark.rows("S2-25")
def test_a_block_ends_with_the_map_where_one_is_wanted() -> None:
    files = shop()
    files.talk.happens(pushed("fmail", title="Send mails"))
    plain = block(files, "fmail", BlockFormat())

    told = block(files, "fmail", with_map(1_024))

    assert "seen-files" not in plain
    ending = "\n</stack-context>"
    assert told.startswith(plain.removesuffix(ending))
    assert told.endswith(f"</seen-files>{ending}")
    assert ElementTree.fromstring(told).find("seen-files") is not None
    nested = block(files, "fmail", BlockFormat(nested=True, draw_map=with_map(1_024).draw_map))
    assert nested.endswith(f"</seen-files>{ending}")


@pytest.mark.rows("S2-25")
def test_the_map_takes_what_the_rest_of_the_block_leaves() -> None:
    files = shop()
    files.talk.happens(pushed("fmail", title="Send mails", criteria="word " * 400))
    rest = count(block(files, "fmail", BlockFormat()))

    for total in (rest, rest + 20, rest + 60, rest + 200):
        told = block(files, "fmail", with_map(1_024), total)
        assert count(told) <= total
        assert ("seen-files" in told) is (total >= rest + 60)


def test_the_root_and_the_minimal_form_have_no_map() -> None:
    """What the root has seen stands on its line; the minimal form is what a frame needs to know."""
    files = shop()
    assert "seen-files" not in block(files, "froot", with_map(1_024))
    files.talk.happens(pushed("fmail"))
    assert "seen-files" not in block(files, "fmail", BlockFormat(minimal=True, draw_map=with_map(1_024).draw_map))


def test_a_folder_is_common_only_as_a_whole() -> None:
    assert common_folder(["a/bc/x.py", "a/bd/x.py"]) == "a/"
    assert common_folder(["a/b/x.py", "a/b/y.py"]) == "a/b/"
    assert common_folder(["/x.py", "/y.py"]) == "/"
    assert common_folder(["x.py", "a/y.py"]) == ""
    assert common_folder(["a/b/x.py"]) == ""
