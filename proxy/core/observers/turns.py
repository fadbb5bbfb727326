"""Decides whether a user message continues the turn before it or starts something else, and whether it asks for a
summary of the conversation.

In doubt a message continues, but an order starts something unless it is short and points back in so many words: a wrong
start costs one title, a wrong continuation the title of all that follows. Unknown languages are judged by length,
markup, names and shared words. A summary request needs a word for a summary near a word for the whole conversation,
outside fenced blocks: a summary of a file is ordinary work, and agents without calls paste command output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise, takewhile

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.memo import TextCache, late_pattern
from proxy.core.observers.phrases import PHRASES
from proxy.core.text import shorten_base64
from proxy.core.word_lists import PhraseList

MAX_TURN_TEXT_LENGTH = 4_000  # of each text; of the closing text the end
MAX_CACHED_CHARACTERS = 1 << 20  # of user messages without their markup: each is asked for with every request
MAX_SHORT_MESSAGE_WORDS = 3  # a shorter message cannot start anything unless it says so
MAX_ANSWER_WORDS = 60  # a longer message is no answer to a question
MAX_BACK_REFERENCE_WORDS = 30  # in a longer message `it` or `that` need not refer to the turn before
MAX_REFERRING_ORDER_WORDS = 12  # a longer order is about what it names, also where it says `that` or `again`
MAX_ARTICLE_ORDER_WORDS = 5  # in a longer order `the file` or `the tests` names any file or tests
RELATED_SHARE = 0.34  # of a message's topic words that the turn before has too, to be related
RELATED_INSTRUCTION_SHARE = 0.6
"""The same for a message that opens like an instruction: the next task in a project shares words anyway."""
MAX_STATEMENTS = 2  # in front of the order that a request is titled by
MAX_SENTENCES = 40  # of a message that are looked at for an order
MIN_SHARED_IDENTIFIERS = 2  # paths and identifiers in common that make a message related, whatever its words
MIN_TOPIC_WORDS = 4  # topic words of a message that can be about something else


def continues_turn(previous_text: str, closing: str, text: str) -> bool:
    """Whether `text` continues the turn from the user message `previous_text` to the assistant text `closing`. A
    message that is only client markup always continues."""
    by_wording = continues_by_wording(closing, text)
    return continues_by_topic(previous_text, closing, text) if by_wording is None else by_wording


def continues_by_wording(closing: str, text: str) -> bool | None:
    """The same by wording alone; None where it does not decide."""
    typed = typed_text_of(text)
    is_client_text = _CLIENT_TEXT.match(typed) or _TASK_NOTICE.match(text) or _CLIENT_MESSAGE.match(text)
    if not typed or is_client_text or asks_for_summary(text):
        return True
    rest = _without_acknowledgement(typed)
    further = _further_order(rest)
    if _NEW_TOPIC.search(typed[:200]):
        return bool(further) and _points_back(_outward_part(further))
    if _behind_let_go(rest):
        return False
    if (_awaits_answer(closing) and _CHOICE.match(typed)) or (rest != typed and _accepts_offer(rest)):
        return True
    words = _lowercase_words(rest)
    is_order = _INSTRUCTION.match(rest) or (_is_order(rest) and not _awaits_answer(closing))
    if len(words) <= MAX_SHORT_MESSAGE_WORDS and not is_order:
        return True
    if further:
        names_nothing = not _keyword_stems(_lowercase_words(further)) or _ROUND_OFF.match(further)
        return True if names_nothing or _points_back(_outward_part(further)) else None
    if _is_order(rest) or _ROUND_OFF.match(rest):
        if _is_continuing_order(rest) or _is_pasted_output(rest):
            return True
        return False if _is_order_on_a_finding(rest, words) and not _awaits_answer(closing) else None
    goes_on = _CONTINUATION.match(rest) and not _tells_of_more(rest)
    return True if goes_on or _is_pasted_output(rest) or _has_back_reference(rest, words) else None


def continues_by_topic(previous_text: str, closing: str, text: str) -> bool:
    """The same by the names and words in both turns, for a message whose wording does not decide."""
    awaits_answer, rest = _awaits_answer(closing), _without_acknowledgement(typed_text_of(text))
    further = _further_order(rest)
    words = _lowercase_words(further or rest)
    is_instruction = bool(further) or _is_order(rest)
    previous_text = without_media(previous_text)
    stems = _keyword_stems(words)
    previous_stems = _keyword_stems(
        _lowercase_words(f"{typed_text_of(previous_text)} {closing[-MAX_TURN_TEXT_LENGTH:]}")
    )
    shared = len(stems & previous_stems) / len(stems) if stems else 0.0
    if awaits_answer and len(words) <= MAX_ANSWER_WORDS and not (is_instruction and shared == 0):
        return True
    if (
        not is_instruction
        and len(
            _identifiers_in(rest)
            & _identifiers_in(f"{previous_text[:MAX_TURN_TEXT_LENGTH]} {closing[-MAX_TURN_TEXT_LENGTH:]}")
        )
        >= MIN_SHARED_IDENTIFIERS
    ):
        return True
    if shared >= (RELATED_INSTRUCTION_SHARE if is_instruction else RELATED_SHARE):
        return True
    return len(stems) < (1 if further and _tells_of_more(rest) else 2 if is_instruction else MIN_TOPIC_WORDS)


def _is_order(rest: str) -> bool:
    """Whether a sentence of the message asks for something to be done."""
    return any(_INSTRUCTION.match(each) or _ORDER.match(each) for each in _sentences(rest))


def _accepts_offer(rest: str) -> bool:
    """Whether what stands behind a "yes" first orders what was offered: "add them please", whatever it orders then."""
    first = _CLAUSE_BREAK.split(rest, maxsplit=1)[0]
    return _is_order(first) and _points_back(first) and not _NEXT_ORDER.match(rest)


def _is_continuing_order(rest: str) -> bool:
    """Whether an order adds to the work before it: it opens so, or it is short and points back. A relative pronoun
    points at nothing, and neither does an article, unless hardly anything else is said."""
    if _NEXT_ORDER.match(rest):
        return False
    is_round_off = _ROUND_OFF.match(rest) and len(_lowercase_words(rest)) <= MAX_REFERRING_ORDER_WORDS
    return bool(_ADDITION.match(rest) or is_round_off) or _points_back(rest)


def _points_back(rest: str) -> bool:
    words = _lowercase_words(rest)
    if len(words) > MAX_REFERRING_ORDER_WORDS:
        return False
    bare = _RELATIVE_CLAUSE.sub(" ", _THAT_CLAUSE.sub(" ", rest))
    if _POINTING_WORD.search(bare):
        return True
    return len(words) <= MAX_ARTICLE_ORDER_WORDS and _has_back_reference(bare, words)


def _further_order(rest: str) -> str:
    """What a message orders that opens with words for one more order, without these; empty for any other."""
    once_more, announced = _ONCE_MORE.match(rest), _ANNOUNCED.match(rest)
    says_more = once_more or announced or _MORE_TO_DO.match(rest)
    opening = says_more or _FURTHER_ORDER.match(rest)
    if opening is None:
        return ""
    order = _without_acknowledgement(rest[opening.end() :].lstrip(_OPENING_MARKS))
    if _is_order(order) or _ORDER_ENDING.search(order):
        return order
    is_announced = announced or rest[opening.end() :].lstrip()[:1] in _ANNOUNCING_MARKS
    if once_more or _QUESTION.search(order) or not (says_more or is_announced):
        return ""
    first, *others = _lowercase_words(order) or [""]
    return order if others and (is_announced or first not in _NO_VERBS) else ""


def _tells_of_more(rest: str) -> bool:
    """Whether a message says that it comes beside the work before it, and is no further look at that."""
    return bool(_ANNOUNCED.match(rest) or _MORE_TO_DO.match(rest)) and not _ONCE_MORE.match(rest)


def _outward_part(order: str) -> str:
    """The first sentence of an order, in which words may point back at the work before it, without the pronouns behind
    the first thing that it names: these, and all behind that sentence, may stand for what the order itself says."""
    first = _SENTENCE_BREAK.split(order, maxsplit=1)[0]
    named = _NAMED_THING.search(first)
    return first if named is None else first[: named.end()] + _PRONOUN.sub(" ", first[named.end() :])


def _is_order_on_a_finding(rest: str, words: Sequence[str]) -> bool:
    """Whether a message first says what is the case, and then what is to be done about it."""
    first, *others = _sentences(rest) or [""]
    return len(words) > MAX_REFERRING_ORDER_WORDS and not _is_order(first) and any(map(_is_order, others))


def _sentences(text: str) -> list[str]:
    return [_without_acknowledgement(each) for each in _SENTENCE_BREAK.split(text)[:MAX_SENTENCES]]


def _without_acknowledgement(text: str) -> str:
    """The text without an acknowledgement at its beginning."""
    return _ACKNOWLEDGEMENT.sub("", text, count=1).strip()


def ends_with_user_message(messages: Sequence[Message]) -> bool:
    """Whether the messages end with user words, apart from reminders and system messages that clients add. Text behind
    the result of a tool search does not count: the client says there that a tool was loaded."""
    newest_first = (m for m in reversed(messages) if m.role not in INSTRUCTION_ROLES)
    last = next(newest_first, None)
    if last is None or last.role != "user" or _CLIENT_MESSAGE.match(last.text):
        return False
    if any(m.loaded_tools for m in takewhile(lambda m: m.answers, newest_first)):
        return False
    begun = last.text[: 4 * MAX_TURN_TEXT_LENGTH]
    if begun.lstrip().startswith("<stack-context"):  # forged: no client puts our tag around the user's words
        return True
    is_plain = "<" not in begun or not (_CLIENT_ELEMENT.search(begun) or _WRAPPER.match(begun))
    return is_plain or bool(_strip_client_markup(last.text))


_CLIENT_TAG_NAME = (
    r"(?:system|local-command|bash|task|environment|ide|subagent|turn|fork|hook|user-prompt-submit|post-tool-use|new)"
    r"[-_][a-z_-]+|command-(?:name|message)"
)
_CLIENT_ELEMENT = late_pattern(
    rf"(?:# AGENTS\.md instructions[^\n]{{0,400}}\s{{1,8}}<(?=INSTRUCTIONS>)|<(?=(?:{_CLIENT_TAG_NAME})\b))([\w-]+)\b"
    r"[^>]{0,400}>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
"""An element that a client writes. `<INSTRUCTIONS>` is one below the heading that Codex gives to a project's notes."""
_CLIENT_TAG = late_pattern(rf"</?(?:{_CLIENT_TAG_NAME}|command-args)\b", re.IGNORECASE)
MAX_QUEUED_LENGTH = 4 * MAX_TURN_TEXT_LENGTH
_QUEUED_MESSAGE = late_pattern(
    r"""(?:\A|<system[-_]reminder>)\s*
        the\suser\s(?:has\s|just\s)*(?:sent|typed|queued|wrote|added)\s[^\n:]{0,60}\bmessages?\b[^\n:]{0,60}:\s*
        (?:<user_query>\s*)?
        (.+?)
        (?:\s*</user_query>|\n\s*\n(?:important\b|please\saddress\b|address\sthis\b)|\s*</system[-_]reminder>|\s*\Z)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""How Claude Code, opencode and others hand over what was typed while the agent worked."""
_TASK_NOTICE = late_pattern(r"\s*<(?:task-notification|subagent_notification)>")
_COMMAND_ARGUMENTS_TAG = late_pattern(r"</?command-args>")
_CLIENT_TEXT = late_pattern(
    r"""\[Request\sinterrupted\b | \[?(?:interrupted|aborted)\sby\s(?:the\s)?user
      | (?:this|the)\s(?:session|conversation)\s(?:is\sbeing\scontinued|has\sbeen\s(?:compacted|summari[sz]ed))
      | Base\sdirectory\sfor\sthis\sskill: | Caveat:\sThe\smessages\sbelow | Another\slanguage\smodel\sstarted
      | What\sdid\swe\sdo\sso\sfar\?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_INTERRUPTION = late_pattern(r"^[ \t]*\[Request interrupted by user[^\]\n]{0,40}\][ \t]*$", re.MULTILINE)
_CLIENT_MESSAGE = late_pattern(
    r"\s*(?:<session_context>\s*)?This is the [\w .-]{0,40}\. We are setting up the context for our chat\."
    r"|\s*<system>(?:(?!</?system>).)*</system>\s*\Z",
    re.DOTALL,
)
"""A whole message that a client wrote in the user's name: the first one of Qwen Code and Gemini CLI, and what gptme
tells a model that calls nothing. Elsewhere `<system>` may be the user's own word."""
_CHOICE = late_pattern(r"\A\W{0,2}(?:option\s)?(?:\d{1,2}|[a-d])(?:[.):,]|\s|\Z)", re.IGNORECASE)
_IMAGE_PATH = late_pattern(
    r"""^(?:['"]?[^\s'"]{1,400}\.(?:png|jpe?g|gif|webp|pdf)['"]?|'[^'\n]{1,400}\.(?:png|jpe?g|gif|webp|pdf)')$""",
    re.IGNORECASE | re.MULTILINE,
)
_SLASH_COMMAND = late_pattern(r"\A/[\w:-]*[ \t]*(?:\n|\Z)")


# Image or file parts: dialects show them as JSON with sorted keys.
_MEDIA_PART = late_pattern(
    r'\{"(?:audio|citations|context|detail|file|file_data|file_id|file_url|filename|image_url|input_audio|source|title'
    r'|type|video_url)":'
)
_IMAGE_TYPES = ("image", "image_url", "input_image")
_FILE_TYPES = ("audio", "document", "file", "input_audio", "input_file", "video_url")
_DECODER = json.JSONDecoder()
MAX_MEDIA_PARTS = 32
LONG_TEXT_LENGTH = 64 * 1024
"""Characters from which a text without its media is remembered, by its hash and length."""
MAX_CACHED_LONG_TEXTS = 64
_without_media_cache: dict[tuple[int, int, bool], str] = {}


def without_media(text: str, *, named: bool = False) -> str:
    """`text` without images and files; `named` puts a word in place of each."""
    if len(text) < LONG_TEXT_LENGTH:
        return _without_media(text, named=named)
    # Many ask for it, and a picture of 40 MB takes 0.1 s. The string knows its hash from the second time on.
    key = (hash(text), len(text), named)
    if (known := _without_media_cache.get(key)) is not None:
        return known
    rest = _without_media(text, named=named)
    if len(rest) < LONG_TEXT_LENGTH:
        _without_media_cache[key] = rest
        if len(_without_media_cache) > MAX_CACHED_LONG_TEXTS:
            _without_media_cache.pop(next(iter(_without_media_cache)), None)
    return rest


def _without_media(text: str, *, named: bool) -> str:
    if '"type":"' not in text:
        return text
    text = shorten_base64(text)
    pieces, copied_until, part_end = [], 0, 0
    for match in islice(_MEDIA_PART.finditer(text), MAX_MEDIA_PARTS):
        if match.start() < part_end:
            continue
        try:
            part, part_end = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        kind = part.get("type")
        if kind in _IMAGE_TYPES or kind in _FILE_TYPES:
            pieces += [
                text[copied_until : match.start()],
                ("[image]" if kind in _IMAGE_TYPES else "[file]") if named else " ",
            ]
            copied_until = part_end
    return "".join([*pieces, text[copied_until:]])


def typed_text_of(text: str) -> str:
    """What the user typed: without client elements, images, files, image paths, and a slash command on a line of its
    own."""
    return _strip_client_markup(without_media(text))


def order_of(text: str) -> str:
    """What the user typed; empty for a client's text."""
    typed = typed_text_of(text)
    return "" if _CLIENT_TEXT.match(typed) else typed


def _without_markup(text: str) -> str:
    """Empty, too, where nothing is said but where the user works, and with what."""
    own = _SLASH_COMMAND.sub("", _IMAGE_PATH.sub("", without_client_elements(text, 4 * MAX_TURN_TEXT_LENGTH)).strip())
    own = _behind_interruption(own)[:MAX_TURN_TEXT_LENGTH].strip()
    return own if _WRAPPER.sub(_closed_element_removed, own).strip() else ""


def _behind_interruption(text: str) -> str:
    """What was asked in place of a request that the user stopped: Claude Code joins both into one message, with a mark
    between. A mark at the beginning stopped the work before, which what follows goes on with."""
    stopped, *asked = (each.strip() for each in _INTERRUPTION.split(text))
    return next((words for words in reversed(asked) if words), stopped) if stopped else text


_strip_client_markup = TextCache(_without_markup, MAX_CACHED_CHARACTERS)


def without_client_elements(text: str, max_characters: int) -> str:
    """The text between client elements, within the first `max_characters` characters; without quotes around it all."""
    text = without_quotes_around(text)
    if "<" in text:
        text = _marked_words(text)
        text = _COMMAND_ARGUMENTS_TAG.sub("", _CLIENT_ELEMENT.sub("", text[:max_characters]))
    return without_quotes_around(text.strip())[:max_characters].strip()


def _marked_words(text: str) -> str:
    """The user's words, where a client marks them (VS Code, Cursor, Windsurf, Cline) among what it adds; else all."""
    marked = _MARKED_WORDS.search(text) if "</user" in text or "</USER_REQUEST" in text else None
    return marked[2].strip() if marked and text.lstrip().startswith("<") else text


_MARKED_WORDS = late_pattern(r"(?sm)^[ \t]*<(user_query|userRequest|USER_REQUEST|user_input)\b[^>\n]{0,40}>(.*?)</\1>")


def without_quotes_around(text: str) -> str:
    """`opencode run` sends each argument that has a blank in quotes, with `\\"` for those in it."""
    quoted = _QUOTED_WHOLE.fullmatch(text) if text[:1] == '"' else None
    return quoted[1].replace('\\"', '"') if quoted else text


_QUOTED_WHOLE = late_pattern(r'"(?!")([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*', re.DOTALL)


def queued_words(message: Message) -> str:
    """What the user typed while the agent worked, where the client hands it over in words of its own, in a system
    message or in an element; empty without any. A tool's output may say the same."""
    if message.answers or message.role not in ("user", *INSTRUCTION_ROLES):
        return ""
    text = message.text[:MAX_QUEUED_LENGTH]
    return "\n".join(found[1].strip() for found in _QUEUED_MESSAGE.finditer(text)) if "message" in text else ""


def asked_in(message: Message) -> str:
    """The text in which the user may ask for something in this message of the client; empty without any."""
    queued = queued_words(message)
    if message.role != "user" or not queued:
        return queued or (message.text if message.role == "user" else "")
    own = without_client_elements(message.text, MAX_QUEUED_LENGTH)
    return queued if not own or queued in own else f"{queued}\n{own}"


def is_client_elements(text: str) -> bool:
    """Whether the text is nothing but whole elements of a client. One that is not closed, or that has text behind its
    first closing tag, is not whole: what stands in it may have broken it open."""
    return "<" in text and not _CLIENT_ELEMENT.sub(_closed_element_removed, text).strip()


def _closed_element_removed(match: re.Match[str]) -> str:
    return "" if match[0].endswith(f"</{match[1]}>") else match[0]


def has_client_tag(text: str) -> bool:
    """Whether a tag of a client's elements stands in the text, opening or closing."""
    return "<" in text and _CLIENT_TAG.search(text) is not None


def first_user_text(texts: Iterable[str], max_characters: int) -> str:
    """The first user message that asks for something, else the first with words of its own, without client elements and
    media; if none has any, the first one, with a word for each image or file."""
    texts = tuple(texts)
    said = (without_media(text) for text in texts if not _CLIENT_MESSAGE.match(text))
    own_texts = (without_client_elements(text, max_characters) for text in said)
    said_texts = [words for words in own_texts if words]
    words = next(filter(task_text_of, said_texts), next(iter(said_texts), None))
    return without_media("".join(texts[:1]), named=True)[:max_characters] if words is None else words


def task_text_of(text: str) -> str:
    """What the user asks for, from the first sentence of the opening on that orders something, else from the first one:
    without a greeting, thanks or praise in front of it, words for one more order or of what kind the task is, and what
    a client adds. Empty where nothing else is said. It is what a request is titled by, so a slash command or an image
    on a line of its own is left out."""
    if _CLIENT_MESSAGE.match(text):
        return ""
    text = _IMAGE_PATH.sub("", _SLASH_COMMAND.sub("", text.lstrip())).strip() or text
    words = _WRAPPER.sub("", _CLIENT_ELEMENT.sub("", _marked_words(text)))
    text = said = _NO_TASK.sub("", _behind_interruption(words)).strip()
    if _CLIENT_TEXT.match(text):
        return ""
    while (before := _BEFORE_TASK.match(said)) and (_LETS_GO.match(said) or not _is_order(before[0])):
        said = said[before.end() :].strip()
    said = _TAKEN_BACK.sub("", _behind_let_go(said) or said, count=1)
    if (further := _further_order(_without_acknowledgement(said))) and not _WANT.match(further):
        return _as_sentence(_WISH.sub("", further, count=1))
    task = _without_introduction(said)
    task = _without_introduction(task[_begin_of_order(task[:MAX_TURN_TEXT_LENGTH]) :])
    task = _WISH.sub("", task, count=1)
    return text if task == text else _as_sentence(_TRANSITION.sub("", task, count=1).strip() or task)


def _behind_let_go(said: str) -> str:
    """What stands behind a sentence that lets the work before it go; empty without one, or where it orders nothing by
    itself."""
    behind = said[found.end() :].strip() if (found := _LET_GO_SENTENCE.match(said)) else ""
    first = _INSTEAD.sub("", _SENTENCE_END.split(behind, maxsplit=1)[0])
    return behind if _orders_by_itself(first) else ""


def bare_task(text: str) -> str:
    """What a text asks for, to compare it: without case, words such as "please" in front, and the marks at its end."""
    bare = _TRANSITION.sub("", task_text_of(text), count=1)
    return " ".join(bare.split()).casefold().rstrip(" .!\u3002\uff01")


def _without_introduction(said: str) -> str:
    introduction = _INTRODUCTION.match(said)
    return said if introduction is None or _is_order(introduction[0]) else said[introduction.end() :]


def _begin_of_order(said: str) -> int:
    """Where an order begins behind one or two statements that open a message; 0 without one."""
    opening = _PARAGRAPH.split(said, maxsplit=1)[0]
    starts = [found.end() for found in islice(_SENTENCE_END.finditer(opening), MAX_STATEMENTS)]
    first = opening[: starts[0]] if starts else ""
    if not _STATEMENT.match(first) or _is_order(first) or _QUESTION.search(first):
        return 0
    sentences = (opening[start:end] for start, end in pairwise((*starts, len(opening))))
    return next((start for start, sentence in zip(starts, sentences, strict=True) if _orders_by_itself(sentence)), 0)


def _orders_by_itself(sentence: str) -> bool:
    """Whether a sentence orders something without pointing at what was said before."""
    is_order = _INSTRUCTION.match(sentence) or _ORDER.match(sentence) or _PLEASE.match(sentence)
    is_long = len(_lowercase_words(sentence)) > MAX_SHORT_MESSAGE_WORDS
    return bool(is_order) and is_long and not (_PRONOUN.search(sentence) or _points_back(sentence))


_PARAGRAPH = late_pattern(r"\n\s*\n")
_SENTENCE_END = late_pattern(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")
_STATEMENT = late_pattern(r"(?:i|we|you|they|it|this|that|these|there|here|the|an?|my|our|your)\b", re.IGNORECASE)
_PLEASE = late_pattern(
    r"please\s(?!(?:note|see|find|don.?t|do\snot|never)\b)\w|consider\sthe\b|(?:have|take)\sa\slook\b", re.IGNORECASE
)


def _as_sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a name that is spelt otherwise."""
    first = text.split(maxsplit=1)[0].rstrip(",:") if text.strip() else ""
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


_TOPIC_NOUN = r"(?:task|topic|issue|ticket|feature|subject|project|thing|question)"
_BEFORE_TASK = late_pattern(
    rf"""(?:{PHRASES.greetings.pattern}|{PHRASES.acknowledgements.pattern})
        (?:\s[\w'-]{{1,20}}){{0,3}}[ \t]*(?:[,.!;:\u3002\uff01\uff0c]+|\n|\Z)
      | (?:it['\u2019]?s|that['\u2019]?s|this\sis|looks|sounds)\s(?:\w+\s)?
        (?:perfect|great|good|fine|ok(?:ay)?|nice|excellent|awesome)[ \t]*(?:[.!,;]+|\n|\Z)
      | (?!right\s){PHRASES.acknowledgements.pattern}\s(?={PHRASES.transitions.pattern}\s)
      | [^\n]{{1,100}}?(?:[.!;,]\s|[\u3002\uff0c\uff01\uff1b]|\n)\s*(?:
          (?:new|next|another|different|separate)\s(?:{_TOPIC_NOUN}|request)
        |{PHRASES.new_topic.pattern})\s*(?:[:\uff1a]|-\s)
      | {PHRASES.new_topic.pattern}\s*(?:[.!,;:\uff0c\uff1a\u2013\u2014]|-\s)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A greeting, thanks or praise in a few words that end with a mark, a line or "now", or words for another task, also
behind a sentence that says what is not to be done."""
_TAKEN_BACK = late_pattern(
    r"\A[^\n]{0,300}?(?:[.!,;:\u2014-]|\b(?:sorry|no|wait|actually))\s(?:(?:scrap|forget|ignore)\s(?:it|that|this)|never\s?mind)"
    r"\s*[.!,;:]\s+(?=\S)",
    re.IGNORECASE,
)
_TRANSITION = late_pattern(rf"\A(?:{PHRASES.transitions.pattern}[\s,:]*)+", re.IGNORECASE)
_LETS_GO = late_pattern(
    rf"(?:{PHRASES.acknowledgements.pattern}[\s,.]*)*(?:{PHRASES.lets_go.pattern}|{PHRASES.let_go.pattern})",
    re.IGNORECASE,
)
_LET_GO_SENTENCE = late_pattern(
    rf"{PHRASES.let_go.pattern}(?:\s(?:for\s(?:now|today)|aside|alone))?\s*[.!;]\s+", re.IGNORECASE
)
_INSTEAD = late_pattern(r"\binstead\b,?\s?", re.IGNORECASE)
_WISH = late_pattern(
    r"""\A(?:i|we)(?:['\u2019]d|\swould)?\s(?:also\s|now\s)?(?:want|need|like)\s
        (?:(?:to\s)?(?:have|get|see)\s(?=an?\s) | (?:you\s)?to\s(?!(?:know|ask|be|see|have)\b) | (?=an?\s))""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands in front of what somebody wants: a thing, or that something be done."""


_WRAPPER = late_pattern(
    r"""(?:^[ \t]*|(?<=>))
        <((?:[a-z]+[_-])*(?:info|contexts?|details|files?|status|rules|env|environment|workspace|metadata|history
          |reminders?|settings|preferences|timestamp|date|time|cwd|memory|memories|layout)|user_instructions
          |EnvironmentContext|editorContext|reminderInstructions|stack-context)
        \b[^>]{0,400}>.*?(?:</\1>|\Z)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""What clients put around the user's words: where they work, and with what. Inside of a line it is a tag of HTML."""
_NO_TASK = late_pattern(
    r"""^[ \t]*(?: [(\[](?!(?:image|file)\]|[x ]\])[^()\[\]\n]{1,80}[)\]]
          | (?:[\w.~-]*/){2,20}[\w.~-]* | </?\w[^<>\n]{0,80}>
          | (?:user|human|assistant|system)\s?: )[ \t]*$""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""A line of its own that asks for nothing: a remark in brackets, a path, a tag, who speaks."""
_INTRODUCTION = late_pattern(
    rf"""(?: [^.:!?\n`\d]{{0,60}}\b(?:{_TOPIC_NOUN}|one|else)\b[^.:!?\n`\d]{{0,40}}
           | before\b[^.:!?\n`]{{1,80}} ):\s+(?=\S)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Says of what kind the task behind it is, or what comes later: "Next thing, a small one of its own:"."""
_NEW_TOPIC = late_pattern(
    rf"(?:\b(?:new|next|another|different|separate|unrelated|second|other)\s{_TOPIC_NOUN}\b"
    rf"|\b(?:get|go)\sback\sto\b|{PHRASES.new_topic.pattern})",
    re.IGNORECASE,
)
_ACKNOWLEDGEMENT = late_pattern(rf"\A(?:{PHRASES.acknowledgements.pattern}[\s\W]*)+", re.IGNORECASE)
_CONTINUATION = late_pattern(PHRASES.continuations.pattern, re.IGNORECASE)
_INSTRUCTION = late_pattern(
    rf"""(?:(?:{PHRASES.transitions.pattern}|ok\b)[\s,:]*)*
        (?:(?:can|could|would|will)\s(?:you|we)\s(?:please\s|now\s|help\sme\s)?
          | let's\s(?:now\s)? | let\sus\s | help\sme\s(?:to\s)? | your\stask\sis\sto\s
          | (?:i|we)(?:'d|\swould)?\s(?:also\s)?(?:want|need|like|have|should)\s(?:you\s)?(?:to\s)? )?
        (?:(?:now|please|next)\s)?
      (?: {PHRASES.instructions.pattern}
        | .{{1,30}}を(?:追加|実装|作成|修正|書い|説明) )""",
    re.IGNORECASE | re.VERBOSE,
)


_ORDER = late_pattern(
    rf"""(?:(?:{PHRASES.transitions.pattern}|also\b|ok\b)[\s,:]*)*
      (?: (?:i|we)(?:'d|\swould)?\s(?:also\s|now\s)?(?:want|need|like)\b
        | (?:(?:can|could|would|will)\s(?:you|we)\s(?:please\s|now\s|also\s)?)?
          {PHRASES.more_instructions.pattern}
        | {PHRASES.wants.pattern} )""",
    re.IGNORECASE | re.VERBOSE,
)
_FURTHER_ORDER = late_pattern(PHRASES.further_orders.pattern, re.IGNORECASE)
_MORE_TO_DO = late_pattern(PHRASES.more_to_do.pattern, re.IGNORECASE)
_WANT = late_pattern(PHRASES.wants.pattern, re.IGNORECASE)
_ONCE_MORE = late_pattern(
    r"(?:and\s)?(?:one\s(?:more|last|final)|another)\s(?:quick\s|small\s|short\s|final\s)?"
    rf"{PHRASES.once_more.pattern}",
    re.IGNORECASE,
)
_ANNOUNCED = late_pattern(
    r"(?:(?:and\s)?(?:one|two|a|another)\s(?:(?:more|last|final|further|small|quick|other)\s){1,2}\w{3,12}"
    r"|next(?:\sup)?)\s?(?:[:,\u2013\u2014]|-\s)",
    re.IGNORECASE,
)
_ORDER_ENDING = late_pattern(
    rf"(?:{'|'.join(PHRASES.order_endings.unspaced.split())})[\s\u3002\uff01!.]*\Z|して[\s\u3002\uff01!.]*\Z"
)
_NAMED_THING = late_pattern(r"\b(?:the|an?|my|our|your|all|every|each)\s\w+", re.IGNORECASE)
_PRONOUN = late_pattern(r"\b(?:its?|they|them|their)\b", re.IGNORECASE)
_NEXT_ORDER = late_pattern(
    rf"""(?:now|next|jetzt|nun|maintenant|ahora|agora|adesso|теперь)\b[\s,:]*(?:please\s)?{PHRASES.instructions.pattern}
        \s(?:it|that|this|them|all\sof\s(?:it|that))\s(?!again\b)(?:\w+\s)?(?:in|into|to|for|on|as)\s
        (?!the\sother\b[^.!?\n]*\b(?:too|as\swell)\b)(?:(?:the|an?|our|my|its)\s|[\w.-]*[./])""",
    re.IGNORECASE | re.VERBOSE,
)
"""Orders the next thing to be made of what was done, "now document it in the guide", and not the same elsewhere."""
_NO_VERBS = frozenset(PHRASES.no_verbs.spaced.split())
_ANNOUNCING_MARKS = (":", "\uff1a", "-", "\u2013", "\u2014")
_OPENING_MARKS = " \t\r\n,.;!\u3001\uff0c" + "".join(_ANNOUNCING_MARKS)
_ADDITION = late_pattern(PhraseList(PHRASES.additions.spaced, PHRASES.continuations.unspaced).pattern, re.IGNORECASE)
_ROUND_OFF = late_pattern(PHRASES.round_offs.pattern, re.IGNORECASE)
_POINTING_WORD = late_pattern(
    PhraseList(PHRASES.pointing_words.spaced, PHRASES.back_references.unspaced).pattern, re.IGNORECASE
)
_RELATIVE_CLAUSE = late_pattern(
    r"""\b(?:an?|the|any|all|every|each|some|no|only|its|our|my|your)\s(?:[\w.'`/-]+\s){0,3}
        (?!(?:in|of|on|to|for|at|by|with|from)\s)[\w.'`/-]+\sthat\b(?=\s\w)
      | \b(?:\w{2,}s|something|anything|everything|nothing|someone|one)\sthat\b(?=\s\w)
      | \bas\swell\sas\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""`the texts that mean null`: what `that` points at stands before it. And `as well as` points at nothing."""
_CLAUSE_BREAK = late_pattern(r"[,;.!?:\n]|\s[-\u2013\u2014]\s|\band\b")
_SENTENCE_BREAK = late_pattern(r"(?<=[.!?;:])\s+|\n+|(?<=[\u3002\uff01\uff1f])")


_BACK_REFERENCE = late_pattern(rf"{PHRASES.back_references.pattern}|\btoo\s\w+", re.IGNORECASE)
_THAT_CLAUSE = late_pattern(
    r"\b(?:so|such|sure|ensure|means?|know|think|says?|find|check|verify)\sthat\b|\w+\sthat\s(?:\w+s|can|will|is|are)\b",
    re.IGNORECASE,
)


def _has_back_reference(rest: str, words: Sequence[str]) -> bool:
    """The word "that" before a clause is no reference."""
    if len(words) > MAX_BACK_REFERENCE_WORDS:
        return False
    return bool(_BACK_REFERENCE.search(_THAT_CLAUSE.sub(" ", rest)))


_OUTPUT_LINE = late_pattern(
    r"""^\s*(?: [$\u276f\u279c>%]\s\S | [+-]\s*\d*\s | \|\s
             | Traceback\s | at\s\S+\( | File\s" | [\w.]*(?:Error|Exception)\b\s*:? | E\s{2,}
             | (?:error|fatal|warning|panic)\b\s*: | error\b | ---\s(?:FAIL|PASS) | FAILED\b | npm\s(?:ERR|error)
             | \d{4}-\d\d-\d\d[T\s]\d | \[?\d\d:\d\d:\d\d | \S+:\d+:[\d\s] )""",
    re.VERBOSE | re.IGNORECASE,
)


def _is_pasted_output(rest: str) -> bool:
    """Pasted command output: it opens with such a line, or consists mostly of them."""
    lines = [line for line in rest.splitlines() if line.strip()][:40]
    hits = [bool(_OUTPUT_LINE.match(line)) for line in lines]
    return bool(hits) and (hits[0] or (len(hits) > 2 and 2 * sum(hits) > len(hits)))


_QUESTION = late_pattern(r"[?\uff1f]")
_OFFER_OF_MORE = late_pattern(
    r"anything else|something else|what(?:'s| is) next|what would you like (?:me )?to (?:do|work on) next|"
    r"how (?:can|may) i help|what can i do for you|noch etwas|sonst noch|autre chose|algo más|mais alguma coisa",
    re.IGNORECASE,
)
_REQUEST_FOR_INPUT = late_pattern(
    r"\b(?:please (?:provide|confirm|tell|share|choose|specify)|let me know (?:which|what|how|your|whether|once|when)|"
    r"which (?:one|option)|waiting (?:for|on) your|your (?:choice|preference|call)|once you (?:confirm|run|have))\b",
    re.IGNORECASE,
)
_CLOSING_TAIL_LENGTH = 400


def _awaits_answer(closing: str) -> bool:
    """Whether the closing text waits for an answer; "anything else?" does not."""
    end = closing.rstrip()[-_CLOSING_TAIL_LENGTH:]
    last_paragraph = end.rpartition("\n\n")[2] or end
    asks = bool(_QUESTION.search(last_paragraph) or _REQUEST_FOR_INPUT.search(last_paragraph))
    return asks and not _OFFER_OF_MORE.search(last_paragraph)


_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = late_pattern(rf"[{_UNSPACED}]{{2}}|[^\W_](?:(?![{_UNSPACED}])[\w./-])*")
_STOP_WORDS = frozenset(PHRASES.stop_words.spaced.split())
_STEM_LENGTH = 5  # letters: "parser" and "parsing" are one word


def _lowercase_words(text: str) -> list[str]:
    return [word.strip("./-") for word in _WORD.findall(text.casefold())]


def _keyword_stems(words: Sequence[str]) -> frozenset[str]:
    """Stems of the topic words; of a path its last part."""
    bare = (word.rpartition("/")[2] for word in words if word not in _STOP_WORDS)
    return frozenset(word[:_STEM_LENGTH] for word in bare if word and not word.isdigit())


def topic_keywords(text: str) -> frozenset[str]:
    """Stems of the topic words that the user typed."""
    return _keyword_stems(_lowercase_words(typed_text_of(text)))


_CAMEL_CASE = late_pattern(r"[A-Za-z][a-z0-9]*[A-Z]\w*")
_SURROUNDING_PUNCTUATION = ".,:;!?'\"`*()[]{}<>"
MAX_IDENTIFIER_LENGTH = 120


def _identifiers_in(text: str) -> frozenset[str]:
    """Paths (last part), files, options and identifiers, as spelt."""
    words = (word.strip(_SURROUNDING_PUNCTUATION) for word in text.split() if len(word) <= MAX_IDENTIFIER_LENGTH)
    return frozenset(word.rpartition("/")[2] for word in words if _is_identifier(word))


def _is_identifier(word: str) -> bool:
    bare = word.lstrip("-")
    if not bare[:1].isalnum() and bare[:1] not in "_~./":
        return False
    return word.startswith("--") or any(mark in bare for mark in "_./") or bool(_CAMEL_CASE.fullmatch(bare))


SUMMARY_REQUEST_WINDOW = 3_000  # at the beginning and at the end, where the order stands around quoted text
MAX_WORD_DISTANCE = 140  # between the two words, on one line
MAX_SUMMARY_WORDS = 40
_SUMMARY_STEMS = ("summar", "compact", "handoff", "hand-off", "handover", "hand-over", "recap", "condens", "snapshot")
"""Cheap pre-check: nearly every message has none of them."""
_SUMMARY_WORD = late_pattern(
    r"\b(?:summar(?:y|ies|i[sz]e|i[sz]ing)|compact(?:ion|ing)?|hand-?(?:off|over)|recap(?:itulate)?|condense"
    r"|state_snapshot)\b",
    re.IGNORECASE,
)
_WHOLE_CONVERSATION = late_pattern(
    r"""
    \b(?:this|the|our|your|whole|entire|full|above|previous|prior|earlier)\s(?:\w+\s){0,2}
      (?:conversation|chat|dialogue?|discussion|transcript|message\shistory|session)(?:\s(?:history|context))?\b
      (?=\s*(?:[^\w\s]|\Z)|\s+(?:according|so|up|until|to|till|above|and|or|as|for|in|into|that|which|before|with|from|we|you|i|now)\b)
  | \b(?:conversation|chat|session|work|everything)\s(?:so\sfar|up\sto\s(?:now|this\spoint)|until\snow|to\sdate|above)\b
  | \banother\s(?:llm|language\smodel|model|agent|assistant)\b
  | \bcontext\s(?:window|checkpoint)\b|\bgenerate\sthe\s<state_snapshot>
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SUMMARY_OPENING = late_pattern(
    r"""\A\W{0,3}(?:(?:here\sis|below\sis|the\sfollowing\sis|this\sis)\s(?:a|the)\s(?:\w+\s){0,2}summary
      | (?:this|the)\s(?:session|conversation)\s(?:is\sbeing|was|has\sbeen)\s
      | another\s(?:language\smodel|llm|model|agent)\s(?:started|began|worked|has)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_FENCE = late_pattern(r"^[ \t]{0,9}(```|~~~)[`~]{0,9}(.*)$", re.MULTILINE)


def asks_for_summary(text: str) -> bool:
    """Whether a user text, or the client's, asks for a summary of the conversation."""
    if not _asks_at_either_end(text) or _SUMMARY_OPENING.match(without_client_elements(text, SUMMARY_REQUEST_WINDOW)):
        return False
    said = _without_fenced_blocks(text)
    return len(said) == len(text) or _asks_at_either_end(said)


def _without_fenced_blocks(text: str) -> str:
    """Without fenced blocks. An unclosed fence is kept, because an order may follow a badly quoted block."""
    outside, at, opened = [], 0, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1] == opened[1] and not fence[2].strip():
            outside.append(text[at : opened.start()])
            at, opened = fence.end(), None
    return "".join([*outside, text[at:]])


def _asks_at_either_end(text: str) -> bool:
    ends = (
        (text,)
        if len(text) <= 2 * SUMMARY_REQUEST_WINDOW
        else (text[:SUMMARY_REQUEST_WINDOW], text[-SUMMARY_REQUEST_WINDOW:])
    )
    return any(map(_mentions_summary_and_conversation, ends))


def _mentions_summary_and_conversation(text: str) -> bool:
    low = text.lower()
    if not any(stem in low for stem in _SUMMARY_STEMS):
        return False
    for word in islice(_SUMMARY_WORD.finditer(text), MAX_SUMMARY_WORDS):
        start = max(word.start() - MAX_WORD_DISTANCE, text.rfind("\n", 0, word.start()) + 1)
        line_end = text.find("\n", word.end())
        end = min(word.end() + MAX_WORD_DISTANCE, line_end if line_end >= 0 else len(text))
        if _WHOLE_CONVERSATION.search(text, start, end):
            return True
    return False
