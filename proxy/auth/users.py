"""What the users whom a proxy in front names may use (`tenancy: header`): the limits of every user, and those of some
by name, in a file that every process reads anew when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.auth.budgets import NO_LIMITS, UsageLimits
from proxy.auth.files import WatchedFile
from proxy.errors import BudgetUnknown, InvalidConfiguration


class UserLimits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    everybody: UsageLimits = NO_LIMITS
    """For each user who has none of their own."""
    users: Mapping[str, UsageLimits] = {}
    """They stand in place of `everybody`, by the name of the user."""

    def of(self, name: str) -> UsageLimits:
        return self.users.get(name, self.everybody)


def read_user_limits(file: Path) -> UserLimits:
    """No limits if there is no file. Raises InvalidConfiguration if it is unreadable."""
    try:
        return UserLimits.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return UserLimits()
    except (OSError, ValidationError):
        raise InvalidConfiguration(
            f"{file}: the limits of users cannot be read; restore the file or remove it"
        ) from None


class WatchedUserLimits:
    def __init__(self, file: Path) -> None:
        self._file = WatchedFile(file, read_user_limits, UserLimits())

    def of(self, name: str) -> UsageLimits:
        """Raises BudgetUnknown if the file cannot be read: limits that nobody can check admit nothing."""
        limits = self._file.read()
        if limits is None:
            raise BudgetUnknown("The limits of users cannot be read now; the proxy's log says why. Try again later.")
        return limits.of(name)
