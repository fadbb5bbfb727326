"""A stage in every dialect for what is exported from a real run, and the small ledger for what is looked at by hand."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from callstack_proxy.management.export import ExportOptions, format_named
from callstack_proxy.management.export import files as writing
from callstack_proxy.management.export.importer import ImportResult, import_conversation
from callstack_proxy.management.export.source import ExportInput, load_export_input
from llm_test_provider import Model, ScriptedProvider
from proxy.accounting.tariff import ReasoningBinding
from proxy.store.interface import Record
from proxy.store.sql import open_store
from tests.client_dialects import TONGUES, TestDialect
from tests.harness import RecordingProvider, RunningProxy, Stage, running_stage
from tests.management.api.small_ledger import Written, records_of

Json = dict[str, Any]


# ------------------------------------------------------------------------------------------------------------ real runs
@pytest.fixture(params=list(TONGUES.values()), ids=lambda tongue: tongue.short)
def tongue(request: pytest.FixtureRequest) -> TestDialect:
    spoken: TestDialect = request.param
    return spoken


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> Iterator[ScriptedProvider]:
    """Where reasoning is signed, it is refused behind anything but what it was made behind."""
    spoken: TestDialect | None = request.getfixturevalue("tongue") if "tongue" in request.fixturenames else None
    binding: ReasoningBinding = "error" if spoken and spoken.signs else "none"
    with RecordingProvider(models=[Model("scripted-model", binding=binding)]) as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path, tongue: TestDialect) -> Iterator[Stage]:
    with running_stage(provider, tmp_path, streamed=True, tongue=tongue) as running:
        yield running


def exported(proxy: RunningProxy, kind: str, **options: str) -> bytes:
    """What `/stack` hands out of the only conversation."""
    conversation = proxy.conversations[0]["id"]
    return proxy.file(f"/stack/conversations/{conversation}/export?{urlencode({'format': kind, **options})}")


# ------------------------------------------------------------------------------------------------------- by hand, on
# disk
@dataclass(frozen=True)
class ExportStores:
    """Stores by name below one folder, each opened for one thing at a time."""

    folder: Path

    def fill(self, name: str, records: list[Record], tenant: str = "local") -> None:
        asyncio.run(self._fill(name, records, tenant))

    async def _fill(self, name: str, records: list[Record], tenant: str) -> None:
        store = open_store("sqlite", self.folder / name)
        await store.start()
        await store.wait_until_durable(store.write(tenant, records))
        await store.close()

    def material(self, name: str, conversation: str, tenant: str = "local", thread: str = "") -> ExportInput:
        async def read() -> ExportInput:
            store = open_store("sqlite", self.folder / name)
            await store.start()
            ledger = await store.load(tenant, conversation)
            assert ledger is not None
            found = await load_export_input(store, ledger, thread)
            await store.close()
            return found

        return asyncio.run(read())

    def export(self, material: ExportInput, kind: str, name: str, options: ExportOptions | None = None) -> Path:
        place = self.folder / name
        writing.write_export(format_named(kind), material, options or ExportOptions(), place)
        return place

    def take_in(self, name: str, place: Path, tenant: str = "local") -> ImportResult:
        async def take() -> ImportResult:
            store = open_store("sqlite", self.folder / name)
            await store.start()
            try:
                return await import_conversation(store, tenant, place)
            finally:
                await store.close()

        return asyncio.run(take())

    def conversations(self, name: str) -> list[str]:
        async def count() -> list[str]:
            store = open_store("sqlite", self.folder / name)
            await store.start()
            found = await store.conversations(None)
            await store.close()
            return [conversation.id for conversation in found]

        return asyncio.run(count())


@pytest.fixture
def stores(tmp_path: Path) -> ExportStores:
    return ExportStores(tmp_path)


@dataclass(frozen=True)
class Small:
    """The small conversation, as material."""

    written: Written
    material: ExportInput


@pytest.fixture
def small(stores: ExportStores) -> Small:
    records, ids = records_of("local", "a")
    stores.fill("from", records)
    return Small(ids, stores.material("from", ids.conversation))


def document(place: Path) -> Json:
    told: Json = json.loads(place.read_bytes())
    return told


def lines(place: Path) -> list[Json]:
    return [json.loads(line) for line in place.read_bytes().splitlines()]


def files_in(place: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
