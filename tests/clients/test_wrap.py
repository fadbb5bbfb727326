"""`callstack wrap` around real agents: each does the same job without it and with it.

An agent is set up as its user would, to ask the scripted provider directly. The wrapped run gets no more than the word
`callstack wrap`, so the proxy must find out by itself where the agent points. Exit code, the written file and the files
in the home must be the same, and no file in the home may know the proxy.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llm_test_provider import Model, ReceivedRequest, ScriptedAnswer, ScriptedProvider, calls, says
from tests.clients.conftest import make_repository, run_client
from tests.clients.job import files
from tests.clients.serving import ROOT
from tests.clients.story import CLOSING, GREETING
from tests.clients.test_aider import EDIT, know_no_prices
from tests.clients.test_aider import QUIET as AIDER_QUIET
from tests.clients.test_aider import SETTINGS as AIDER_SETTINGS
from tests.clients.test_opencode import settings as opencode_settings

MODEL = "gpt-5.4"
FILE = "greeting.txt"
PROMPT = f"Write {FILE}"
WRITE = f"printf '{GREETING.rstrip()}\\n' > {FILE}"
KEY = "sk-scripted"
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]{10,}_\w+|[0-9a-fA-F]{6,}|[0-9]+")
"""What of a file's name is an id or a time."""

Settling = Callable[[Path, Path, str], None]
"""Writes what a user has set, in a home and a repository, for the provider at a URL."""


@dataclass(frozen=True)
class RealAgent:
    """An agent as its registry has it. `words` are its arguments, `environ` its variables, where `{url}` is the
    provider's URL with `/v1` and `{origin}` without. `works` are the model's answers, by the folder of the
    repository."""

    packages: tuple[str, ...]
    words: tuple[str, ...]
    works: Callable[[Path], Sequence[ScriptedAnswer]]
    environ: dict[str, str] = field(default_factory=dict)
    settle: Settling = lambda home, repository, url: None
    from_npm: bool = True
    program: str = ""
    """Else its name in the table."""
    folder: str = ""
    """Where other tests keep the same packages; else the agent's name."""
    model: str = MODEL
    is_toolless: bool = False
    """Works by text alone; others ask without tools for a title."""
    spared: frozenset[str] = frozenset()
    """Files in the home that it makes only where it is not told anything, or leaves only sometimes."""


def works_with(tool: str, **arguments: str) -> Callable[[Path], Sequence[ScriptedAnswer]]:
    """One call that writes the file; `{file}` stands for its path."""
    return lambda folder: [
        calls(tool, **{name: value.format(file=folder / FILE) for name, value in arguments.items()}),
        says(CLOSING),
    ]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def settle_codex(home: Path, _: Path, url: str) -> None:
    write(home / ".codex" / "config.toml", f'model = "{MODEL}"\nopenai_base_url = "{url}"\n')


def settle_opencode(_: Path, repository: Path, url: str) -> None:
    write(repository / "opencode.json", json.dumps(opencode_settings(url)))


def settle_qwen(home: Path, _: Path, url: str) -> None:
    entry = {"id": MODEL, "name": "mine", "baseUrl": url, "envKey": "MINE_KEY"}
    chosen = {"security": {"auth": {"selectedType": "openai"}}, "model": {"name": MODEL}}
    write(home / ".qwen" / "settings.json", json.dumps({"modelProviders": {"openai": [entry]}, **chosen}))


def settle_pi(home: Path, _: Path, url: str) -> None:
    model = {"id": MODEL, "contextWindow": 200_000, "maxTokens": 8_000}
    entry = {"baseUrl": url, "api": "openai-completions", "apiKey": KEY, "models": [model]}
    write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"mine": entry}}))
    write(home / ".pi" / "agent" / "settings.json", json.dumps({"defaultProvider": "mine", "defaultModel": MODEL}))


