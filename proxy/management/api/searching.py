"""The route that looks for words in finished frames, whatever conversation they are of.

The law: **it leaves nobody's own frames**: the tenant is in the question to the store, as on every route.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proxy.management.api.asking import Asked
from proxy.management.api.base import Json
from proxy.management.views.search import MOST, FoundRows, found_rows

MOST_CHARACTERS = 2_000
"""Of a query; the first words of it count (`finding.MOST_WORDS`)."""

router = APIRouter()


@router.get("/search", response_model=FoundRows)
async def search(
    asked: Asked,
    q: Annotated[str, Query(min_length=1, max_length=MOST_CHARACTERS, description="Words; no syntax")],
    limit: Annotated[int, Query(ge=1, le=MOST, description="At most so many, the best first")] = 10,
) -> Response:
    """Finished frames that have all these words in title, criteria, results, files or decisions; where none has, those
    that come close."""
    return Json(await found_rows(asked.backstage.store, asked.scope, q, limit))
