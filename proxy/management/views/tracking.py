"""How subagents are tracked, as people read and set it: the names of the tool, with what was set among them (S1-118).

What this module does not do: it decides nothing (`live_settings` does), and asks nobody who he is.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypedDict

from proxy.config.runtime import LiveSettings, tracking, with_pattern, without_pattern
from proxy.config.sections import MOST
from proxy.core import safe_regex as rules
from proxy.core.tools.config import values
from proxy.errors import BadRequest

Count = Annotated[StrictInt, Field(ge=0, le=MOST)]
Pattern = Annotated[str, Field(min_length=1, max_length=rules.LONGEST)]


class Tracking(TypedDict):
    """Times are milliseconds. `changed` are the names of what was set while a proxy ran."""

    enabled: bool
    minDuration: int
    minMessageCount: int
    autoCompleteOnIdle: bool
    idleCompletionDelay: int
    injectParentContext: bool
    propagateSummaries: bool
    patterns: list[str]
    changed: list[str]


class TrackingWanted(BaseModel):
    """What is to hold from now on, for everybody. What is left out stays as it is; null goes back to what the
    configuration says."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool | None = None
    min_duration: Count | None = Field(None, alias="minDuration")
    min_messages: Count | None = Field(None, alias="minMessageCount")
    auto_complete: StrictBool | None = Field(None, alias="autoCompleteOnIdle")
    idle_delay: Annotated[StrictInt, Field(ge=100, le=MOST)] | None = Field(None, alias="idleCompletionDelay")
    parent_context: StrictBool | None = Field(None, alias="injectParentContext")
    patterns: Annotated[list[Pattern], Field(max_length=rules.MOST)] | None = None
    add_pattern: Pattern | None = Field(None, alias="addPattern")
    remove_pattern: Pattern | None = Field(None, alias="removePattern")

    def by_key(self, holds: tuple[str, ...]) -> dict[str, Any]:
        """What was said, by key; `holds` are the patterns now. Raises BadRequest."""
        said = self.model_dump(exclude_unset=True, exclude={"add_pattern", "remove_pattern"})
        if self.add_pattern is None and self.remove_pattern is None:
            return said
        if "patterns" in said:
            raise BadRequest("patterns says all of them; leave out addPattern and removePattern, or patterns.")
        if self.remove_pattern is not None:
            holds = without_pattern(holds, self.remove_pattern)
        if self.add_pattern is not None:
            holds = with_pattern(holds, self.add_pattern)
        return {**said, "patterns": holds}


NAMES = {key: field.alias or key for key, field in TrackingWanted.model_fields.items()}
"""What each key of `subagent` is called here."""


def told(live: LiveSettings) -> Tracking:
    """What holds, and which of it was set."""
    holds = {**values(tracking(live.subagent)), "changed": [NAMES[key] for key in live.chosen]}
    return cast(Tracking, holds)
