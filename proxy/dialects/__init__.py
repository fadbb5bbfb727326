"""Wire formats: request and response bytes to values and back, without I/O. `DIALECTS` lists them by path."""

from proxy.dialects import body, raw_json
from proxy.dialects.base import (
    CLIENT_RESPONSE_KEY,
    AppendedTools,
    Dialect,
    RenderOptions,
    ResponseReferences,
    ResponseWriter,
    never_holds_compaction,
)
from proxy.dialects.body import holds_text_alone, list_in, object_in
from proxy.dialects.brief_tools import BriefTools, brief_tools
from proxy.dialects.chat.message import text_blocks_of
from proxy.dialects.chat.request import OPENAI_CHAT
from proxy.dialects.compose import DialectComposer
from proxy.dialects.dialect_list import DIALECTS, dialect_at, dialect_named
from proxy.dialects.error_bodies import ProviderFailure, read_failure
from proxy.dialects.links import answers_program, links_in
from proxy.dialects.messages.request import ANTHROPIC_MESSAGES
from proxy.dialects.parse_cache import (
    ParseCache,
    RequestParseError,
    SliceCache,
    countable_text,
    countable_texts,
    token_count_steps,
    with_token_counts,
)
from proxy.dialects.raw_json import replace_surrogates
from proxy.dialects.responses.request import OPENAI_RESPONSES
from proxy.dialects.secret_members import without_secrets
from proxy.dialects.strict_tools import common_strictness, with_strictness
from proxy.dialects.synthetic_responses import OwnResponse, previous_id_in
from proxy.dialects.tool_references import loaded_tools
from proxy.dialects.usage import (
    COST_HEADER,
    compaction_usages,
    cost_of_header,
    cost_of_usage,
    merge_usage,
    tells_cached_tokens,
    usage_of,
)
