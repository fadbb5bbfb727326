"""Who asks, what of, and how routes say what they take and answer: what every module of routes begins with.

The law: **an id is described as narrow as ids are**, and whatever else comes is answered like one that is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from proxy.auth import Tenant
from proxy.management.api.backstage import Backstage
from proxy.management.api.base import Error
from proxy.management.views.past import LATEST

Documented = dict[int | str, dict[str, Any]]
ERRORS: Documented = {
    400: {"model": Error, "description": "A parameter that is not as described"},
    401: {"model": Error, "description": "No key, or one that is not known here"},
    500: {"model": Error, "description": "The store could not answer"},
}
UNKNOWN: Documented = {404: {"model": Error, "description": "Not there, or not yours"}}


@dataclass(frozen=True)
class Asking:
    """Who asks, and what of. `scope` is the tenant, or None for an operator."""

    backstage: Backstage
    tenant: Tenant

    @property
    def scope(self) -> str | None:
        return None if self.tenant.admin else self.tenant.id


async def asking(request: Request) -> Asking:
    return Asking(request.state.backstage, request.state.tenant)


Asked = Annotated[Asking, Depends(asking)]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many, the newest first")]
Offset = Annotated[int, Query(ge=0, le=LATEST, description="Leave out so many of the newest")]
Id = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
"""Described as narrow as ids are; whatever else comes is no id that anything has, and answered like an unknown one."""
Thread = Annotated[str, Query(description="The path of this thread instead of the one that grew last")]
AsOf = Annotated[
    str, Query(description="As it was known then: ms since the epoch, or an ISO time (UTC without a zone)")
]
