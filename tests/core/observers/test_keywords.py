"""Which words of a conversation are names, and which of them are worth their tokens."""

import sys
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Call, Message
from proxy.core.memo import TextCache
from proxy.core.observers import keywords as names
from proxy.core.observers.keywords import (
    cache_names,
    clean_name,
    estimated_tokens,
    mention_weight,
    names_in_messages,
    names_in_text,
    names_in_word,
    names_still_visible,
    passing_names,
    rank_names,
)
from tests.pace import within

DECODED = {"two_words", "gone_word", "4455"}


def said(role: str, text: str, *arguments: str) -> Message:
    calls = tuple(Call(f"c{at}", "run", one) for at, one in enumerate(arguments))
    return Message(role, b"", "", text, calls)


def test_what_leaves_takes_only_the_names_that_nothing_else_shows() -> None:
    """One message may show a name often, and several may show the same."""
    both = said("tool", "src/a.py and src/a.py, then src/b.py")
    one, other = said("user", "see src/a.py"), said("assistant", "", '{"path": "src/c.py"}')

    def left(staying: Iterable[Message], *parts: Sequence[Message]) -> list[set[str]]:
        """For each of the parts."""
        names = ("src/a.py", "src/b.py", "src/c.py", "src/d.py")
        return [{name for name in names if name in shown} for shown in names_still_visible(staying, parts)]

    assert left([both, one, other]) == []
    assert left([one, other], [both]) == [{"src/a.py", "src/c.py"}]
    assert left([other], [both, one]) == [{"src/c.py"}]
    assert left([both], [one, other]) == [{"src/a.py", "src/b.py"}]
    assert left([], [both, one, other]) == [set()]
    assert left([other], [both], [one]) == [{"src/a.py", "src/c.py"}, {"src/a.py", "src/b.py", "src/c.py"}]
    assert left([], [both, one], [other]) == [{"src/c.py"}, {"src/a.py", "src/b.py"}]


# --------------------------------------------------------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see src/auth/token.py.", {"src/auth/token.py"}),
        ("./src/auth/token.py:12: in check", {"src/auth/token.py"}),
        ("in ~/.config/app/settings.toml", {"~/.config/app/settings.toml"}),
        ("/etc/hosts-17-  127", {"/etc/hosts-17"}),
        ("src/a.py-17-    return", {"src/a.py"}),
        ("read main.go, then Makefile", {"main.go"}),
        ("self.assertEqual(os.path)", {"assertEqual"}),
        ("call check_token and parseTree", {"check_token", "parseTree"}),
        ("raises json.JSONDecodeError: bad", {"JSONDecodeError"}),
        ("commit 3fa9c1de, not deadbeef or 1234567", {"3fa9c1de", "1234567"}),
        ("id 8a8f2c3e-0b1d-4c5e-9f00-1234567890ab", {"8a8f2c3e-0b1d-4c5e-9f00-1234567890ab"}),
        ("since 2024-05-01 at v1.22.3", {"2024-05-01", "v1.22.3"}),
        ("JIRA-123, HAT271, #W5866402", {"JIRA-123", "HAT271", "#W5866402"}),
        ("pay $1,234.50 now", {"$1,234.50"}),
        ("write to jo.do@example.com", {"jo.do@example.com"}),
        ("an HTTPServerConfig and a SHA256HEX sum", {"HTTPServerConfig", "SHA256HEX"}),
        ("3ersType _privateName", {"_privateName"}),
        ("in _gcd_import, _bootstrap._load_unlocked(x)", {"_gcd_import", "_load_unlocked"}),
        ("__class_getitem__ of one_two__three_four", {"__class_getitem__", "one_two", "three_four"}),
        ("cut here …ersType to usersTy… and on", set()),
        (r"in C:\proj\newTests\tailCalls", {"newTests", "tailCalls"}),
        ("user mia_li_3668 and/or nobody", {"mia_li_3668", "and/or"}),
        ("The quick brown fox, twice: 12 + 30.", set()),
        ("", set()),
    ],
)
def test_a_name_is_a_path_an_identifier_an_error_a_number_or_an_id(text: str, names: set[str]) -> None:
    assert names_in_text(text) == names


