"""The pages say in a sentence why a request was passed on unchanged."""

import re
from pathlib import Path

from llm_test_provider import ScriptedProvider, says
from tests.management.console.conftest import Person
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of

SENTENCE = "Passed on unchanged, since the proxy does not act here yet: the client offers no tools"


def test_a_reason_is_a_sentence_on_the_request_and_in_the_list(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        provider.will(says("done"))
        assert ask(proxy.origin, body_of("a task")).status == 200
        person = Person(proxy.origin)
        assert person.open_link().status == 303
        [conversation] = proxy.page("/stack/conversations")["conversations"]

        page = person.get(f"/console/conversations/{conversation['id']}").body.decode()
        [request] = re.findall(r'<th scope="row"><a href="(/console/requests/\w+)"', page)

        assert f'<bdi class="soft">{SENTENCE}' in page
        assert f"<b><bdi>{SENTENCE}" in person.get(request).body.decode()
