"""Call a model through litellm. Replies are returned as plain values; failures raise CallError.

litellm takes seconds to import, so it is imported by the first call. Its retries, caches, callbacks and logs are
disabled: the engine does the retries, storage and reporting, and litellm's logs would expose the prompts.
"""

import asyncio
import contextlib
import difflib
import functools
import ipaddress
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import urlsplit

from agent_eval.judge.llm.budget import Price, Usage
from agent_eval.judge.llm.redaction import redact
from agent_eval.judge.llm.sharing.model_facts import kept
from agent_eval.judge.llm.templates import Templates, plain_completion, shape_of
from agent_eval.judge.llm.transport import (
    ADMIT,
    EXCHANGE,
    MEGABYTE,
    Exchange,
    Failure,
    install,
    named_parameter,
)
from agent_eval.judge.prompts import Messages, Prompt, marked
from agent_eval.judge.prompts.attachments import content_parts
from agent_eval.tables.judging import IMPORTED, is_imported
from agent_eval.transcripts.attachments import Attachment, AttachmentKind

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # do not download prices on import
    # call OpenAI-compatible servers without the OpenAI SDK, which validates every schema and message
    "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER": "True",
}
_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|size|limit)|maximum (?:context|model|number of tokens)|(?:prompt|input) is too long|"
    r"too many (?:input )?tokens|exceeds? the.{0,20}context|max_new_tokens.{0,20}must be",
    re.IGNORECASE,
)
"""Matches error messages about the context size from OpenAI, Anthropic, Bedrock, Gemini, vLLM, llama.cpp and TGI."""
FORMS = ("json_schema", "json_object", "text")
"""Ways to request the form of a reply, tried in order until a server accepts one.

From the second on, the prompt also describes the form."""
_ACCEPTED: dict[str, int] = {}
"""Position of the first entry of FORMS that the server of a model has accepted, by model."""
_MAY_BE_FORM = (400, 422, 500)  # statuses of servers that do not support a form; their messages differ
_NOT_SENT: dict[str, set[str]] = {}
"""Parameters that the server of a model has refused by name, by model. They are left out, and `max_tokens` is first
sent as `max_completion_tokens`."""
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens")
_REFUSES_PARAMETER = (400, 422)
_TEMPLATES = Templates()
_INFO: dict[str, Mapping[str, Any]] = {}
"""What litellm knew about a model before `_make_known` added it to litellm's table."""
INFO_S = 5.0  # maximum time of a question to a server about a model
_LOCAL_PROVIDERS = {"ollama", "ollama_chat", "lm_studio", "llamafile"}
_SERVERS = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
}
"""Providers whose models litellm lists, with the environment variables that set another base URL."""
_SUPPORTS: Mapping[AttachmentKind, str] = {
    "image": "supports_vision",
    "audio": "supports_audio_input",
    "file": "supports_pdf_input",
}
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Reply:
    """Represent the reply of a model."""

    text: str
    usage: Usage
    is_truncated: bool = False
    is_filtered: bool = False
    refusal: str | None = None  # text with which the model declined to answer
    model: str | None = None  # model that answered, as the provider names it
    fingerprint: str | None = None  # fingerprint of the provider's system
    dropped: tuple[str, ...] | None = None  # parameters that were not sent to the model; None if unknown
    n_not_counted: int = 0  # further requests of litellm that no cap has counted yet


class CallError(Exception):
    """Raised when a call got no reply. The detail contains no secrets.

    If the requested form of the reply may be the cause, `next_form` is the position in FORMS to try next, else None.
    If the server refused a parameter by name, `is_adjusted` is true: the next call does not send it.
    """

    def __init__(
        self,
        failure: Failure,
        detail: str,
        retry_after_s: float | None = None,
        next_form: int | None = None,
        *,
        is_adjusted: bool = False,
    ) -> None:
        super().__init__(detail)
        self.is_adjusted = is_adjusted
        self.n_not_counted = 0  # as in Reply
        self.failure = failure
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.next_form = next_form