def test_names_are_found_in_arguments_without_the_names_of_parameters() -> None:
    assert names_in_messages([said("assistant", "", '{"file_path":"src/a.py","old_string":"loadAll()"}')]) == {
        "src/a.py",
        "loadAll",
    }


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (r'{"text":"{\n\tsetUp(x)\n\tplain\n}"}', {"setUp"}),
        (r'{"path":"C:\\proj\\typersType","q":"pr\u00fcfListe"}', {"typersType"}),
        (r'{"code":"print(\"one\\nsome_name\")","cells":[{"text":"\r\nlast_cell"}]}', {"some_name", "last_cell"}),
        (r'{"patch":"@@\n+two_words\n-gone_word","ticket_id":4455}', DECODED),
        ("*** Begin Patch\n+free_form\n", {"free_form"}),
        (r'{"broken":"\nhalf_sent', {"half_sent"}),
        (r'{"files":{"src/a.py":"two_words\n+gone_word\n4455"}}', {"src/a.py", *DECODED}),
    ],
)
def test_names_in_arguments_are_those_of_their_decoded_texts(arguments: str, names: set[str]) -> None:
    assert names_in_messages([said("assistant", "", arguments)]) == names


@pytest.mark.rows("S0-55")
def test_names_in_arguments_of_any_depth_are_found() -> None:
    """A parser reads deeper values than calls can follow."""
    for depth in range(sys.getrecursionlimit() - 100, sys.getrecursionlimit() + 10):
        arguments = "[" * depth + '"src/a.py"' + "]" * depth
        assert names._names_in_arguments(arguments) == ("src/a.py",)


@pytest.mark.rows("S0-55")
def test_what_a_program_cuts_or_sets_around_a_name_is_no_part_of_it() -> None:
    shown = (
        "FAILED tests/test_a.py::test_one - IndexErro...\n"
        "Running test_whole... ok\n"
        "\x1b[31mred_name\x1b[0m and \\u001b[1mbold_name\\u001b[22m\n"
        "open %s.jsonl, %d_of_all\n"
        "git diff main_branch...my_branch; go test ./cmd/...\n[test_whole]"
    )

    assert set(rank_names([said("tool", shown)])) == {
        "tests/test_a.py",
        "test_one",
        "red_name",
        "bold_name",
        "main_branch",
        "my_branch",
        "cmd",
        "test_whole",
    }


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    "word",
    [
        "and/or",
        "copy/paste",
        "Read/Write",
        "read-only/read-write",
        "in/out/error",
        "GET/POST",
        "s/secret/REDACTED",
        "x/g",
        "/return/p",
        "to_html/p",
        "6962522a02ca/0",  # an entry as a recalled text names it
    ],
)
def test_words_joined_by_a_slash_are_no_path(word: str) -> None:
    assert clean_name(word) == ""


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    "path",
    [
        "src/a.py",
        "/etc/passwd",
        "~/notes",
        "cmd/entire/cli/strategy",
        "src/my_tests",
        "lib/py3",
        "app/userModels",
        "@me/pi-ai",
    ],
)
def test_a_path_stays_a_name(path: str) -> None:
    assert clean_name(path) == path


def test_what_is_too_long_is_data_and_no_name() -> None:
    assert names_in_word("a_b" * 100) == ()


@example("b/a.py@ at")
@given(st.text(alphabet='abZ_.@+~$/#-09\\\n\x1f"(),: ', max_size=40))
def test_a_text_has_the_same_names_whatever_else_it_holds(text: str) -> None:
    """Texts of ASCII are taken apart in another way."""
    assert names_in_text(f"{text} é") == names_in_text(text)
    assert names_in_text(f"{text} $") == names_in_text(text)


@given(st.text())
def test_any_text_may_be_read(text: str) -> None:
    for name in names_in_text(text):
        assert name
        assert not set(name) & set("<>&\"' \n")
        assert estimated_tokens(name) >= 1


# ------------------------------------------------------------------------------------------------------------- ranking
@pytest.mark.rows("S2-12", "S2-13")
def test_what_the_assistant_used_comes_before_what_only_an_output_holds() -> None:
    """S2-12, S2-13."""
    messages = [
        said("tool", "noise_one noise_one noise_one used_name"),
        said("assistant", "", '{"a":"used_name"}'),
        said("user", "user_name"),
    ]

    assert rank_names(messages) == ("used_name", "user_name", "noise_one")


@pytest.mark.rows("S0-55")
def test_what_a_language_and_its_libraries_bring_are_passing_names() -> None:
    """Not what an output defines or has often, nor what the assistant wrote, nor files, errors and data."""
    shown = (
        "class OrderBook:\n    def add_order(self):\n        isinstance(x, OrderBase); os.path_join(to_string(x))\n"
        "func (s *Store) SaveAll() { strings.HasPrefix(x) }\nsrc/orders/book.py settings.toml order_4711 JIRA-123"
    )

    messages = [said("tool", f"{shown} BookError {'tradeLog ' * names.OFTEN}"), said("assistant", "I use path_join.")]

    assert passing_names(messages) == {"OrderBase", "to_string", "HasPrefix"}


