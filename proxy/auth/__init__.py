"""Who a request is from, and what that client may do."""

from proxy.auth.budgets import (
    NO_LIMITS,
    USER_TENANT_PREFIX,
    BudgetChecks,
    BudgetPeriod,
    CostEstimate,
    Reservation,
    UsageLimits,
    days_since_1970,
    holder_of,
    period_at,
    sum_usage,
)
from proxy.auth.files import WatchedFile, change_file, replace_file
from proxy.auth.keys import IssuedKey, KeyRing, issue_key, limit_key, limits_of_key, list_keys, revoke_key
from proxy.auth.limited_requests import LimitedRequest, check_countable, check_models
from proxy.auth.tenancy import (
    ANONYMOUS_TENANT,
    LOCAL_TENANT,
    STACK_KEY_HEADER,
    Headers,
    Tenant,
    TenantResolver,
    has_operator_token,
    holds_client_key,
    name_of_tenant,
    tenant_of_key,
    tenant_of_user,
)
from proxy.auth.users import UserLimits, WatchedUserLimits, limit_everybody, limit_user, read_user_limits, reset_user