class Client(Protocol):
    """Calls one model."""

    @property
    def model(self) -> str:
        """Return the name of the model in litellm."""
        ...

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """Make one call and return the reply.

        Args:
            messages: The messages to send.
            form: The prompt, which holds the schema of the reply and the first of FORMS in which to request it.
            max_tokens: Maximum number of tokens of the reply.

        Raises:
            CallError: If there is no reply.
        """
        ...

    async def close(self) -> None:
        """Close the connections. Must be called in the event loop that used them."""
        ...


@dataclass(frozen=True)
class LiteLLMClient:
    """Calls a model through litellm, or as litellm does. Base URLs and API keys are read from the environment."""

    model: str
    temperature: float = 0.0
    timeout_s: float = 60.0  # limit for the whole call, up to the last byte of the reply
    price: Price | None = None  # None: litellm's price, if it has one
    max_reply_mb: float = 4.0  # after decompression
    is_direct: bool = True  # whether requests are sent from templates of litellm's requests, see `templates`

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        """Make one call and return the reply. The form is one that the server accepted in an earlier call, if any.

        Raises:
            CallError: If there is no reply.
        """
        litellm = imported()
        _hide_from_logging()
        _make_known(self.model)
        rung = max(_ACCEPTED.get(self.model, 0), form.rung)
        deadline = time.monotonic() + self.timeout_s
        exchange = Exchange(int(self.max_reply_mb * MEGABYTE), deadline, ADMIT.get())
        token = EXCHANGE.set(exchange)
        if has_marks := caches_marked_blocks(self.model):
            # these caches include the schema before the prompt, and the schema differs between turns
            sent, rung = marked(messages), FORMS.index("text")
        else:
            sent = [dict(message) for message in (form.with_skeleton(messages) if rung else messages)]
        if form.attachments:
            _attach(sent, form.attachments)
        parameters = self._parameters(max_tokens)
        response_format = _response_format(form, rung)
        asked = {**parameters, **response_format}
        shape = shape_of(self.model, asked, self.timeout_s, sent) if self.is_direct else None
        try:
            async with asyncio.timeout(self.timeout_s):
                completion = await _TEMPLATES.ask(shape, sent, exchange)
                response = completion or await litellm.acompletion(
                    model=self.model,
                    messages=sent,
                    **response_format,
                    **parameters,
                    timeout=self.timeout_s,
                    drop_params=True,  # omit temperature or schema for models that do not support them
                    num_retries=0,
                    max_retries=0,
                )
            dropped = self._dropped(has_marks=has_marks)
            read_plain = partial(_plain_reply, price=self.price, dropped=dropped, refusal=exchange.refusal)
            if completion is not None:
                reply = read_plain(completion)
            else:
                reply = _reply(response, self.price, dropped, exchange.refusal)
                # whatever litellm sends and receives, learning from it must not lose the reply
                with contextlib.suppress(Exception):
                    plain = plain_completion(exchange.response)
                    is_alike = plain is not None and read_plain(plain) == reply
                    _TEMPLATES.learn(shape, sent, exchange, is_read_alike=is_alike)
            _ACCEPTED[self.model] = min(_ACCEPTED.get(self.model, rung), rung)
            return replace(reply, n_not_counted=exchange.n_not_admitted)
        except Exception as error:
            failed = self._call_error(litellm, error, exchange)
            failed.n_not_counted = exchange.n_not_admitted
            refused = exchange.status in _REFUSES_PARAMETER and failed.failure == "refused"
            if refused and (parameter_name := named_parameter(exchange.error, _PARAMETERS)) in parameters:
                _NOT_SENT.setdefault(self.model, set()).add(str(parameter_name))
                failed.is_adjusted = True
                raise failed from None
            # only an answer of the server shows that it does not support the form; a broken connection does not
            may_be_form = exchange.status in _MAY_BE_FORM and failed.failure in ("refused", "server")
            if form.attachments and self.model in _ACCEPTED:
                may_be_form = False  # an attachment is the more likely cause
            if may_be_form and rung + 1 < len(FORMS):
                failed.next_form = rung + 1
            raise failed from None  # the message of the original error may contain a key
        finally:
            EXCHANGE.reset(token)

    async def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        max_tokens: int,
        seed: int | None = None,
    ) -> dict[str, object]:
        """Make one call to a model that is an agent under test, and return the chat completion with its tool calls.

        Raises:
            CallError: If there is no reply.
        """
        litellm = imported()
        _hide_from_logging()
        _make_known(self.model)
        deadline = time.monotonic() + self.timeout_s
        exchange = Exchange(int(self.max_reply_mb * MEGABYTE), deadline, ADMIT.get(), keeps_calls=True)
        token = EXCHANGE.set(exchange)
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await litellm.acompletion(
                    model=self.model, messages=[dict(m) for m in messages], temperature=self.temperature, seed=seed,
                    max_tokens=max_tokens, timeout=self.timeout_s, drop_params=True, num_retries=0, max_retries=0,
                    # without _skip_mcp_handler, litellm needs the package mcp, and could call MCP servers itself
                    **({"tools": [dict(tool) for tool in tools], "_skip_mcp_handler": True} if tools else {}),
                )  # fmt: skip
            completion: dict[str, object] = json.loads(response.model_dump_json())
            return completion
        except Exception as error:
            raise self._call_error(litellm, error, exchange) from None
        finally:
            EXCHANGE.reset(token)

    def _dropped(self, *, has_marks: bool) -> tuple[str, ...] | None:
        """Return the parameters that were not sent to the model, or None if unknown."""
        dropped = dropped_parameters(self.model, self.temperature)
        if dropped is None:
            return None
        left_out = {"response_format"} if has_marks else set[str]()
        left_out |= {name for name in _NOT_SENT.get(self.model, ()) if name == "temperature"}
        return tuple(sorted({*dropped, *left_out}))

    def _parameters(self, max_tokens: int) -> dict[str, float]:
        """Return the parameters to send, without those that the server has refused by name."""
        refused = _NOT_SENT.get(self.model, set())
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        sent = {"temperature": self.temperature, limit: max_tokens}
        return {name: value for name, value in sent.items() if name not in refused}

    def _call_error(self, litellm: Any, error: Exception, exchange: Exchange) -> CallError:
        """Convert an exception of litellm to a CallError with the kind of failure."""
        if exchange.failure is not None:
            return CallError(exchange.failure, redact(exchange.detail))
        headers = getattr(error, "litellm_response_headers", None)
        failure = _failure(litellm, error, has_answer=headers is not None)
        if failure == "connection" and exchange.is_connected:
            failure = "server"  # the server was reached, but its reply is incomplete or unreadable
        if failure == "timeout":
            return CallError(failure, redact(_too_slow(self.timeout_s)), _retry_after_s(headers))
        why = str(error).partition("\nTraceback (most recent call last)")[0]  # litellm appends it
        return CallError(failure, redact(f"{type(error).__name__}: {why}"), _retry_after_s(headers))

    async def close(self) -> None:
        """Close litellm's connections."""
        _TEMPLATES.forget()
        if "litellm" in sys.modules:  # else no call was made
            await imported().close_litellm_async_clients()


