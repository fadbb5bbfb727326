"""litellm is looked for without an import, imported in a thread once it is needed, and never without need."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import util
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from proxy.config.model import Config
from proxy.config.sections import UpstreamSettings
from proxy.errors import InvalidConfiguration
from proxy.upstream.litellm import unavailable_reason
from proxy.upstream.routing import Routes
from tests.cli.conftest import Shell

HOUSE = Path(__file__).resolve().parents[3]
CLAUDE = Config(upstreams={"claude": UpstreamSettings(kind="litellm", models=("claude-*",))})
FLAGS = ("--set", "upstreams.claude.kind=litellm", "--set", "upstreams.claude.models=claude-*")
HERE = util.find_spec("litellm") is not None
WITHOUT = pytest.mark.skipif(HERE, reason="litellm is installed here; this is about where it is not")
LOADING = """
import asyncio, sys, threading, time
from proxy.config import UpstreamSettings
from proxy.upstream.litellm import LitellmUpstream

async def main():
    upstream = LitellmUpstream("a", UpstreamSettings(kind="litellm", models=("m",)))
    assert "litellm" not in sys.modules, "imported before anybody asked"
    upstream.warm()
    asking = [upstream.send("POST", "/v1/chat/completions", b"", [], b'{"model": "m"}') for _ in range(3)]
    waiting = [asyncio.create_task(each) for each in asking]
    beats = 0
    while not all(task.done() for task in waiting):
        await asyncio.sleep(0.01)
        beats += 1
    refused = [await (await task).body() for task in waiting]
    assert all(b"has no 'messages'" in each for each in refused), refused
    import litellm
    print(beats > 10, litellm.imported_in, litellm.environment)

asyncio.run(main())
"""
PRETENDED = """
import os, threading, time
imported_in = threading.current_thread().name
environment = os.environ["LITELLM_LOCAL_MODEL_COST_MAP"], os.environ["LITELLM_MODE"]
time.sleep(0.3)

async def acompletion(**arguments): ...
"""


JUDGING = """
import json, sys
from pathlib import Path
from proxy.upstream.litellm import unavailable_reason
from tests.upstream.litellm.test_library import versioned

def reason_of(version):
    versioned(Path(sys.argv[1]), version)
    return unavailable_reason()

reasons = {version: reason_of(version) for version in sys.argv[2:]}
assert "litellm" not in sys.modules
print(json.dumps(reasons))
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path / "data")


@pytest.fixture
def pretended(tmp_path: Path) -> Path:
    """A folder with a package that is called litellm and takes its time, and with what it would bring along."""
    (tmp_path / "litellm").mkdir()
    (tmp_path / "litellm" / "__init__.py").write_text(PRETENDED)
    (tmp_path / "httpx.py").write_text("")
    versioned(tmp_path, "1.106.2")
    return tmp_path


def versioned(folder: Path, version: str) -> None:
    noted = folder / "litellm-1.dist-info"
    noted.mkdir(exist_ok=True)
    (noted / "METADATA").write_text(f"Metadata-Version: 2.1\nName: litellm\nVersion: {version}\n")


