# Copyright 2026 The hf-elmo authors.
# SPDX-License-Identifier: Apache-2.0
"""What one can ask a language model for: scores of a text, substitutes for a word, sentences of its own."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .sampling import Sample, draw_samples
from .scoring import BATCH_TOKENS, SentenceScore, Text, score_stream
from .substitutes import Place, find_substitutes


class ElmoLanguageModel:
    """The methods of `ElmoForPreTraining` that begin with a text.

    Each takes the tokenizer of the model. Texts are strings, which the tokenizer splits into words, or lists of words.
    The model is on its device and in its precision, is not changed, and needs no `eval()` before.
    """

    def score(
        self,
        texts: str | Iterable[Text],
        tokenizer: Any,
        *,
        is_split_into_words: bool | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """How probable the model finds each word of texts, with the softmax over the whole vocabulary.

        The forward direction gives log p(word | words before), the backward one log p(word | words after), in nats;
        the combined log-probability is the mean of the two. The surprisal is -log2 p, in bits. Moreover, the forward
        direction predicts `</S>` and the backward one `<S>`: `end` and `begin` of the result, part of the totals. A
        word that is not in the vocabulary is marked, and has the log-probability of `<UNK>`.

        A score does not depend on other texts. Beside the weights and the ids of a text, memory grows neither with the
        vocabulary nor with the length of a text.

        Args:
            texts: Texts or lists of words, each one sentence; or a single text, as a string.
            tokenizer: Of the model.
            is_split_into_words: `True` if all texts must be lists of words, `False` if all must be strings; by
                default each of them can be the one or the other.
            batch_tokens: Words, boundaries included, to compute at a time. It changes memory and speed only.

        Returns:
            A list with a `SentenceScore` for each text; for a single text, only its own.

        Example:
            >>> import hf_elmo
            >>> model, tokenizer = hf_elmo.load_mini(hf_elmo.ElmoForPreTraining)
            >>> score = model.score("The cat sat.", tokenizer)
            >>> score.words, len(score.surprisals("forward"))
            (['The', 'cat', 'sat', '.'], 4)
            >>> score.total("combined") < 0, score.perplexity("forward") > 1
            (True, True)
        """
        single = isinstance(texts, str)
        scores = self.score_stream(
            [texts] if isinstance(texts, str) else texts,
            tokenizer,
            is_split_into_words=is_split_into_words,
            batch_tokens=batch_tokens,
        )
        return next(scores) if single else list(scores)

    def score_stream(
        self,
        texts: Iterable[Text],
        tokenizer: Any,
        *,
        is_split_into_words: bool | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[SentenceScore]:
        """As `score`, one by one and in their order, for texts of which there may be endlessly many.

        Args:
            texts: Texts and lists of words; at most about eight batches are read ahead.
            tokenizer: As of `score`, and so are all others.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single string: give score_stream an iterable of texts, or call score.")
        return score_stream(self, tokenizer, texts, is_split_into_words=is_split_into_words, batch_tokens=batch_tokens)

    def substitutes(
        self,
        text: Text,
        tokenizer: Any,
        word: Place | Sequence[Place] | None = None,
        *,
        top_k: int = 10,
        is_split_into_words: bool | None = None,
    ) -> Any:
        """The best words for a place of a text: by the words before it, by those after it, and by both.

        The word that stands at the place is not read by either direction; any word can hold the place. `<S>`, `</S>`
        and `<UNK>` are not suggested, but the probabilities are those among all words, with them.

        Args:
            text: A text or a list of words.
            tokenizer: Of the model.
            word: The place: the position of a word, from 1 as `<S>` is 0, or the word itself if it is in the text
                once; several of them as a list; by default all words of the text.
            top_k: How many words to return by each score.
            is_split_into_words: `True` if the text must be a list of words, `False` if it must be a string.

        Returns:
            `Substitutes` of the place, or a list of them if `word` is a list or `None`.

        Example:
            >>> import hf_elmo
            >>> model, tokenizer = hf_elmo.load_mini(hf_elmo.ElmoForPreTraining)
            >>> best = model.substitutes("The cat sat on the mat.", tokenizer, "mat").combined
            >>> len([substitute.word for substitute in best])
            10
        """
        found = find_substitutes(self, tokenizer, text, word, top_k=top_k, is_split_into_words=is_split_into_words)
        return found[0] if isinstance(word, (int, str)) else found

    def sample(
        self,
        tokenizer: Any,
        prompt: Text = "",
        *,
        num_samples: int = 1,
        max_words: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        allow_unknown: bool = False,
    ) -> list[Sample]:
        """Sentences drawn from the forward direction, until `</S>`; the same seed gives the same sentences.

        Args:
            tokenizer: Of the model.
            prompt: Words that they begin with: a text or a list of words.
            num_samples: How many. The first ones are the same for any number.
            max_words: At most so many words are drawn, the prompt not counted.
            temperature: Log-probabilities are divided by it: below 1, probable words are drawn even more often.
            top_k: Draw from the best so many words only; 1 takes the best word each time.
            top_p: Draw from as few of the best words as have this share of the probability.
            seed: Of the random numbers.
            allow_unknown: Whether `<UNK>` may be drawn.

        Example:
            >>> import hf_elmo
            >>> model, tokenizer = hf_elmo.load_mini(hf_elmo.ElmoForPreTraining)
            >>> texts = [sample.text for sample in model.sample(tokenizer, "The", num_samples=3)]
            >>> [text.split()[0] for text in texts]
            ['The', 'The', 'The']
        """
        return draw_samples(
            self,
            tokenizer,
            prompt,
            num_samples=num_samples,
            max_words=max_words,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            allow_unknown=allow_unknown,
        )


__all__ = ["ElmoLanguageModel"]
