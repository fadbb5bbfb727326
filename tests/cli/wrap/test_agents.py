"""What `callstack wrap AGENT` would set, read from `--dry-run`: nothing is started, and no file is written."""

import json

import pytest

from callstack_proxy.cli.context import ServerInfo, write_server_file
from tests.cli.wrap.conftest import Wrapping

ORIGIN = "http://127.0.0.1:PORT"


class DryRun:
    """The rows that `--dry-run` prints, by their label."""

    def __init__(self, out: str) -> None:
        self.rows = [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in out.splitlines()]

    def row(self, label: str) -> list[str]:
        return [text for name, text in self.rows if name == label]

    @property
    def environ(self) -> dict[str, str]:
        return {name: value for name, _, value in (text.partition("=") for text in self.row("set"))}

    @property
    def arguments(self) -> str:
        return self.row("run")[0].partition(" ")[2]


def dry_run(wrapping: Wrapping, *words: str, **extra: str) -> DryRun:
    wrapping.install(words[0])
    done = wrapping.run_wrap("--dry-run", *words, **extra)
    assert done.code == 0, done.errors
    assert list(wrapping.home.rglob("callstack*")) == []
    return DryRun(done.out)


def settle(wrapping: Wrapping, path: str, text: str) -> None:
    """Writes a settings file of the user."""
    file = wrapping.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_any_command_gets_the_usual_variables(wrapping: Wrapping) -> None:
    shown = dry_run(wrapping, "agent", "--", "a b")

    assert shown.row("run") == [f"{wrapping.folder / 'bin' / 'agent'} 'a b'"]
    assert shown.environ == {
        "OPENAI_BASE_URL": f"{ORIGIN}/v1",
        "OPENAI_API_BASE": f"{ORIGIN}/v1",
        "ANTHROPIC_BASE_URL": ORIGIN,
        "ANTHROPIC_API_BASE": ORIGIN,
    }
    assert shown.row("upstream") == [
        "https://api.openai.com/v1 (chat, responses)",
        "https://api.anthropic.com (messages)",
    ]


def test_the_provider_of_the_users_own_variables_is_the_upstream(wrapping: Wrapping) -> None:
    """Without a version where theirs has none, because the agent would add none either."""
    own = {"OPENAI_BASE_URL": "http://127.0.0.1:9/api", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/anthropic"}

    shown = dry_run(wrapping, "agent", **own)

    assert shown.row("upstream") == [
        "http://127.0.0.1:9/api (chat, responses)",
        "http://127.0.0.1:9/anthropic (messages)",
    ]
    assert shown.environ["OPENAI_BASE_URL"] == ORIGIN


def test_a_named_upstream_serves_everything(wrapping: Wrapping) -> None:
    shown = dry_run(wrapping, "agent", "--upstream", "http://127.0.0.1:9", OPENAI_BASE_URL="http://127.0.0.1:8/v1")

    assert shown.row("upstream") == ["http://127.0.0.1:9 (chat, messages, responses)"]


def test_a_wrap_in_a_wrap_sees_what_was_there_before(wrapping: Wrapping) -> None:
    outer = {"CALLSTACK_WRAPPED": json.dumps({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "ANTHROPIC_BASE_URL": None})}
    inner = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}

    shown = dry_run(wrapping, "agent", **outer, **inner)

    assert shown.row("upstream") == ["http://127.0.0.1:9/v1 (chat, responses)", "https://api.anthropic.com (messages)"]


@pytest.mark.rows("X-42")
@pytest.mark.parametrize(("upstream", "assumes"), [((), True), (("--upstream", "http://127.0.0.1:9"), False)])
def test_claude_code_searches_tools_and_knows_anthropic_where_it_is_anthropic(
    wrapping: Wrapping, upstream: tuple[str, ...], assumes: bool
) -> None:
    shown = dry_run(wrapping, "claude", *upstream)

    assumed = {"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"} if assumes else {}
    assert shown.environ == {"ANTHROPIC_BASE_URL": ORIGIN, "ENABLE_TOOL_SEARCH": "true"} | assumed


