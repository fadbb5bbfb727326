"""Serves one client request: finds its conversation and path, builds the context, asks the provider, runs stack calls,
and sends and records the answer. `pipeline.handle` is the entry point."""

from proxy.exchange import passthrough_without_turn, pipeline, stored_responses
from proxy.exchange.background.cache_pings import CacheKeepAlive
from proxy.exchange.background.frame_embedder import build_frame_embedder
from proxy.exchange.background.idle import IdleTracker, on_idle
from proxy.exchange.background.in_flight import InFlight, InFlightRequest
from proxy.exchange.background.inbox import MAX_MESSAGE_CHARACTERS, MAX_WAITING_MESSAGES, CancelledCounts, Inbox
from proxy.exchange.background.own_requests import OwnRequests
from proxy.exchange.background.recorder import RequestRecordBuilder, client_chain
from proxy.exchange.background.retention import delete_expired, delete_expired_forever
from proxy.exchange.background.scheduler import DeferredTasks
from proxy.exchange.background.stored_plans import load_plans
from proxy.exchange.background.summarizer import build_summarizer
from proxy.exchange.client_response import AsgiReply, HeldReply, Reply, send_error_response
from proxy.exchange.previous_responses import stored_extras_at
from proxy.exchange.requested_compaction import is_compaction_endpoint
from proxy.exchange.rounds import ClientRequest, Services, names_in
from proxy.exchange.services import AppServices, build_services, learned_traits
