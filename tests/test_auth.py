"""Who a request belongs to, and the client keys that say so."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callstack_proxy.management.issued_keys import issue_key, limit_key, revoke_key
from proxy.auth import ANONYMOUS_TENANT, LOCAL_TENANT, KeyRing, Tenant, TenantResolver, UsageLimits, list_keys
from proxy.config.model import Tenancy as Mode
from proxy.errors import InvalidConfiguration, Unauthorized

SECRET = b"store secret"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def tenant(mode: Mode, file: Path, *headers: tuple[str, str], secret: bytes = SECRET) -> Tenant:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return TenantResolver(mode, KeyRing(file), secret).tenant_of(raw)


def bearer(key: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {key}")


def test_with_single_everybody_is_the_same_and_sees_all(file: Path) -> None:
    assert tenant("single", file) == tenant("single", file, bearer("sk-1")) == LOCAL_TENANT
    assert LOCAL_TENANT.admin


@pytest.mark.parametrize("form", ["authorization", "lower", "x-api-key", "x-stack-key"])
def test_a_client_key_is_known_in_every_header_clients_can_send(file: Path, form: str) -> None:
    key = issue_key(file, "alice")
    header = {"authorization": bearer(key), "lower": ("Authorization", f"bearer  {key}")}.get(form, (form, key))
    assert tenant("key", file, header) == Tenant("key-alice", "alice")


def test_a_client_key_beside_the_clients_own_provider_key_is_the_one_that_counts(file: Path) -> None:
    key = issue_key(file, "alice")
    assert tenant("key", file, bearer("sk-provider"), ("x-stack-key", key)).name == "alice"
    assert tenant("key", file, bearer("sk-provider"), ("x-api-key", key)).name == "alice"


def test_an_admin_key_says_so(file: Path) -> None:
    assert tenant("key", file, bearer(issue_key(file, "root", admin=True))).admin


@pytest.mark.parametrize("presented", ["", "csk_", "csk_wrong", "sk-provider", "csk_\xe9"])
def test_a5_without_a_known_client_key_there_is_no_way_in(file: Path, presented: str) -> None:
    issue_key(file, "alice")
    with pytest.raises(Unauthorized, match="client key") as refused:
        tenant("key", file, bearer(presented))
    assert presented not in str(refused.value) or not presented.startswith("csk_w")
    with pytest.raises(Unauthorized):
        tenant("key", file)


@pytest.mark.rows("X-25")
def test_the_key_of_one_user_does_not_open_another(file: Path) -> None:
    """X-25."""
    alice, bob = issue_key(file, "alice"), issue_key(file, "bob")
    assert tenant("key", file, bearer(alice)).id != tenant("key", file, bearer(bob)).id
    with pytest.raises(Unauthorized):
        tenant("key", file, bearer(alice[:-1]))


def test_a_revoked_key_ends_at_once_in_a_running_proxy(file: Path) -> None:
    key = issue_key(file, "alice")
    ring = KeyRing(file)
    assert ring.identify(key.encode()) is not None
    assert revoke_key(file, "alice")
    assert ring.identify(key.encode()) is None
    assert not revoke_key(file, "alice")


def test_a_key_issued_while_the_proxy_runs_is_known_at_once(file: Path) -> None:
    ring = KeyRing(file)
    assert ring.identify(b"csk_x") is None
    assert ring.identify(issue_key(file, "alice").encode()) is not None


def test_a_keys_file_that_cannot_be_read_admits_nobody(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = issue_key(file, "alice")
    ring = KeyRing(file)
    assert ring.identify(key.encode()) is not None
    file.write_text("{")
    with caplog.at_level(logging.WARNING):
        assert ring.identify(key.encode()) is None
    assert "cannot be read" in caplog.text
    with pytest.raises(InvalidConfiguration, match=r"keys\.json"):
        list_keys(file)
    with pytest.raises(InvalidConfiguration):
        issue_key(file, "bob")


def test_a8_keys_lie_hashed_in_a_file_that_only_its_owner_reads(file: Path) -> None:
    key = issue_key(file, "alice")
    assert key.startswith("csk_")
    assert len(key) > 40
    assert key not in file.read_text()
    assert key[4:] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in file.parent.iterdir()] == ["keys.json"]
    assert [(one.name, one.admin) for one in list_keys(file)] == [("alice", False)]


@pytest.mark.parametrize("name", ["alice", "", "../x", "a b", "a\n", "-a", "a" * 65])
def test_a_name_that_is_taken_or_no_name_is_refused(file: Path, name: str) -> None:
    """A9."""
    issue_key(file, "alice")
    with pytest.raises(InvalidConfiguration, match="key name"):
        issue_key(file, name)


def test_keys_that_cannot_be_written_are_told_with_their_place(file: Path) -> None:
    file.parent.symlink_to(file.parent.with_name("gone"))  # permissions would not stop a test that runs as root
    with pytest.raises(InvalidConfiguration, match=r"keys\.json: the client keys cannot be written"):
        issue_key(file, "alice")


def test_with_credential_each_provider_key_is_a_tenant(file: Path) -> None:
    first = tenant("credential", file, bearer("sk-1"))
    assert first == tenant("credential", file, ("x-api-key", "sk-1")) == tenant("credential", file, bearer("sk-1"))
    assert first.id != tenant("credential", file, bearer("sk-2")).id
    assert first.id != tenant("credential", file, bearer("sk-1"), secret=b"another store").id
    assert "sk-1" not in repr(first)
    assert not first.admin


def test_with_credential_those_without_a_key_are_one_tenant(file: Path) -> None:
    assert tenant("credential", file) == ANONYMOUS_TENANT


@pytest.mark.parametrize(
    "value",
    [
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "Bearer sk-ant-oat01-abc",
        "Bearer ya29.abc",
        "AWS4-HMAC-SHA256 Credential=A/20261121/eu/bedrock/aws4_request, SignedHeaders=host, Signature=f",
        "Digest username=a",
    ],
)
def test_with_credential_a_login_or_a_signature_is_refused_with_the_reason(file: Path, value: str) -> None:
    with pytest.raises(Unauthorized, match="stays the same") as refused:
        tenant("credential", file, ("authorization", value))
    assert value.split(" ")[1] not in str(refused.value)


def test_with_credential_a_client_key_works_and_a_wrong_one_is_refused(file: Path) -> None:
    assert tenant("credential", file, bearer(issue_key(file, "root", admin=True))).admin
    with pytest.raises(Unauthorized):
        tenant("credential", file, bearer("csk_wrong"))


def test_limits_of_a_key_are_replaced_and_its_hash_stays(file: Path) -> None:
    key = issue_key(file, "alice", limits=UsageLimits(usd=5, models=("a",)))
    issue_key(file, "bob")

    assert limit_key(file, "alice", UsageLimits(tokens=7, per="day"))
    assert not limit_key(file, "nobody", UsageLimits())

    assert tenant("key", file, bearer(key)).limits == UsageLimits(tokens=7, per="day")
    assert [issued.limits for issued in list_keys(file)] == [UsageLimits(tokens=7, per="day"), UsageLimits()]


def test_a_file_from_before_there_were_limits_is_read(file: Path) -> None:
    key = issue_key(file, "alice")
    assert "limits" not in file.read_text()
    assert tenant("key", file, bearer(key)).limits == UsageLimits()


def test_of_many_changes_of_a_file_at_once_none_is_lost(file: Path) -> None:
    names = [f"key{number}" for number in range(40)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: issue_key(file, name), names))
        assert sorted(key.name for key in list_keys(file)) == sorted(names)
        revoked = list(pool.map(lambda name: revoke_key(file, name), names[:-1]))

    assert all(revoked)
    assert [key.name for key in list_keys(file)] == names[-1:]