def test_claude_code_keeps_the_users_choice_and_its_file_is_overruled(wrapping: Wrapping) -> None:
    settle(wrapping, ".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}')

    shown = dry_run(wrapping, "claude", "--", "-p", "hi", ENABLE_TOOL_SEARCH="auto")

    assert "ENABLE_TOOL_SEARCH" not in shown.environ
    assert shown.arguments == f"""--settings '{{"env": {{"ANTHROPIC_BASE_URL": "{ORIGIN}"}}}}' -p hi"""
    assert "http://127.0.0.1:9 (messages)" in shown.row("upstream")


@pytest.mark.parametrize(
    ("settings", "login", "key", "base", "upstream"),
    [
        ("", "", "openai_base_url", "/v1", "https://api.openai.com/v1"),
        ("", '{"auth_mode": "chatgpt"}', "openai_base_url", "", "https://chatgpt.com/backend-api/codex"),
        ('openai_base_url = "http://127.0.0.1:9/v1"', "", "openai_base_url", "/v1", "http://127.0.0.1:9/v1"),
        (
            'model_provider = "mine"\n[model_providers.mine]\nbase_url = "http://127.0.0.1:9/v1"',
            "",
            "model_providers.mine.base_url",
            "/v1",
            "http://127.0.0.1:9/v1",
        ),
    ],
    ids=["key", "subscription", "own address", "own provider"],
)
def test_codex_keeps_its_provider_and_login(
    wrapping: Wrapping, settings: str, login: str, key: str, base: str, upstream: str
) -> None:
    settle(wrapping, ".codex/config.toml", settings)
    (wrapping.home / ".codex" / "auth.json").write_text(login)

    shown = dry_run(wrapping, "codex", "exec", "hi")

    assert shown.arguments == f"""-c '{key}="{ORIGIN}{base}"' exec hi"""
    assert shown.row("upstream")[0] == f"{upstream} (chat, responses)"


def test_opencode_gets_a_configuration_over_the_users(wrapping: Wrapping) -> None:
    own = '{"model": "mine/m", /* my own */ "provider": {"mine": {"options": {"baseURL": "http://127.0.0.1:9/v1"}}},}'
    settle(wrapping, ".config/opencode/opencode.jsonc", own)

    shown = dry_run(wrapping, "opencode", OPENCODE_CONFIG_CONTENT='{"theme": "x"}')

    options = {"openai": f"{ORIGIN}/v1", "anthropic": f"{ORIGIN}/v1", "mine": f"{ORIGIN}/v1"}
    assert json.loads(shown.environ["OPENCODE_CONFIG_CONTENT"]) == {
        "theme": "x",
        "provider": {name: {"options": {"baseURL": url}} for name, url in options.items()},
    }
    assert shown.row("upstream")[0] == "http://127.0.0.1:9/v1 (chat, responses)"


@pytest.mark.parametrize(
    ("agent", "path", "text", "file"),
    [
        ("pi", ".pi/agent/settings.json", "{}", "callstack.js"),
        (
            "cline",
            ".cline/data/settings/providers.json",
            '{"lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": {"settings": {}}}}',
            "providers.json",
        ),
        ("cn", ".continue/config.yaml", "models: [{name: m, provider: openai, model: m}]", "config.yaml"),
    ],
)
def test_an_agent_that_knows_only_a_file_gets_one_of_its_own(
    wrapping: Wrapping, agent: str, path: str, text: str, file: str
) -> None:
    settle(wrapping, path, text)

    shown = dry_run(wrapping, agent)

    assert shown.row("file") == [f"TEMPORARY/{file}"]
    assert f"TEMPORARY/{file}" in (shown.arguments + str(shown.environ))
    assert (wrapping.home / path).read_text() == text


@pytest.mark.parametrize(
    ("agent", "extra", "variable", "value", "upstream"),
    [
        ("grok", {}, "GROK_BASE_URL", f"{ORIGIN}/v1", "https://api.x.ai/v1"),
        ("goose", {}, "OPENAI_HOST", ORIGIN, "https://api.openai.com/v1"),
        ("aider", {}, "OPENAI_API_BASE", f"{ORIGIN}/v1", "https://api.openai.com/v1"),
        (
            "copilot",
            {"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:9/v1"},
            "COPILOT_PROVIDER_BASE_URL",
            f"{ORIGIN}/v1",
            "http://127.0.0.1:9/v1",
        ),
        *(
            (name, {}, "OPENAI_BASE_URL", f"{ORIGIN}/v1", "https://api.openai.com/v1")
            for name in ("qwen", "gptme", "mini")
        ),
    ],
)
def test_an_agent_with_a_variable_of_its_own_gets_that(
    wrapping: Wrapping, agent: str, extra: dict[str, str], variable: str, value: str, upstream: str
) -> None:
    shown = dry_run(wrapping, agent, **extra)

    assert shown.environ[variable] == value
    assert shown.row("upstream")[0] == f"{upstream} (chat, responses)"


@pytest.mark.parametrize(
    ("agent", "path", "text"),
    [
        ("aider", ".aider.conf.yml", "openai-api-base: http://127.0.0.1:9/v1"),
        ("aider", ".env", "export OPENAI_API_BASE='http://127.0.0.1:9/v1'"),
        ("mini", ".config/mini-swe-agent/.env", "A=b\nOPENAI_API_BASE=http://127.0.0.1:9/v1\n"),
        ("qwen", ".qwen/.env", "OPENAI_BASE_URL=http://127.0.0.1:9/v1"),
        ("grok", ".grok/user-settings.json", '{"baseURL": "http://127.0.0.1:9/v1"}'),
        ("goose", ".config/goose/config.yaml", "OPENAI_HOST: http://127.0.0.1:9/v1"),
    ],
)
def test_the_address_in_an_agents_own_file_is_the_upstream(
    wrapping: Wrapping, agent: str, path: str, text: str
) -> None:
    settle(wrapping, path, text)

    assert dry_run(wrapping, agent).row("upstream")[0] == "http://127.0.0.1:9/v1 (chat, responses)"


def test_aider_is_told_behind_its_own_options_which_would_win_otherwise(wrapping: Wrapping) -> None:
    shown = dry_run(wrapping, "aider", "--", "--openai-api-base", "http://127.0.0.1:9/v1")

    assert shown.arguments.endswith(f"--openai-api-base {ORIGIN}/v1 --set-env ANTHROPIC_API_BASE={ORIGIN}")
    assert shown.row("upstream")[0] == "http://127.0.0.1:9/v1 (chat, responses)"


def test_qwen_gets_settings_over_the_users_where_a_model_has_an_address(wrapping: Wrapping) -> None:
    entry = {"id": "m", "baseUrl": "http://127.0.0.1:9/v1"}
    settle(
        wrapping,
        ".qwen/settings.json",
        json.dumps({"modelProviders": {"openai": [entry]}, "model": {"name": "m"}}),
    )

    shown = dry_run(wrapping, "qwen")

    assert shown.row("upstream")[0] == "http://127.0.0.1:9/v1 (chat, responses)"
    assert shown.environ["QWEN_CODE_SYSTEM_SETTINGS_PATH"] == "TEMPORARY/settings.json"


def test_vibe_gets_its_provider_with_another_address(wrapping: Wrapping) -> None:
    shown = dry_run(wrapping, "vibe")

    [provider] = json.loads(shown.environ["VIBE_PROVIDERS"])
    assert (provider["name"], provider["api_base"]) == ("mistral", f"{ORIGIN}/v1")
    assert shown.row("upstream")[0] == "https://api.mistral.ai/v1 (chat, responses)"


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("copilot", "COPILOT_PROVIDER_BASE_URL"),
        ("cline", "cline auth"),
        ("cn", "add one there first"),
    ],
)
def test_what_an_agent_lacks_is_said_before_anything_starts(wrapping: Wrapping, agent: str, said: str) -> None:
    wrapping.install(agent)

    done = wrapping.run_wrap("--data", str(wrapping.data), agent)

    assert (done.code, done.out) == (2, "")
    assert done.errors.startswith(f"error: {agent}: ")
    assert said in done.errors
    assert not wrapping.data.exists()