def test_of_two_names_equally_used_the_one_that_costs_less_comes_first() -> None:
    assert rank_names([said("assistant", "very_long_name_of_many_parts short_name")]) == (
        "short_name",
        "very_long_name_of_many_parts",
    )


def test_further_mentions_count_less_and_less() -> None:
    first, second = mention_weight("tool", 1), mention_weight("tool", 2) - mention_weight("tool", 1)

    assert first > second > 0
    assert mention_weight("tool", 1_000) < mention_weight("assistant", 1)


def test_a_role_never_heard_of_counts_as_an_output() -> None:
    assert mention_weight("function", 1) == mention_weight("tool", 1)


def test_names_that_stay_visible_are_not_repeated() -> None:
    assert rank_names([said("assistant", "check_token src/a.py")], known={"check_token"}) == ("src/a.py",)


@given(st.lists(st.text(alphabet="ab_/.1", max_size=60), max_size=5))
def test_the_same_messages_give_the_same_names_in_the_same_order(texts: list[str]) -> None:
    """D12."""
    messages = [said("assistant", text) for text in texts]

    assert rank_names(messages) == rank_names(list(messages))


def test_what_was_looked_at_before_is_not_looked_at_again() -> None:
    """Neither the texts nor the arguments of calls."""
    call = Call("c", "read", '{"path": "src/looked_at/before.py"}')
    messages = [Message("assistant", b"", "", "see src/looked_at/first.py", (call,))]
    cache_names(messages)
    texts, arguments = (
        names._cached_names_of_text.misses,
        names._cached_names_of_arguments.misses,
    )

    assert set(rank_names(messages)) == {"src/looked_at/first.py", "src/looked_at/before.py"}
    assert names._cached_names_of_text.misses == texts
    assert names._cached_names_of_arguments.misses == arguments


def test_names_are_priced_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none again with the ranking, when somebody waits for all of them."""
    messages = [said("tool", "priced_with_the_text src/priced/too.py")]
    cache_names(messages)
    asked: list[str] = []
    monkeypatch.setattr(names._token_estimates, "_compute", asked.append)

    assert rank_names(messages)
    assert asked == []


def test_many_messages_are_looked_at_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their characters: 32 of the longest whose names are remembered held up everybody for 25 ms."""
    messages = [said("tool", f"word_{at} " + "parcel " * (names.SLICE_LENGTH // 14)) for at in range(8)]
    # A patch: an empty cache, whatever other tests have asked before.
    monkeypatch.setattr(names, "_cached_names_of_text", TextCache(names._names_in_order, names.MAX_CACHED_CHARACTERS))

    looked_at = [names._cached_names_of_text.misses for _ in names.cache_names_in_slices(messages)]

    assert looked_at == [2, 4, 6, 8, 8]


def test_however_many_words_there_are_a_bounded_number_is_remembered() -> None:
    many = [said("tool", f"word_{number}") for number in range(names.CACHED_WORDS + 10)]

    assert len(rank_names(many)) == len(many)
    assert len(names._names_by_word) <= names.CACHED_WORDS
    assert len(names._token_estimates) <= names.CACHED_WORDS
    assert rank_names(many[:1]) == ("word_0",)


def test_a_long_span_is_ranked_in_a_fraction_of_a_request() -> None:
    """Forty thousand tokens, nearly all of them names said once; the budget is 60 ms, this allows a slow machine."""
    messages = [said("tool", " ".join(f"n_{at}_{n} src/d{at}/f{n}.py" for n in range(60))) for at in range(50)]

    with within(0.5):
        assert len(rank_names(messages)) == 6_000


@pytest.mark.rows("S0-55")
def test_a_path_in_a_diff_is_named_as_the_file_is() -> None:
    diff = "diff --git a/pkg/core_io.py b/pkg/core_io.py\n--- a/pkg/core_io.py\n+++ b/pkg/core_io.py\n@@ -1 +1 @@\n"
    patch = said("assistant", "", '{"command": "git apply <<E\\n--- a/x/y.py\\n+++ b/x/y.py"}')

    assert set(rank_names([said("tool", diff)])) == {"pkg/core_io.py"}
    assert {name for name in rank_names([patch]) if name.endswith("y.py")} == {"x/y.py"}
    assert rank_names([said("tool", "see a/pkg/core_io.py")]) == ("a/pkg/core_io.py",)
    assert rank_names([said("tool", "--- a/pkg/core_io.py\n-x = 1")]) == ("pkg/core_io.py",)


@pytest.mark.rows("S0-55")
def test_a_path_of_an_example_is_no_name() -> None:
    assert [names.clean_name(name) for name in ("/foo/bar/baz", "foo/bar", "src/foo/bar.py")] == [
        "",
        "",
        "src/foo/bar.py",
    ]
