"""The files of `deploy/`: no container engine runs here, so what they say is checked against the Dockerfile, the
settings, and the programs they are for, where those are installed."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from callstack_proxy.config_sources import load_config
from tests.replicas_behind_nginx import nginx_program, write_nginx_conf

HOUSE = Path(__file__).resolve().parents[1]
DEPLOY = HOUSE / "deploy"
DOCKERFILE = (HOUSE / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
REPLICAS: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())
KUBERNETES: dict[str, Any] = {
    each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
}
ALONE, SHARED = COMPOSE["services"]["callstack"], REPLICAS["services"]["callstack"]


def settings_of(environment: dict[str, str]) -> dict[str, str]:
    """What compose passes on where nobody sets its variables, or a word where one must be set."""
    filled = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in environment.items()}
    return {name: re.sub(r"\$\{\w+:\?.*?\}", "secret", value) for name, value in filled.items()}


@pytest.mark.parametrize("service", [ALONE, SHARED])
def test_the_settings_are_settings(service: dict[str, Any]) -> None:
    given = {"STACK_UPSTREAM": "https://api.example.com", "STACK_TENANCY": "key"}
    config = load_config(environ={**settings_of(service["environment"]), **given})

    assert list(config.upstreams) == ["default"]
    assert config.is_store_shared is (service is SHARED)
    assert service["stop_grace_period"] == "40s"
    assert config.drain_s < 40


@pytest.mark.parametrize(("compose", "service"), [(COMPOSE, ALONE), (REPLICAS, SHARED)])
def test_it_writes_to_its_volume_alone_and_has_no_rights(compose: dict[str, Any], service: dict[str, Any]) -> None:
    [volume] = service["volumes"]
    name, place = volume.split(":")
    assert name in compose["volumes"]
    assert place == "/data"
    assert "VOLUME /data" in DOCKERFILE
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert all("privileged" not in each for each in compose["services"].values())


def test_only_loopback_is_published() -> None:
    services = [each for compose in (COMPOSE, REPLICAS) for each in compose["services"].values()]
    published = [port for each in services for port in each.get("ports", ())]

    assert published == ["127.0.0.1:8787:8787"] * 2


def test_images_of_others_are_named_by_their_digests() -> None:
    services = [each for compose in (COMPOSE, REPLICAS) for each in compose["services"].values()]
    bases = {re.search(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)[1]}  # type: ignore[index]
    froms = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    named = {each["image"] for each in services if "build" not in each} | bases

    assert froms == {"python:${PYTHON}"}
    assert [each for each in named if not re.fullmatch(r"[\w.:-]+@sha256:[0-9a-f]{64}", each)] == []


def test_the_image_has_a_driver_for_the_shared_store() -> None:
    lock = (HOUSE / "requirements.lock").read_text()

    assert re.search(r"^psycopg-binary==", lock, re.MULTILINE)
    assert "callstack-proxy[otel,postgres]" in DOCKERFILE


# ------------------------------------------------------------------------------------------------------------ balancer
def test_nginx_takes_its_file(tmp_path: Path) -> None:
    if (nginx := nginx_program()) is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    done = subprocess.run(
        [nginx, "-t", "-p", tmp_path, "-c", write_nginx_conf(tmp_path, [1])], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_nginx_streams_waits_and_never_sends_twice() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    config = load_config()

    assert "proxy_buffering off;" in text
    assert "proxy_request_buffering off;" in text
    assert "proxy_read_timeout 1h;" in text
    assert re.search(r"proxy_next_upstream error;", text), "a request that was sent must not be sent again"
    assert f"client_max_body_size {config.body_limit_bytes >> 20}m;" in text


# ---------------------------------------------------------------------------------------------------------- kubernetes
def test_the_pods_have_no_rights_and_end_in_peace() -> None:
    pod = KUBERNETES["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}" in DOCKERFILE
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] > load_config().drain_s + 5


def test_secrets_come_by_reference() -> None:
    [container] = KUBERNETES["Deployment"]["spec"]["template"]["spec"]["containers"]
    by_name = {each["name"]: each for each in container["env"]}

    assert all("secretKeyRef" in by_name[name]["valueFrom"] for name in ("STACK_STORE", "STACK_UPSTREAM"))
    plain = {name: each["value"] for name, each in by_name.items() if "value" in each}
    config = load_config(
        environ={**plain, "STACK_STORE": "postgresql://a@b/c", "STACK_UPSTREAM": "https://example.com"}
    )
    assert config.is_store_shared


def test_probe_service_and_budget_are_about_the_same_pods() -> None:
    deployment = KUBERNETES["Deployment"]["spec"]
    [container] = deployment["template"]["spec"]["containers"]
    labels = deployment["template"]["metadata"]["labels"]

    assert deployment["selector"]["matchLabels"] == labels
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    assert KUBERNETES["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert KUBERNETES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    [port] = container["ports"]
    assert f"EXPOSE {port['containerPort']}" in DOCKERFILE
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    host = container["readinessProbe"]["httpGet"]["httpHeaders"][0]
    assert host == {"name": "Host", "value": "localhost"}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"] for each in deployment["template"]["spec"]["volumes"]}
    assert set(mounts.values()) == volumes
