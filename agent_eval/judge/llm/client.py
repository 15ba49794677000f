"""The client: one call of one model, through litellm. What the provider says comes out as plain values, or as CallError.

litellm costs seconds to import, so that happens with the first call. Its retries, caches, callbacks and logs are
off: trying again, storing and telling are the engine's business, and its logs would print what is sent.
"""

import asyncio
import difflib
import functools
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import urlsplit

from agent_eval.judge.llm.budget import Price, Usage
from agent_eval.judge.llm.redaction import redact
from agent_eval.judge.llm.transport import EXCHANGE, MEGABYTE, Exchange, Failure, install
from agent_eval.judge.prompts import Messages, Prompt, marked

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no download of prices at import
    # OpenAI-compatible servers are called without the OpenAI SDK, which walks through every schema and message
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER": "True",
}
_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|size)|maximum context|prompt is too long|too many (?:input )?tokens|exceeds? the.{0,20}context",
    re.IGNORECASE,
)
FORMS = ("json_schema", "json_object", "text")
"""How the form of a reply is demanded: the next one where a server refuses one. From the second on it stands in the prompt."""
_RUNGS: dict[str, int] = {}
"""Model → the first of FORMS that its server has not refused."""
_NO_FORM = re.compile(r"response_format|json_schema|json_object|structured output|grammar", re.IGNORECASE)
_STAND_INS: set[str] = set()
_LOCAL_PROVIDERS = {"ollama", "ollama_chat", "lm_studio", "llamafile"}
_SERVERS = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
}
"""Providers whose models litellm lists, with the variables that name another server, which may have any model."""
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}
"""Models that `_make_known` entered."""


@dataclass(frozen=True)
class Reply:
    """What came back."""

    text: str
    usage: Usage
    is_truncated: bool = False
    is_filtered: bool = False
    refusal: str | None = None  # the model declined to answer, in its words
    model: str | None = None  # that answered, as the provider names it
    fingerprint: str | None = None  # of the system behind it
    dropped: tuple[str, ...] | None = None  # parameters that this model is asked without; None: not known


