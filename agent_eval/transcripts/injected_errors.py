"""Decide whether a value of `injected_error` describes an error, which makes a conversation an injection test.

A key, a truth value or a sentence about the injection itself describes nothing: "true", "An error was injected." and
"No error was injected." do not say what was wrong.
"""

import re

from pydantic import JsonValue

from agent_eval.formats.plain_text import folded_words

_WORDS = """
    a an the this that these those any some there here it we i was were is are be been being has have had did do does
    not no none nothing nil null nan na n never without with yes ok okay true false on off in into at of for to by and
    or as all
    error errors fault faults failure failures problem problems issue issues injection injections injected inject
    injecting introduced introduce deliberate deliberately planned made added used present absent occurred occur
    happened enabled disabled active applied
    conversation conversations session sessions run test tests case scenario slot errorinjection injectederror
    applicable available provided given specified described documented recorded known unknown undefined unspecified
    missing empty todo tbd regular normal usual same ditto one success successful see above below transcript transcripts
    es wurde wurden eingefugt injiziert geen fout fouten nessun errore nenhum erro
    нет ошибка ошибки ошибок без なし 無し エラーなし 无 没有错误 无错误
    foo bar baz xxx xx lorem ipsum dolor sit amet asdf placeholder dummy
    kein keine keiner keinen nichts ohne fehler ningun ninguno ninguna aucun aucune sin sans erreur
"""
_SAYS_NOTHING = frozenset(folded_words(_WORDS))
"""Words of which alone no description consists."""
_WHAT = r"(?:errors?|faults?|failures?|problems?)"
_DONE = r"(?:inject(?:ed)?|introduced?|planted|simulated?|applied|triggered)"
_DENIAL = re.compile(
    rf"""
    ^\W*(?:(?:none|n/?a|not\ applicable)\W*[.,;:()\[\]–—-] | nothing\s*[.;] | no\s*[,;:–—-])  # "None (a normal run)"
    | \bno\ (?:(?:deliberate|planned|artificial|further|other|actual)\ )?(?:{_WHAT}|injections?)\ (?:\w+\ ){{0,2}}{_DONE}\b
    | ^\W*(?:none|nothing)\ (?:was\ |is\ |were\ )?(?:needed|required|necessary|wrong|special)\b
    | ^\W*(?:nothing|no\ {_WHAT})\ (?:at\ all\ )?(?:went\ wrong|goes\ wrong|occurred|failed|broke|to\ report)
    | ^\W*(?:all|everything)\ (?:\w+\ ){{0,2}}(?:fine|ok|okay|well|good|normal|smoothly|worked|works)\b
    | \bno\ injected\ {_WHAT}\b | \bwithout\ (?:an?\ |any\ )?inject
    | ^\W*(?:to\ be|will\ be|not\ yet)\ (?:\w+\ )?(?:added|completed|defined|described|determined|documented|done|filled|written)\b
    | ^\W*see\ (?:\w+\ ){{0,2}}\S+$
    | (?:\bnot|\bnever|n['’]t)\ (?:been\ )?(?:given|sent|shown)\ (?:an?|any)\ {_WHAT}\b
    | \b(?:nothing|none)\ (?:\w+\ ){{0,2}}{_DONE}\b | (?:\bnot|\bnever|n['’]t)\ (?:been\ )?{_DONE}\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_STATUS = re.compile(r"[45]\d\d")
"""A text of digits that says what was wrong, as the status of HTTP."""
_FINE = range(100, 400)
"""Numbers that as the status of HTTP say that nothing was wrong."""
_MEASURE = re.compile(r"(?:status|code|errno|http)$|^(?:latency|delay|timeout)", re.IGNORECASE)
"""Keys of a number that says what was wrong."""
_OF_A_PLACE = frozenset(
    (
        *("turn", "turns", "step", "user", "agent", "tool", "call", "message", "index", "id", "kind", "type"),
        *("detected", "handled", "recovered", "passed"),
    )
)
"""Words of keys that say where an error is, or what came of it."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SWITCHES = frozenset({"injected", "isinjected", "enabled", "active", "present", "occurred", "applied"})
"""Keys that say whether there was an error."""


def describes_error(value: JsonValue) -> bool:
    """Return whether a value describes an error: it is a text, or has one, that says what was wrong.

    A number describes one only as a code or a time, e.g. {"status": 503}, and true only under a key that says what was
    wrong, e.g. {"tool_unavailable": true}. An object that says that nothing was injected, e.g.
    {"injected": false}, does not.
    """
    if isinstance(value, dict):
        denied = any(_letters(key) in _SWITCHES and _denies(flag) for key, flag in value.items())
        return not denied and any(
            _is_code(key, one) or _is_named(key, one) or describes_error(one) for key, one in value.items()
        )
    if isinstance(value, list):
        return any(map(describes_error, value))
    return isinstance(value, str) and _says_something(value)


def _says_something(text: str) -> bool:
    has_words = any(map(str.isalpha, text)) or _STATUS.fullmatch(text.strip()) is not None
    is_denial = _DENIAL.search(" ".join(text.split())) is not None
    return has_words and not is_denial and not _SAYS_NOTHING.issuperset(folded_words(text))


def _denies(flag: JsonValue) -> bool:
    return flag in (False, None) or (isinstance(flag, str) and _letters(flag) in ("", "no", "false", "none"))


def _is_code(key: str, value: JsonValue) -> bool:
    measured = _MEASURE.search(key)
    is_fine = "status" in key.casefold() and value in _FINE
    return type(value) in (int, float) and bool(value) and measured is not None and not is_fine


def _is_named(key: str, value: JsonValue) -> bool:
    words = folded_words(_CAMEL.sub(" ", key).replace("_", " "))
    return value is True and not (_SAYS_NOTHING | _OF_A_PLACE).issuperset(words)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
