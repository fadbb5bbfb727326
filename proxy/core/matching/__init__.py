"""Finds the conversation that a request continues: by its content, as clients resend their history and mostly send no
id."""

from proxy.core.matching import guess_subagent_parent, lookup_keys, match_history, walk_history
from proxy.core.matching.first_request import is_beginning, opening_messages
from proxy.core.matching.match_history import RequestRole
from proxy.core.matching.match_result import Match, MatchKind
from proxy.core.matching.quotes import Quote, find_quote, message_texts_of, split_into_pieces
from proxy.core.matching.recognize_retry import RETRY_WINDOW_MS, match_retry
from proxy.core.matching.restarted_conversation import answered_summary_request, match_quoted, match_restarted
from proxy.core.matching.walk_history import walk