def price_of(model: str) -> Price | None:
    """Return litellm's price of a model, or None if it has none. A price of 0 of a paid provider counts as missing."""
    info = _info(model)
    sent, received = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    is_gap = not (sent or received) and info.get("litellm_provider") in _SERVERS  # a model without a price
    if sent is None or received is None or is_gap:
        return None
    cached, written = (
        None if (cost := info.get(f"cache_{name}_input_token_cost")) is None else cost * 1e6
        for name in ("read", "creation")
    )
    return Price(sent * 1e6, received * 1e6, cached, written)


def _info(model: str) -> Mapping[str, Any]:
    """Return what litellm knows about a model; empty if nothing.

    For some providers litellm asks a server. It is asked once per process, within `INFO_S`.
    """
    if model not in _INFO:
        _INFO[model] = kept(
            "info", model, ask=lambda: _asked_info(model), is_lasting=lambda _: _is_listed(model)
        )
    return _INFO[model]


def _is_listed(model: str) -> bool:
    """Return whether litellm lists a model of a provider that it does not ask about its models."""
    litellm = imported()
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:  # unknown provider
        return False
    listed = {model, name, f"{provider}/{name}"} & litellm.model_cost.keys()
    return provider in _SERVERS or (bool(listed) and provider not in _LOCAL_PROVIDERS)


def _asked_info(model: str) -> Mapping[str, Any]:
    litellm = imported()
    token = EXCHANGE.set(Exchange(MEGABYTE, time.monotonic() + INFO_S))
    try:
        return dict(litellm.get_model_info(model))
    except Exception:  # for an unknown model, litellm raises a bare Exception
        return {}
    finally:
        EXCHANGE.reset(token)


