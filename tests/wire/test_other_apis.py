"""Paths of APIs that the proxy does not speak: a 404 that names the API and says what to do."""

from __future__ import annotations

import pytest

from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedProvider
from proxy.errors import NotFound
from proxy.server.other_apis import other_api_of, refuse_other_api
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask

PATHS = {
    "/v1beta/models/gemini-2.5-pro:generateContent": "Gemini",
    "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse": "Gemini",
    "/v1beta/models/gemini-2.5-pro%3AgenerateContent": "Gemini",
    "/v1/models/gemini-2.5-flash:countTokens": "Gemini",
    "/models/gemini-embedding-001:embedContent/": "Gemini",
    "/v1alpha/models/gemini-3-pro:generateContent/": "Gemini",
    "/v1beta/interactions": "Gemini",
    "/v1/projects/p/locations/global/publishers/google/models/gemini-2.5-pro:streamGenerateContent": "Vertex AI",
    "/v1/projects/p/locations/global/publishers/anthropic/models/claude-4@20250514:streamRawPredict": "Vertex AI",
    "/projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4:rawPredict": "Vertex AI",
    "/v1/projects/p/locations/global/cachedContents": "Vertex AI",
    "/v1beta1/publishers/google/models/gemini-2.5-flash:generateContent": "Vertex AI",
    "/model/anthropic.claude-sonnet-4-v1:0/converse": "Bedrock",
    "/model/us.anthropic.claude-sonnet-4-v1:0/invoke-with-response-stream": "Bedrock",
    "/model/us.anthropic.claude-sonnet-4-v1%3A0/converse-stream": "Bedrock",
    "/model/amazon.nova-pro-v1:0/invoke": "Bedrock",
}
OURS = [
    "/v1/chat/completions",
    "/v1beta/openai/chat/completions",
    "/v1/projects/p/locations/l/endpoints/openapi/chat/completions",
    "/v1/models",
    "/v1/models/ft:gpt-4.1:org::id",
    "/v1/models/llama3:8b",
    "/v1/embeddings",
    "/v1/organization/projects/p",
    "/model/info",
    "/v1/fine_tuning/jobs",
    "/api/generate",
]


@pytest.mark.rows("X-38")
@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_another_api_is_answered_404_with_what_to_do(
    proxy: ServedProxy, provider: ScriptedProvider, path: str
) -> None:
    told = ask(proxy.origin, {"contents": []}, path=path)

    assert (told.status, provider.received) == (404, [])
    assert told.json["error"]["code"] == "other_api"
    message = told.json["error"]["message"]
    assert f"of {PATHS[path]}," in message
    assert f"{proxy.origin}/v1 " in message
    assert "litellm" in message


@pytest.mark.parametrize("path", OURS)
def test_any_other_path_passes(proxy: ServedProxy, provider: ScriptedProvider, path: str) -> None:
    provider.will(ScriptedAnswer(instead=FixedReply(200, b"{}")))
    ask(proxy.origin, {"input": ""}, path=path)
    (received,) = provider.received
    assert received.path in (path, f"/v1{path}")


@pytest.mark.rows("X-38")
def test_a_provider_that_speaks_it_is_asked() -> None:
    api = other_api_of("/v1beta/models/gemini-2.5-pro:generateContent")
    assert api is not None
    refuse_other_api(api, "https://generativelanguage.googleapis.com", "localhost")
    for url in ("https://api.openai.com/v1", "https://googleapis.com.evil.example", "https://notgoogleapis.com"):
        with pytest.raises(NotFound):
            refuse_other_api(api, url, "localhost")
