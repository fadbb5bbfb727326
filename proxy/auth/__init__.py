"""Who a request is from, and what that client may do."""

from proxy.auth.budgets import (
    NO_LIMITS,
    BudgetChecks,
    BudgetPeriod,
    KeyLimits,
    days_since_1970,
    period_at,
    sum_usage,
)
from proxy.auth.keys import KEY_PREFIX, IssuedKey, KeyRing, issue_key, limit_key, limits_of_key, list_keys, revoke_key
from proxy.auth.tenancy import (
    ANONYMOUS_TENANT,
    LOCAL_TENANT,
    STACK_KEY_HEADER,
    Headers,
    Tenant,
    TenantResolver,
    console_code,
    has_operator_token,
    holds_client_key,
    name_of_tenant,
    tenant_of_key,
)

__all__ = [
    "ANONYMOUS_TENANT",
    "KEY_PREFIX",
    "LOCAL_TENANT",
    "NO_LIMITS",
    "STACK_KEY_HEADER",
    "BudgetChecks",
    "BudgetPeriod",
    "Headers",
    "IssuedKey",
    "KeyLimits",
    "KeyRing",
    "Tenant",
    "TenantResolver",
    "console_code",
    "days_since_1970",
    "has_operator_token",
    "holds_client_key",
    "issue_key",
    "limit_key",
    "limits_of_key",
    "list_keys",
    "name_of_tenant",
    "period_at",
    "revoke_key",
    "sum_usage",
    "tenant_of_key",
]
