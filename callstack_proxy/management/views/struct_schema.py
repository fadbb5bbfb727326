"""Describes msgspec structs to pydantic, so that a response is described by the record that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class StructSchema:
    """Stands in an annotation of a response: `Annotated[Receipt, StructSchema()]`. Pydantic
    describes it, and reads it by msgspec."""

    def __get_pydantic_core_schema__(self, source: type[msgspec.Struct], handler: GetCoreSchemaHandler) -> CoreSchema:
        convert = partial(msgspec.convert, type=source)
        return core_schema.no_info_plain_validator_function(convert, metadata={"struct": source})

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        (schema,), definitions = msgspec.json.schema_components((core["metadata"]["struct"],), ref_template="{name}")
        described: dict[str, Any] = _inlined(schema, definitions)
        return described


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """`schema` with what it refers to in its place. No record of ours holds itself."""
    if isinstance(schema, Mapping):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    return [_inlined(each, definitions) for each in schema] if isinstance(schema, list) else schema