@functools.cache
def caches_marked_blocks(model: str) -> bool:
    """Return whether the provider caches only marked blocks: Anthropic, or Bedrock and Vertex for Claude models."""
    return bool(
        kept("marked blocks", model, ask=lambda: _caches_marked_blocks(model), is_lasting=lambda _: True)
    )


def _caches_marked_blocks(model: str) -> bool:
    try:
        name, provider, *_ = imported().get_llm_provider(model)
    except Exception:  # unknown model: the call itself reports the error
        return False
    hosts = ("bedrock", "bedrock_converse", "vertex_ai", "vertex_ai_beta")
    return provider == "anthropic" or (provider in hosts and "claude" in str(name).lower())


def problem_of(model: str, *, is_listed: bool = False, needs_key: bool = True) -> str | None:
    """Return the reason why calls to a model cannot succeed, or None if no problem is found.

    The reasons are a reserved name, an unknown provider, a missing API key if calls need one (`needs_key`), and a model
    on OpenAI's or Anthropic's own servers that litellm does not list, unless `is_listed` is set.
    """
    if is_imported(model):
        return f"Judge model {model!r}: names that begin with {IMPORTED!r} are of other tools' judges. Write provider/model"
    problem: str | None = kept(
        "problem",
        model,
        is_listed,
        needs_key,
        ask=lambda: _asked_problem(model, is_listed=is_listed, needs_key=needs_key),
        is_lasting=lambda reason: reason is None,
    )
    return problem


def _asked_problem(model: str, *, is_listed: bool, needs_key: bool) -> str | None:
    litellm = imported()
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:  # for an unknown provider, litellm raises a bare Exception
        return f"Judge model {model!r}: its provider is unknown.{_nearest(model)} Write provider/model, e.g. openai/gpt-4o-mini"
    lacking = litellm.validate_environment(model=model)["missing_keys"]
    keys = [variable for variable in lacking if variable.endswith("_API_KEY")]
    own_key = f"{provider.upper()}_API_KEY"
    if os.environ.get(own_key) == "":  # litellm accepts an empty key
        keys.append(own_key)
    if keys and needs_key:
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
    """Return the maximum prompt tokens of a model according to litellm, or None if litellm has no value."""
    most = _info(model).get("max_input_tokens")
    return most if isinstance(most, int) and most > 0 else None


def attachment_kinds_of(model: str) -> frozenset[AttachmentKind]:
    """Return the kinds of attachments that a model reads according to litellm; empty for an unknown model."""
    info = _info(model)
    return frozenset(kind for kind, flag in _SUPPORTS.items() if info.get(flag))


def is_paid(model: str, price: Price | None) -> bool:
    """Return whether calls to a model cost money. If the price is unknown, only models on this machine are free."""
    if price is not None:
        return bool(price.sent or price.received)
    provider = model.partition("/")[0]
    if provider in _LOCAL_PROVIDERS:
        return False
    names = (f"{provider.upper()}_BASE_URL", f"{provider.upper()}_API_BASE")
    return not any(_is_local(urlsplit(os.environ.get(name, "")).hostname or "") for name in names)


@functools.cache
def dropped_parameters(model: str, temperature: float) -> tuple[str, ...] | None:
    """Return the parameters of a judge that litellm omits from its requests to a model, or None if unknown.

    A parameter counts as omitted if litellm builds the same request without it.
    """
    litellm = imported()
    parameters: dict[str, Any] = {
        "temperature": temperature,
        "response_format": _schema_format("answer", {"type": "object", "properties": {}}),
    }
    try:
        from litellm.utils import get_optional_params

        name, provider, *_ = litellm.get_llm_provider(model)
        sent_with = functools.partial(
            get_optional_params, model=name, custom_llm_provider=provider, drop_params=True
        )
        full = sent_with(**parameters)
        parts = {left_out: {n: v for n, v in parameters.items() if n != left_out} for left_out in parameters}
        return tuple(left_out for left_out, rest in parts.items() if sent_with(**rest) == full)
    except Exception:  # the function is not public; errors of a model are reported by the call
        return None