def python(program: str, *folders: Path, words: Sequence[str] = ()) -> str:
    """What a fresh interpreter prints that finds packages in these folders before all others."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*folders, HOUSE)))}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_requests_that_come_before_the_library_is_here_wait_for_it_and_nothing_else_does(pretended: Path) -> None:
    """It takes seconds; the loop goes on meanwhile."""
    assert python(LOADING, pretended) == "True litellm ('True', 'PRODUCTION')"


def test_the_compromised_releases_and_older_ones_are_refused_without_importing_them(pretended: Path) -> None:
    told_of = {
        "1.106.2": "",
        "1.120.0": "",
        "1.106.1": "older than 1.106.2",
        "1.82.7": "compromised",
        "1.82.8": "compromised",
        "1.107.0": "compromised",
        "1.107.3rc1": "compromised",
        "1.82.70": "older",
    }

    reasons = json.loads(python(JUDGING, pretended, words=(str(pretended), *told_of)))

    assert [v for v, told in told_of.items() if not (told in reasons[v] if told else reasons[v] == "")] == []


@WITHOUT
def test_without_the_extra_the_proxy_does_not_start_and_says_what_to_install(shell: Shell) -> None:
    assert "pip install 'callstack-proxy[litellm]'" in unavailable_reason()
    with pytest.raises(InvalidConfiguration, match=r"upstreams\.claude\.kind: litellm is not installed"):
        Routes(CLAUDE)

    ended = shell.on_data("serve", "--port", "0", *FLAGS)

    assert ended.code == 2
    assert "upstreams.claude.kind: litellm is not installed; pip install 'callstack-proxy[litellm]'" in ended.errors


@WITHOUT
def test_without_the_extra_the_doctor_says_so_too(shell: Shell) -> None:
    (shell.home / "proxy.yaml").write_text("upstreams: {claude: {kind: litellm, models: [claude-*]}}\n")
    ended = shell.on_data("doctor", "--port", "0")
    assert ended.code == 1
    assert "litellm is not installed; pip install" in " ".join(ended.out.split())


@pytest.mark.skipif(not HERE, reason="litellm is not installed")
def test_with_the_extra_the_doctor_says_whose_key_is_sent(shell: Shell) -> None:
    (shell.home / "proxy.yaml").write_text("upstreams: {claude: {kind: litellm, models: [claude-*]}}\n")
    ended = shell.on_data("doctor", "--port", "0")
    assert ended.code == 0
    assert "litellm is installed, and asks with whatever key litellm finds by itself" in " ".join(ended.out.split())


def test_a_proxy_without_such_an_upstream_never_imports_litellm(pretended: Path) -> None:
    """PERFORMANCE 2: nor does one that has it, before it is warmed or asked."""
    program = (
        "import sys; from proxy.server.app import build_app; from callstack_proxy.config_sources import load_config\n"
        "build_app(load_config({'upstream': 'http://127.0.0.1:9', 'data': sys.argv[0] or '.', 'store': 'memory:'}))\n"
        "print('litellm' in sys.modules)"
    )
    assert python(program, pretended) == "False"


def test_the_example_of_the_documentation_routes_as_it_says(pretended: Path) -> None:
    page = (HOUSE / "docs/configuration.md").read_text()
    (example,) = re.findall(r"```yaml\n(upstreams:[^`]*?kind: litellm.*?)```", page, re.DOTALL)
    (pretended / "proxy.yaml").write_text(example)
    program = (
        "import sys; from pathlib import Path\n"
        "from callstack_proxy.config_sources import load_config; from proxy.upstream.routing import Routes\n"
        "config = load_config({}, {'ANTHROPIC_API_KEY': 'k'}, Path(sys.argv[1]))\n"
        "for model, path in [a.split('@') for a in sys.argv[2:]]:\n"
        "    route = Routes(config).choose(model, path); print(route.upstream.name, route.model)"
    )
    asked = ("claude-opus-5@/v1/messages", "claude-opus-5@/v1/responses", "sonnet@/v1/chat/completions",
             "nova@/v1/messages", "gpt-5@/v1/responses")  # fmt: skip
    assert python(program, pretended, words=(str(pretended / "proxy.yaml"), *asked)).splitlines() == [
        "anthropic claude-opus-5", "any anthropic/claude-opus-5", "any anthropic/claude-sonnet-4-5",
        "cloud bedrock/amazon.nova-pro-v1:0", "default gpt-5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "litellm"}, "upstreams.a: needs models, aliases or model_prefix"),
        ({"kind": "litellm", "models": "m", "verify": "false"}, "upstreams.a.verify: .*kind http"),
        ({"kind": "litellm", "models": "m", "key_header": "x-api-key"}, "upstreams.a.key_header: .*kind http"),
        ({"kind": "litelm", "models": "m"}, "upstreams.a.kind: 'litelm': did you mean litellm"),
        ({"url": "http://a", "options.region": "x"}, "upstreams.a.options: are for kind litellm"),
        ({"url": "http://a", "speaks": "chat,messges"}, "upstreams.a.speaks"),
        ({"url": "http://a", "speaks": ""}, "upstreams.a.speaks: .*must name one of chat, messages, responses"),
    ],
)
def test_a_wrong_upstream_is_told_by_its_key_and_never_with_a_secret(settings: dict[str, str], told: str) -> None:
    secret = {"upstreams.a.key": "sk-canary"}
    with pytest.raises(InvalidConfiguration, match=told) as refused:
        load_config({f"upstreams.a.{key}": value for key, value in settings.items()} | secret)
    assert "canary" not in str(refused.value)
