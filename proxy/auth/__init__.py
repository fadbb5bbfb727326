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
from proxy.auth.files import WatchedFile
from proxy.auth.keys import KEY_PREFIX, IssuedKey, KeyRing, digest_of, list_keys
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
    is_user_name,
    name_of_tenant,
    tenant_of_key,
    tenant_of_user,
)
from proxy.auth.users import UserLimits, WatchedUserLimits, read_user_limits
