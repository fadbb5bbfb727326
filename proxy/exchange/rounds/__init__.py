"""Rounds: what one exchange with the provider takes, from the client's request to the body that is sent."""

from proxy.exchange.rounds.client_request import (
    HASHED_APART_BYTES,
    MAX_MESSAGES,
    ClientRequest,
    Services,
    SharedServices,
    count_request_tokens,
    is_too_long,
    names_in,
    parse_client_request,
    placement_patience_s,
    without_refused_usage,
)
from proxy.exchange.rounds.fallbacks import Fallbacks
from proxy.exchange.rounds.fit_context import ContextFitter, ContextRejected
from proxy.exchange.rounds.form_ladder import Refusal
from proxy.exchange.rounds.provider_turns import ProviderTurn
from proxy.exchange.rounds.round_sender import RoundSender
from proxy.exchange.rounds.shorten_request import OversizedRequest, quotes_of, shorten_request