@functools.cache
def _make_known(model: str) -> None:
    """Add a model to litellm's table of models if it is missing.

    litellm looks up the model several times per reply: the repeated search for an unknown model takes a tenth of the
    time of a call, and for some providers it is a request that blocks all other calls. The added price is a
    placeholder that is never read; `price_of` still returns what litellm knew before.
    """
    litellm, info = imported(), _info(model)
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:  # unknown provider: the call itself reports the error
        return
    keys = {model, name, f"{provider}/{name}"}
    if keys & litellm.model_cost.keys():
        return
    model_info = {key: value for key, value in info.items() if value is not None and key != "key"}
    prices = {"input_cost_per_token": 1e-9, "output_cost_per_token": 1e-9}
    entry = {**prices, **model_info, "litellm_provider": provider, "mode": "chat"}
    litellm.register_model({f"{provider}/{name}": entry})


def imported() -> ModuleType:
    """Import litellm, disable its output and callbacks, and return it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _call_this_machine_directly()
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


def _call_this_machine_directly() -> None:
    """Except this machine from the proxies of the environment, which would get the key of a local judge."""
    hosts = [
        urlsplit(value).hostname
        for name, value in os.environ.items()
        if name.endswith(("_BASE_URL", "_API_BASE"))
    ]
    local = {*_THIS_MACHINE, *(host for host in hosts if host and _is_local(host))}
    for name in ("NO_PROXY", "no_proxy") if "no_proxy" in os.environ else ("NO_PROXY",):
        excepted = [host for host in os.environ.get(name, "").split(",") if host.strip()]
        if lacking := sorted(local - {host.strip() for host in excepted}):
            os.environ[name] = ",".join([*excepted, *lacking])


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _THIS_MACHINE or host.endswith(".localhost")


def _attach(sent: list[dict[str, Any]], attachments: Sequence[Attachment]) -> None:
    """Append attachments to the last message. The text of the message becomes a content part."""
    content = sent[-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    sent[-1] = {**sent[-1], "content": [*parts, *content_parts(attachments)]}


def _hide_from_logging() -> None:
    """Disable litellm's result handlers for this task, because they see the texts and take a fifth of its time."""
    try:
        from litellm._internal_context import is_internal_call
    except ImportError:  # not public; without it, calls work but are slower
        return
    is_internal_call.set(True)


def _response_format(form: Prompt, rung: int) -> Mapping[str, object]:
    """Return the request parameters for an entry of FORMS. The last entry needs none."""
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


def _plain_reply(
    completion: Mapping[str, Any], price: Price | None, dropped: tuple[str, ...] | None, refusal: str | None
) -> Reply:
    """Return the reply in a chat completion that litellm has not read."""
    choice, usage = completion["choices"][0], completion["usage"]
    n_in, n_out = usage["prompt_tokens"], usage["completion_tokens"]
    n_cached = usage.get("prompt_tokens_details", {}).get("cached_tokens")
    cost = None if price is None else price.of(n_in, n_out, n_cached or 0, 0)
    return Reply(
        text=choice["message"]["content"],
        refusal=refusal,
        usage=Usage(n_in, n_out, n_cached, cost),
        is_truncated=choice["finish_reason"] == "length",
        is_filtered=choice["finish_reason"] == "content_filter",
        model=_text(completion["model"]),
        fingerprint=_text(completion["system_fingerprint"]),
        dropped=dropped,
    )


def _text(value: object) -> str | None:
    return str(value) if value else None


def _usage(response: Any, price: Price | None) -> Usage:
    reported_usage = getattr(response, "usage", None)
    if reported_usage is None:
        return Usage(None, None, None, None)
    details = reported_usage.prompt_tokens_details
    n_in, n_out = reported_usage.prompt_tokens, reported_usage.completion_tokens
    n_cached = details.cached_tokens if details is not None else None
    if price is None:
        return Usage(n_in, n_out, n_cached, None)
    n_written = getattr(reported_usage, "cache_creation_input_tokens", None)
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
        status in (400, 413, 422, 500) and _TOO_LONG.search(str(error))
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
    """Return the wait in seconds that the provider requests as a number or date, or None if there is none."""
    header_value = str(headers.get("retry-after") or "").strip() if headers else ""
    try:
        seconds = float(header_value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header_value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