def test_an_agent_that_asks_the_running_proxy_already_gets_no_second_one(wrapping: Wrapping) -> None:
    write_server_file(wrapping.data, ServerInfo("http://127.0.0.1:9", "token", 1))

    done = wrapping.run_wrap("--data", str(wrapping.data), "agent", ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    (wrapping.data / "server.json").unlink()

    assert (done.code, done.out) == (2, "")
    assert "name the proxy at http://127.0.0.1:9 already; start it without wrap" in done.errors


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("goose", "error: goose is not installed, or not on the PATH; to install it: "),
        ("gosse", "error: gosse: there is no such command on the PATH; did you mean goose? known agents: aider, "),
        ("clod", "error: clod: there is no such command on the PATH; did you mean claude? known agents: aider, "),
        ("x11", "error: x11: there is no such command on the PATH; known agents: aider, claude, "),
    ],
)
def test_an_agent_that_is_not_there_is_one_message(wrapping: Wrapping, word: str, said: str) -> None:
    done = wrapping.run_wrap(word, PATH="/nowhere")

    assert (done.code, done.out) == (127, "")
    assert done.errors.startswith(said)


def test_wrap_alone_says_which_agents_there_are(wrapping: Wrapping) -> None:
    (wrapping.folder / "codex").write_text("")
    (wrapping.folder / "codex").chmod(0o755)
    for path, here, example in (
        ("/nowhere", "none of those known is here", "claude"),
        (str(wrapping.folder), "here are codex", "codex"),
    ):
        done = wrapping.run_wrap(PATH=path)

        assert (done.code, done.out) == (2, "")
        assert done.errors.startswith(f"error: which agent? {here}. Known: aider, claude, ")
        assert done.errors.endswith(f"Type: callstack wrap {example}\n")


def test_the_network_of_a_company_is_not_asked_for_this_machine(wrapping: Wrapping) -> None:
    shown = dry_run(wrapping, "agent", HTTP_PROXY="http://proxy.example:3128", NO_PROXY="intern.example")

    assert shown.environ["NO_PROXY"] == "intern.example,127.0.0.1"


def test_a_proxy_that_cannot_start_says_why_and_the_agent_does_not_start(wrapping: Wrapping) -> None:
    (wrapping.folder / "file").touch()
    store = f"store=sqlite:{wrapping.folder / 'file' / 'x.db'}"

    done = wrapping.run_wrap(*wrapping.options(), "--set", store, "agent", "show=HOME")

    assert (done.code, done.out) == (1, "")
    assert "error: the proxy did not start, so neither did the agent; its log " in done.errors
