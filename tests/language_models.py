"""A small language model with a vocabulary that lacks some words of the text, for tests."""

from pathlib import Path

import torch
from tiny import SENTENCES, random_model, tiny_config, words_of

from hf_elmo import ElmoForPreTraining, ElmoTokenizer

TEXT = [*SENTENCES, "The cat", "on the mat , too .", "Hi", "a b c d e f g"]
WORDS = words_of(TEXT)
KNOWN = sorted({word for words in WORDS for word in words})[::2]

KINDS = {
    "full": {"softmax": "full"},
    "sampled": {"softmax": "sampled", "num_sampled": 4},
    "adaptive": {"softmax": "adaptive", "softmax_cutoffs": [9]},
}


def small_tokenizer(folder: Path) -> ElmoTokenizer:
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *KNOWN]))
    return ElmoTokenizer(folder / "vocab.txt")


def small_model(tokenizer: ElmoTokenizer, **settings) -> ElmoForPreTraining:
    """A model without a trained weight."""
    config = tiny_config(**{"vocab_size": len(tokenizer), "dropout": 0.5, **settings})
    return random_model(config, model_class=ElmoForPreTraining)


def saved_model(folder: Path) -> Path:
    """A folder with such a model and its tokenizer."""
    tokenizer = small_tokenizer(folder)
    for part in (small_model(tokenizer), tokenizer):
        part.save_pretrained(folder / "model")
    return folder / "model"


def log_probabilities(model, tokenizer, words: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """From the logits, of all words of the vocabulary (positions, V): what comes after and what before a position."""
    with torch.no_grad():
        outputs = model(**tokenizer(words, is_split_into_words=True, return_tensors="pt"), output_logits=True)
    both = (outputs.forward_logits[0], outputs.backward_logits[0])
    forward, backward = (logits.double().log_softmax(dim=1) for logits in both)
    return forward, backward
