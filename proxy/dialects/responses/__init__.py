"""The wire format of OpenAI's responses API."""

from proxy.dialects.responses import provider_turn, stored_turn
from proxy.dialects.responses.items import REASONING, read_run
from proxy.dialects.responses.stored_turn import client_view