def settle_cline(home: Path, _: Path, url: str) -> None:
    settings = {"provider": "openai-compatible", "apiKey": KEY, "model": MODEL, "baseUrl": url}
    entry = {"settings": settings, "updatedAt": "2026-11-26T00:00:00.000Z", "tokenSource": "manual"}
    stored = {"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": entry}}
    write(home / ".cline" / "data" / "settings" / "providers.json", json.dumps(stored))


def settle_cn(home: Path, _: Path, url: str) -> None:
    model = {"name": "mine", "provider": "openai", "model": MODEL, "apiBase": url, "apiKey": KEY}
    stored = {"name": "mine", "version": "1.0.0", "schema": "v1", "models": [model]}
    write(home / ".continue" / "config.yaml", json.dumps(stored))


def settle_aider(home: Path, repository: Path, _: str) -> None:
    know_no_prices(home)
    (repository / FILE).touch()


def settle_vibe(home: Path, _: Path, url: str) -> None:
    lines = ['active_model = "mine"', "[[providers]]", 'name = "mine"', f'api_base = "{url}"', 'backend = "generic"']
    lines += ['api_key_env_var = "MINE_KEY"', "[[models]]", f'name = "{MODEL}"', 'provider = "mine"', 'alias = "mine"']
    write(home / ".vibe" / "config.toml", "\n".join(lines))


