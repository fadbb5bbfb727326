"""One value is set in the text of a settings file, and taken out again; all else stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callstack_proxy.cli.wrap.settings_text import JSON, TOML, CannotChange, read_json, set_value, unset_value, value_at

KEYS = ("env", "URL")
JSON_TEXTS = {
    "": '{\n  "env": {\n    "URL": "u"\n  }\n}\n',
    "{}": '{\n  "env": {\n    "URL": "u"\n  }\n}',
    '{"a": 1}': '{"env": {"URL": "u"}, "a": 1}',
    '{ "env": {"A": "b"} }\n': '{ "env": {"URL": "u", "A": "b"} }\n',
    '{\n\t"env": {\n\t\t"A": "b"\n\t}\n}\n': '{\n\t"env": {\n\t\t"URL": "u",\n\t\t"A": "b"\n\t}\n}\n',
    '{\n  // mine\n  "a": [1, {"b": 2},],\n}\n': (
        '{\n  "env": {\n    "URL": "u"\n  },\n  // mine\n  "a": [1, {"b": 2},],\n}\n'
    ),
    '{"env": {"URL": "old", "A": "}"}}': '{"env": {"URL": "u", "A": "}"}}',
    '{\n  "env": {}\n}': '{\n  "env": {\n    "URL": "u"\n  }\n}',
}


@pytest.mark.parametrize(("text", "changed"), JSON_TEXTS.items())
def test_a_value_is_set_in_json_and_nothing_else_is_touched(text: str, changed: str) -> None:
    assert set_value(JSON, text, KEYS, "u") == changed
    back = unset_value(JSON, changed, KEYS, before := value_at(JSON, text, KEYS))  # type: ignore[arg-type]
    assert read_json(back) == ({} if "{}" in text else read_json(text))
    assert before in (None, "old")


@pytest.mark.parametrize("text", ["[1]", "{", '{"env": 1}', '{"env": [1]}', "nonsense", '{"a": 1}}', "[" * 5000, '"'])
def test_what_is_no_such_json_is_refused(text: str) -> None:
    with pytest.raises(CannotChange):
        set_value(JSON, text, KEYS, "u")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab{}[],:\"'/*\\ \n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/ ,", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "//"]), values, max_size=3), st.sampled_from([None, 1, 2, "\t"]))
def test_any_json_gets_the_value_and_loses_it_again(settings: dict[str, object], indent: int | str | None) -> None:
    text = json.dumps(settings, indent=indent)

    changed = set_value(JSON, text, KEYS, "u")

    assert json.loads(changed) == {**settings, "env": {"URL": "u"}}
    assert json.loads(unset_value(JSON, changed, KEYS, None)) == settings


@pytest.mark.parametrize(
    ("text", "keys", "changed"),
    [
        ("", ("url",), 'url = "u"\n'),
        ('model = "x"', ("url",), 'url = "u"\nmodel = "x"'),
        (
            '# mine\nurl = "old" # here\n\n[a]\nurl = "not"\n',
            ("url",),
            '# mine\nurl = "u" # here\n\n[a]\nurl = "not"\n',
        ),
        (
            '[a]\nb = 1\n\n[m.n]\nname = "x"\n[c]\n',
            ("m", "n", "url"),
            '[a]\nb = 1\n\n[m.n]\nurl = "u"\nname = "x"\n[c]\n',
        ),
        ('[m."n"]\nurl = "v"', ("m", "n", "url"), '[m."n"]\nurl = "u"'),
        ("[m.n]\r\n url='a#b'#c\r\n", ("m", "n", "url"), '[m.n]\r\n url="u"#c\r\n'),
        ('url = """a"b""" # c', ("url",), 'url = "u" # c'),
    ],
)
def test_a_line_is_set_in_toml(text: str, keys: tuple[str, ...], changed: str) -> None:
    assert set_value(TOML, text, keys, "u") == changed
    before = value_at(TOML, text, keys)
    assert isinstance(before, str | None)
    assert value_at(TOML, unset_value(TOML, changed, keys, before), keys) == before


def test_a_line_that_leaves_toml_leaves_the_comment_behind_it() -> None:
    assert unset_value(TOML, 'a = 1\r\nurl = "u" # x\r\nb = 2\r\n', ("url",), None) == "a = 1\r\n# x\r\nb = 2\r\n"
    assert unset_value(TOML, 'url = "u" \r\nb = 2\r\n', ("url",), None) == "b = 2\r\n"


@pytest.mark.parametrize("text", ["= 1", "m = { n = { a = 1 } }", 'x = """\n[m.n]\n"""', "[m]\nn.a = 1"])
def test_what_is_no_such_toml_is_refused(text: str) -> None:
    with pytest.raises(CannotChange):
        set_value(TOML, text, ("m", "n", "url"), "u")
