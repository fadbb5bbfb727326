"""The compose file: no engine runs here, so what it says is checked against the Dockerfile and the settings."""

import re
from pathlib import Path
from typing import Any

import yaml

from proxy.config.sources import load_config

HOUSE = Path(__file__).resolve().parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((HOUSE / "deploy" / "compose.yaml").read_text())
DOCKERFILE = (HOUSE / "Dockerfile").read_text()


def test_its_settings_are_settings() -> None:
    [service] = COMPOSE["services"].values()
    environ = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in service["environment"].items()}

    config = load_config(environ={**environ, "STACK_UPSTREAM": "https://api.example.com", "STACK_TENANCY": "key"})
    assert list(config.upstreams) == ["default"]
    assert service["stop_grace_period"] == "40s"
    assert config.drain_s < 40


def test_it_writes_to_its_volume_alone_and_has_no_rights() -> None:
    [service] = COMPOSE["services"].values()

    [volume] = service["volumes"]
    assert volume.split(":") == [*COMPOSE["volumes"], "/data"]
    assert "VOLUME /data" in DOCKERFILE
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["ports"] == ["127.0.0.1:8787:8787"]
    assert "privileged" not in service
