"""Phrases by which people continue a task or start another one; the words are in `phrases.toml`."""

from __future__ import annotations

import msgspec

from proxy.core.word_lists import PhraseList, read_table


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of `phrases.toml`, which says of each what it is for."""

    new_topic: PhraseList
    acknowledgements: PhraseList
    greetings: PhraseList
    lets_go: PhraseList
    let_go: PhraseList
    continuations: PhraseList
    back_references: PhraseList
    instructions: PhraseList
    more_instructions: PhraseList
    transitions: PhraseList
    order_endings: PhraseList
    wants: PhraseList
    additions: PhraseList
    round_offs: PhraseList
    further_orders: PhraseList
    more_to_do: PhraseList
    once_more: PhraseList
    no_verbs: PhraseList
    pointing_words: PhraseList
    stop_words: PhraseList


PHRASES = read_table(__package__, "phrases.toml", Phrases)