class CallError(Exception):
    """A call that gave no reply. The detail holds no secrets."""

    def __init__(self, failure: Failure, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail
        self.retry_after_s = retry_after_s


class _FormRefusedError(Exception):
    """The server takes no reply of the form that was demanded."""


class Client(Protocol):
    """Calls one model."""

    @property
    def model(self) -> str: ...

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """One call; `form` gives the schema of the reply.

        Raises:
            CallError: If there is no reply.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, in the event loop that used them."""
        ...


@dataclass(frozen=True)
class LiteLLMClient:
    """Any model that litellm knows by name; base URLs and keys come from the environment, as litellm reads them."""

    model: str
    temperature: float = 0.0
    timeout_s: float = 60.0  # of the whole call, to the last byte of the reply
    price: Price | None = None  # None: litellm's own, where it has one
    max_reply_mb: float = 4.0  # unpacked

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """One call; a server that refuses the form of the reply is asked again with the next of FORMS at once."""
        litellm = imported()
        _hide_from_logging()
        _make_known(self.model)
        while True:
            rung = _RUNGS.get(self.model, 0)
            try:
                return await self._complete(litellm, messages, form, max_tokens, rung)
            except _FormRefusedError:
                _RUNGS[self.model] = max(_RUNGS.get(self.model, 0), rung + 1)

    async def _complete(
        self, litellm: Any, messages: Messages, form: Prompt, max_tokens: int, rung: int
    ) -> Reply:
        exchange = Exchange(int(self.max_reply_mb * MEGABYTE))
        token = EXCHANGE.set(exchange)
        if has_marks := caches_marked_blocks(self.model):
            # a schema stands before the prompt in such a cache, and differs from turn to turn
            sent, rung = marked(messages), FORMS.index("text")
        else:
            sent = [dict(message) for message in (form.with_skeleton(messages) if rung else messages)]
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await litellm.acompletion(
                    model=self.model,
                    messages=sent,
                    **_response_format(form, rung),
                    temperature=self.temperature,
                    max_tokens=max_tokens,
                    timeout=self.timeout_s,
                    drop_params=True,  # models without a temperature or a schema are asked without
                    num_retries=0,
                    max_retries=0,
                )
            dropped = dropped_parameters(self.model, self.temperature)
            if has_marks and dropped is not None:
                dropped = tuple(sorted({*dropped, "response_format"}))
            return _reply(response, self.price, dropped, exchange.refusal)
        except Exception as error:
            failed = self._call_error(litellm, error, exchange)
            if failed.failure == "refused" and rung + 1 < len(FORMS) and _NO_FORM.search(failed.detail):
                raise _FormRefusedError from None
            raise failed from None  # the original's message may hold a key
        finally:
            EXCHANGE.reset(token)

    def _call_error(self, litellm: Any, error: Exception, exchange: Exchange) -> CallError:
        """What went wrong, sorted by what to do about it."""
        if exchange.failure is not None:
            return CallError(exchange.failure, redact(exchange.detail))
        headers = getattr(error, "litellm_response_headers", None)
        failure = _failure(litellm, error, has_answer=headers is not None)
        if failure == "connection" and exchange.is_connected:
            failure = "server"  # it was reached: the reply broke off, or cannot be read
        if failure == "timeout":
            return CallError(failure, redact(_too_slow(self.timeout_s)), _retry_after_s(headers))
        return CallError(failure, redact(f"{type(error).__name__}: {error}"), _retry_after_s(headers))

    async def close(self) -> None:
        """Close litellm's connections."""
        await imported().close_litellm_async_clients()


def price_of(model: str) -> Price | None:
    """The price that litellm knows of a model; None where it knows none."""
    if model in _STAND_INS:
        return None
    try:
        info = imported().get_model_info(model)
    except Exception:  # an unknown model is an Exception of no class of its own
        return None
    sent, received = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    if sent is None or received is None:
        return None
    cached, written = (
        None if (cost := info.get(f"cache_{name}_input_token_cost")) is None else cost * 1e6
        for name in ("read", "creation")
    )
    return Price(sent * 1e6, received * 1e6, cached, written)


@functools.cache
def caches_marked_blocks(model: str) -> bool:
    """Return whether a model's provider caches only what is marked: Anthropic, and Claude on Bedrock and Vertex."""
    try:
        name, provider, *_ = imported().get_llm_provider(model)
    except Exception:  # an unknown model: the call itself says what is wrong with it
        return False
    hosts = ("bedrock", "bedrock_converse", "vertex_ai", "vertex_ai_beta")
    return provider == "anthropic" or (provider in hosts and "claude" in str(name).lower())


def problem_of(model: str, *, is_listed: bool = False) -> str | None:
    """Return why no call to a model can succeed, as far as litellm and the environment say; None if nothing does.

    An unknown provider, a provider's API key that is not set, and a model of OpenAI's or Anthropic's own servers that
    litellm does not list, unless `is_listed` says that it exists.
    """
    litellm = imported()
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:  # an unknown provider is an Exception of litellm, of no class of its own
        return f"Judge model {model!r}: its provider is not known.{_nearest(model)} Write provider/model, e.g. openai/gpt-4o-mini"
    lacking = litellm.validate_environment(model=model)["missing_keys"]
    keys = [variable for variable in lacking if variable.endswith("_API_KEY")]
    own_key = f"{provider.upper()}_API_KEY"
    if os.environ.get(own_key) == "":  # litellm takes an empty one for a key
        keys.append(own_key)
    if keys:
        return f"Judge model {model!r} needs an API key: set the environment variable {' or '.join(keys)}"
    servers = _SERVERS.get(provider)
    is_own = servers is not None and not any(os.environ.get(variable) for variable in servers)
    if is_own and not is_listed and not {model, name, f"{provider}/{name}"} & litellm.model_cost.keys():
        return (
            f"Judge model {model!r} is not a model that {provider} is known to have.{_nearest(name)} For a newer model "
            "set judge_price_in and judge_price_out"
        )
    return None


def _nearest(model: str) -> str:
    near = difflib.get_close_matches(model, imported().model_cost, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def context_tokens_of(model: str) -> int | None:
    """The tokens of a prompt that litellm says a model takes; None where it does not say."""
    if model in _STAND_INS:
        return None
    try:
        most = imported().get_model_info(model).get("max_input_tokens")
    except Exception:  # an unknown model is an Exception of no class of its own
        return None
    return most if isinstance(most, int) and most > 0 else None


def is_paid(model: str, price: Price | None) -> bool:
    """Whether calls of a model cost money: by its price; where nobody knows that, all but models of this machine do."""
    if price is not None:
        return bool(price.sent or price.received)
    provider = model.partition("/")[0]
    if provider in _LOCAL_PROVIDERS:
        return False
    names = (f"{provider.upper()}_BASE_URL", f"{provider.upper()}_API_BASE")
    return not any(urlsplit(os.environ.get(name, "")).hostname in _THIS_MACHINE for name in names)


@functools.cache
def dropped_parameters(model: str, temperature: float) -> tuple[str, ...] | None:
    """Return the parameters of a judge that litellm leaves out of its requests to a model; None where it cannot say.

    They are those that make no difference to what litellm would send.
    """
    litellm = imported()
    given: dict[str, Any] = {
        "temperature": temperature,
        "response_format": _schema_format("answer", {"type": "object", "properties": {}}),
    }
    try:
        from litellm.utils import get_optional_params

        name, provider, *_ = litellm.get_llm_provider(model)
        sent_with = functools.partial(
            get_optional_params, model=name, custom_llm_provider=provider, drop_params=True
        )
        full = sent_with(**given)
        parts = {left_out: {n: v for n, v in given.items() if n != left_out} for left_out in given}
        return tuple(left_out for left_out, rest in parts.items() if sent_with(**rest) == full)
    except Exception:  # not part of its promised interface: the call itself says what is wrong with a model
        return None


@functools.cache
def _make_known(model: str) -> None:
    """Enter a model of an OpenAI-compatible server in litellm's table of models, once, where it is not there.

    Several times per reply litellm looks for the price of a model, and an unknown one it looks for anew by all of its
    rules: a tenth of a call. The price entered is a stand-in: nobody reads it, and `price_of` still says None.
    """
    if model.startswith("openai/") and price_of(model) is None:
        prices = {"input_cost_per_token": 1e-9, "output_cost_per_token": 1e-9}
        _STAND_INS.add(model)
        imported().register_model({model: {"litellm_provider": "openai", "mode": "chat", **prices}})


def imported() -> ModuleType:
    """litellm, imported quietly and once."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import litellm

    if not litellm.suppress_debug_info:
        install()
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        for name in ("callbacks", "success_callback", "failure_callback"):
            getattr(litellm, name).clear()
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.propagate = False
            logger.setLevel(logging.CRITICAL + 1)
    return litellm


def _hide_from_logging() -> None:
    """No success or failure handlers of litellm for this task: a fifth of its time per call, and they see the texts."""
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:  # not part of its promised interface: without it everything works, more slowly
        return
    is_internal_call.set(True)


def _response_format(form: Prompt, rung: int) -> Mapping[str, object]:
    """The parameter of a rung of FORMS; none on the last."""
    forms: tuple[Mapping[str, object], ...] = (
        {"response_format": _schema_format(form.name, form.schema)},
        {"response_format": {"type": "json_object"}},
    )
    return forms[rung] if rung < len(forms) else {}


def _schema_format(name: str, schema: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def _reply(response: Any, price: Price | None, dropped: tuple[str, ...] | None, refusal: str | None) -> Reply:
    choice = response.choices[0]
    return Reply(
        text=choice.message.content or "",
        refusal=refusal,
        usage=_usage(response, price),
        is_truncated=choice.finish_reason == "length",
        is_filtered=choice.finish_reason == "content_filter",
        model=_text(getattr(response, "model", None)),
        fingerprint=_text(getattr(response, "system_fingerprint", None)),
        dropped=dropped,
    )


def _text(value: object) -> str | None:
    return str(value) if value else None


def _usage(response: Any, price: Price | None) -> Usage:
    counted = getattr(response, "usage", None)
    if counted is None:
        return Usage(None, None, None, None)
    details = counted.prompt_tokens_details
    n_in, n_out = counted.prompt_tokens, counted.completion_tokens
    n_cached = details.cached_tokens if details is not None else None
    if price is None:
        return Usage(n_in, n_out, n_cached, None)
    n_written = getattr(counted, "cache_creation_input_tokens", None)
    return Usage(n_in, n_out, n_cached, price.of(n_in, n_out, n_cached or 0, n_written or 0))


def _too_slow(timeout_s: float) -> str:
    return (
        f"no answer within {timeout_s:g} s. For a slow or local model raise judge_timeout_s, "
        "or lower judge_concurrency so that fewer calls share it"
    )


def _failure(litellm: Any, error: Exception, *, has_answer: bool) -> Failure:
    status = getattr(error, "status_code", None)
    if isinstance(error, TimeoutError | litellm.Timeout):
        return "timeout"
    if isinstance(error, litellm.ContextWindowExceededError) or (
        status in (400, 413, 422) and _TOO_LONG.search(str(error))
    ):
        return "too_long"
    if isinstance(error, litellm.ContentPolicyViolationError):
        return "unfit"
    if isinstance(error, litellm.AuthenticationError | litellm.PermissionDeniedError):
        return "authentication"
    if isinstance(error, litellm.RateLimitError):
        return "rate"
    if isinstance(error, litellm.APIConnectionError) or (status in (500, 503) and not has_answer):
        return "connection"
    if isinstance(status, int) and status < 500 and status not in (408, 409, 425):
        return "refused"
    return "server"


def _retry_after_s(headers: Any) -> float | None:
    """Seconds that the provider asks to wait, from a number or a date; None where it asks for nothing readable."""
    asked = str(headers.get("retry-after") or "").strip() if headers else ""
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
