"""What others refer to comes first (S2-24)."""

import pytest

from callstack_proxy.filemap.page_rank import mentioned_paths, page_rank, rank_files
from callstack_proxy.filemap.symbols import symbols_by_patterns
from tests.filemap.talks import seen

SHOP = [
    seen("prices.py", "def price_of(item):\n    return 1\n\ndef rarely_used():\n    return 2"),
    seen("cart.py", "class Cart:\n    def total(self):\n        return price_of(1) + price_of(2)"),
    seen("orders.py", "def place_order(cart):\n    Cart()\n    price_of(3)"),
    seen("mails.py", "def send_mail(to):\n    return to"),
    seen("newsletter.py", "def send_all():\n    send_mail(1)"),
]


def order(**focus: float) -> list[str]:
    return [
        file.path
        for file in rank_files(SHOP, symbols_by_patterns(SHOP), {f"{name}.py": w for name, w in focus.items()})
    ]


@pytest.mark.rows("S2-24")
def test_files_come_in_the_order_in_which_others_refer_to_them() -> None:
    """S2-24: `prices` is used by two, one of which is used itself."""
    assert order() == ["prices.py", "mails.py", "cart.py", "newsletter.py", "orders.py"]


@pytest.mark.rows("S2-24")
def test_what_the_files_of_a_frame_refer_to_goes_before_all_else() -> None:
    assert order(newsletter=1) == ["newsletter.py", "mails.py", "cart.py", "orders.py", "prices.py"]
    assert order(orders=1)[:3] == ["orders.py", "prices.py", "cart.py"]


@pytest.mark.rows("S2-24")
def test_a_definition_that_is_used_goes_before_one_that_is_not() -> None:
    prices = rank_files(SHOP, symbols_by_patterns(SHOP), {})[0]

    ranks = {definition.name: rank for definition, rank in prices.definitions}
    assert ranks["price_of"] > 10 * ranks["rarely_used"] > 0


def test_ranks_are_shares_of_a_walk() -> None:
    edges = {0: {(1, "a"): 1.0}, 1: {(0, "b"): 1.0}, 2: {(0, "b"): 3.0}}

    ranks = page_rank(4, edges, [0, 0, 0, 0])

    assert sum(ranks) == pytest.approx(1)
    assert ranks[0] > ranks[1] > ranks[2] == ranks[3]
    assert page_rank(2, {}, [1, 0]) == [1, 0]
    assert page_rank(0, {}, []) == []


def test_the_same_files_give_the_same_order_however_they_come() -> None:
    there, back = SHOP, SHOP[::-1]

    assert [f.path for f in rank_files(there, symbols_by_patterns(there), {})] == [
        f.path for f in rank_files(back, symbols_by_patterns(back), {})
    ]


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ("Fix prices.py", ["prices.py"]),
        ("The newsletter goes out twice", ["newsletter.py"]),
        ("price_of is wrong for Cart", ["prices.py", "cart.py"]),
        ("total it all", []),
        ("", []),
    ],
)
def test_a_task_names_files_by_their_name_or_by_what_they_define(words: str, paths: list[str]) -> None:
    assert list(mentioned_paths(words, SHOP, symbols_by_patterns(SHOP))) == paths