AGENTS = {
    "claude": RealAgent(
        ("@anthropic-ai/claude-code@2.1.330",),
        ("-p", PROMPT, "--dangerously-skip-permissions", "--model", "claude-opus-5-5"),
        works_with("Write", file_path="{file}", content=GREETING),
        {
            "ANTHROPIC_BASE_URL": "{origin}",
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        },
        folder="claude-code",
        model="claude-opus-5-5",
        spared=frozenset({".claude/sessions/#.json"}),  # seen once in about 30 runs: it takes it away as it ends
    ),
    "codex": RealAgent(
        ("@openai/codex@0.169.0",),
        ("exec", "--dangerously-bypass-approvals-and-sandbox", PROMPT),
        works_with("exec_command", cmd=WRITE),
        {"CODEX_API_KEY": KEY},
        settle_codex,
    ),
    "opencode": RealAgent(
        ("opencode-ai@1.18.33",),
        ("run", PROMPT),
        works_with("write", filePath="{file}", content=GREETING),
        {f"OPENCODE_DISABLE_{one}": "1" for one in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")},
        settle_opencode,
        spared=frozenset({".config/opencode/opencode.jsonc"}),
    ),
    "qwen": RealAgent(
        ("@qwen-code/qwen-code@0.15.10",),
        ("-p", PROMPT, "--yolo"),
        works_with("write_file", file_path="{file}", content=GREETING),
        {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL, "HTTP_PROXY": "", "HTTPS_PROXY": ""},
        folder="qwen-code",
    ),
    "qwen with models of its own": RealAgent(
        ("@qwen-code/qwen-code@0.15.10",),
        ("-p", PROMPT, "--yolo"),
        works_with("write_file", file_path="{file}", content=GREETING),
        {"MINE_KEY": KEY, "HTTP_PROXY": "", "HTTPS_PROXY": ""},
        settle_qwen,
        program="qwen",
        folder="qwen-code",
    ),
    "pi": RealAgent(
        ("@mariozechner/pi-coding-agent@0.73.1",),
        ("-p", PROMPT),
        works_with("write", path="{file}", content=GREETING),
        {"PI_OFFLINE": "1"},
        settle_pi,
    ),
    "cline": RealAgent(
        ("cline@3.0.65",),
        (PROMPT,),
        lambda _: [calls("run_commands", commands=[WRITE]), says(CLOSING)],
        {"CLINE_SESSION_BACKEND_MODE": "local"},
        settle_cline,
    ),
    "cn": RealAgent(
        ("@continuedev/cli@1.5.47",),
        ("-p", PROMPT, "--auto"),
        works_with("Write", filepath="{file}", content=GREETING),
        {"CONTINUE_TELEMETRY_ENABLED": "0"},
        settle_cn,
        folder="continue",
    ),
    "copilot": RealAgent(
        ("@github/copilot@1.0.102",),
        ("-p", PROMPT, "--allow-all-tools"),
        works_with("bash", command=WRITE, description="Write the greeting"),
        {
            "COPILOT_PROVIDER_BASE_URL": "{url}",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
        },
    ),
    "grok": RealAgent(
        ("@vibe-kit/grok-cli@0.0.34",),
        ("-p", PROMPT),
        works_with("create_file", path="{file}", content=GREETING),
        {"GROK_BASE_URL": "{url}", "GROK_API_KEY": KEY},
    ),
    "mini": RealAgent(
        ("mini-swe-agent==2.4.6",),
        ("-m", f"openai/{MODEL}", "-t", PROMPT, "-y", "-l", "0", "--exit-immediately"),
        lambda _: [calls("bash", command=WRITE), calls("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")],
        {
            "OPENAI_API_BASE": "{url}",
            "OPENAI_API_KEY": KEY,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        from_npm=False,
    ),
    "gptme": RealAgent(
        ("gptme==0.35.1",),
        ("-n", "--name", "job", "-m", f"openai/{MODEL}", PROMPT),
        lambda _: [says(f"```save {FILE}\n{GREETING}```"), says(f"{CLOSING}\n```complete\n```")],
        {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": KEY},
        from_npm=False,
    ),
    "aider": RealAgent(
        ("aider-chat==0.86.2",),
        (
            *(f"--no-{one}" for one in AIDER_QUIET),
            *("--model", f"openai/{MODEL}", "--edit-format", "diff", "--yes-always", "--no-git", "--map-tokens", "0"),
            *("--message", PROMPT, FILE),
        ),
        lambda _: [says(EDIT)],
        {"OPENAI_API_BASE": "{url}", **AIDER_SETTINGS},
        settle_aider,
        from_npm=False,
        is_toolless=True,
    ),
    "vibe": RealAgent(
        ("mistral-vibe==3.0.2",),
        ("-p", PROMPT, "--yolo"),
        works_with("write_file", path="{file}", content=GREETING),
        {"MINE_KEY": KEY},
        settle_vibe,
        from_npm=False,
    ),
}


@dataclass(frozen=True)
class Run:
    """A finished run of an agent, the repository it worked in, and the home it used."""

    done: "subprocess.CompletedProcess[str]"
    repository: Path
    home: Path
    settled: dict[str, bytes]
    """The files of the home before the run."""

    @property
    def rewritten(self) -> set[str]:
        """Of these, the ones that are others now."""
        return {name for name, content in self.settled.items() if (self.home / name).read_bytes() != content}

    @property
    def names(self) -> set[str]:
        """The files in the home, without ids and times. A database's side files come and go as it is closed."""
        names = (IDS.sub("#", str(file.relative_to(self.home))) for file in files(self.home))
        return {name for name in names if not name.endswith(("-wal", "-shm"))}

    def holding(self, text: bytes) -> list[Path]:
        """The files in the home with this text."""
        return [file for file in files(self.home) if text in file.read_bytes()]


@pytest.fixture
def installed(name: str, npm: Callable[..., Path], pip: Callable[..., Path]) -> Path:
    """The agent's program."""
    agent = AGENTS[name]
    install, place = (npm, "node_modules/.bin") if agent.from_npm else (pip, "bin")
    return install(agent.folder or name, *agent.packages) / place / (agent.program or name)


def play(agent: RealAgent, command: Sequence[str], provider: ScriptedProvider, kept: Path) -> Run:
    """The job, always in the same place, which then becomes the folder `kept`."""
    here = kept.parent / "here"
    repository, home = make_repository(here / "repository"), here / "home"
    home.mkdir()
    agent.settle(home, repository, provider.url)
    settled = {str(file.relative_to(home)): file.read_bytes() for file in files(home)}
    provider.will(*agent.works(repository))
    urls = {"url": provider.url, "origin": provider.url.removesuffix("/v1")}
    environ = {name: value.format(**urls) for name, value in agent.environ.items()}
    done = run_client(home, [*command, *agent.words], repository, PYTHONPATH=str(ROOT), **environ)
    assert done.returncode == 0, done.stdout
    assert provider.script.left == 0
    here.rename(kept)
    return Run(done, kept / "repository", kept / "home", settled)


@pytest.mark.rows("X-42")
@pytest.mark.parametrize("name", AGENTS)
def test_a_wrapped_agent_does_what_it_does_without_us(
    name: str, installed: Path, provider: ScriptedProvider, tmp_path: Path
) -> None:
    agent = AGENTS[name]
    wrap = [
        sys.executable,
        "-P",
        "-m",
        "callstack_proxy",
        "wrap",
        "--data",
        str(tmp_path / "data"),
        str(installed),
        "--",
    ]
    provider.when(lambda received: not received.tool_names and not agent.is_toolless, says("Greeting"), loop=True)

    direct = play(agent, [str(installed)], provider, tmp_path / "direct")
    asked = len(provider.asked)
    wrapped = play(agent, wrap, provider, tmp_path / "wrapped")

    assert (direct.repository / FILE).read_text() == (wrapped.repository / FILE).read_text() == GREETING
    assert (CLOSING in direct.done.stdout) == (CLOSING in wrapped.done.stdout)
    *_, told, last = wrapped.done.stdout.splitlines()
    told = told if last.startswith("note: too short to help yet: begins at about ") else last
    assert re.search(r"^[0-9]+ requests?, .*; look: callstack console", told)
    assert {key_of(each) for each in provider.asked[asked:]} == {key_of(each) for each in provider.asked[:asked]}
    assert all(each.header("via") for each in provider.asked[asked:])
    assert wrapped.rewritten <= direct.rewritten
    assert wrapped.names ^ direct.names <= agent.spared
    [address] = set(re.findall(rb"127\.0\.0\.1:[0-9]+", (tmp_path / "data" / "wrap.log").read_bytes()))
    assert wrapped.holding(address) == wrapped.holding(b"callstack-wrap-") == []


def key_of(received: ReceivedRequest) -> str | None:
    return received.header("x-api-key") or received.header("authorization")


@pytest.fixture
def provider(name: str) -> Iterator[ScriptedProvider]:
    with ScriptedProvider(models=[Model(AGENTS[name].model)]) as running:
        yield running


VARIABLES = "$ENABLE_TOOL_SEARCH $_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"


@pytest.mark.rows("X-42")
@pytest.mark.parametrize(("name", "host", "told"), [("claude", "api.anthropic.com", "true 1"), ("claude", "", "true ")])
def test_claude_code_knows_whether_it_asks_anthropic(
    host: str, told: str, installed: Path, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """The provider plays a proxy of the network too, so that the address may be Anthropic's."""
    provider.will(calls("Bash", command=f'echo "<{VARIABLES}>"', description="Show"), says(CLOSING))
    upstream = f"http://{host}" if host else provider.url
    network = ["--set", f"upstreams.default.proxy={provider.url.removesuffix('/v1')}"] if host else []
    wrap = [
        sys.executable,
        "-P",
        "-m",
        "callstack_proxy",
        "wrap",
        "--data",
        str(tmp_path / "data"),
        "--upstream",
        upstream,
    ]
    repository, home = make_repository(tmp_path / "repository"), tmp_path / "home"
    home.mkdir()

    agent = AGENTS["claude"]
    command = [*wrap, *network, str(installed), "--", *agent.words]
    done = run_client(home, command, repository, PYTHONPATH=str(ROOT), **{**agent.environ, "ANTHROPIC_BASE_URL": ""})

    assert done.returncode == 0, done.stdout
    assert dict(provider.asked[-1].results).popitem()[1] == f"<{told}>"
