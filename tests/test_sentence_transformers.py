"""sentence-transformers reads our folders, with the package and as custom code: encodes, trains, saves, loads."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hub_stand_in import run_client
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from tiny import SENTENCES, random_model, tiny_config

from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer

pytestmark = pytest.mark.slow

TEXTS = [*SENTENCES, "", "It's a river bank, isn't it?", "One <S> more."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model and its tokenizer as `save_pretrained` leaves them, with nothing of sentence-transformers."""
    folder = tmp_path_factory.mktemp("saved") / "elmo"
    random_model().save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


@torch.no_grad()
def word_vectors(folder: Path, text: str) -> np.ndarray:
    encoded = ElmoTokenizer()(text, return_tensors="pt")
    return ElmoModel.from_pretrained(folder)(**encoded).last_hidden_state[0].numpy()


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "lasttoken"])
def test_sentence_vectors_are_pooled_word_vectors(folder, pooling):
    loaded = SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "Pooling"]
    model = SentenceTransformer(modules=[loaded[0], Pooling(12, pooling)], device="cpu")
    vectors = model.encode(TEXTS, batch_size=3)
    for text, vector in zip(TEXTS, vectors, strict=True):
        words = word_vectors(folder, text)
        wanted = {"mean": words.mean(0), "max": words.max(0), "cls": words[0], "lasttoken": words[-1]}[pooling]
        np.testing.assert_allclose(vector, wanted, atol=1e-6)


def test_longest_text(folder):
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = 4  # <S>, two words, </S>
    np.testing.assert_allclose(model.encode("a b c d e f"), model.encode("a b"), atol=1e-6)


def test_training_saving_and_loading(folder, tmp_path):
    model = SentenceTransformer(str(folder), device="cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = Dataset.from_dict(
        {
            "anchor": ["a cat sat", "the sea is blue", "he ran away"] * 4,
            "positive": ["cats sit", "blue water", "running"] * 4,
        }
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "checkpoints"),
        max_steps=12,
        per_device_train_batch_size=3,
        learning_rate=0.01,
        logging_steps=1,
        save_strategy="steps",
        save_steps=6,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    trainer.train()
    history = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert np.mean(history[-3:]) < np.mean(history[:3])
    after = model.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)

    vectors = model.encode(TEXTS)
    model.save(str(tmp_path / "saved"))
    for place in (tmp_path / "saved", tmp_path / "checkpoints" / "checkpoint-12"):
        np.testing.assert_array_equal(SentenceTransformer(str(place), device="cpu").encode(TEXTS), vectors)
    assert type(ElmoModel.from_pretrained(tmp_path / "saved")) is ElmoModel


WITHOUT_THE_PACKAGE = """
import json, os, sys

sys.modules["hf_elmo"] = None  # an import fails
from sentence_transformers import SentenceTransformer

folder, resaved, texts = os.environ["FOLDER"], os.environ["RESAVED"], json.loads(os.environ["TEXTS"])
vectors = []
for place in (folder, resaved):
    model = SentenceTransformer(place, trust_remote_code=True, device="cpu")
    vectors.append(model.encode(texts).tolist())
    model.save(resaved)
print(json.dumps(vectors))
"""


def test_as_custom_code(folder, tmp_path):
    """Twice, the second time from a folder that was saved without the package."""
    environment = os.environ | {
        "FOLDER": str(folder),
        "RESAVED": str(tmp_path / "resaved"),
        "TEXTS": json.dumps(TEXTS),
        "HF_HOME": str(tmp_path / "home"),
    }
    wanted = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    for vectors in json.loads(run_client(WITHOUT_THE_PACKAGE, environment).splitlines()[-1]):
        np.testing.assert_allclose(np.array(vectors), wanted, atol=1e-6)


def test_cross_encoder(tmp_path):
    model = random_model(tiny_config(num_labels=1, num_sentences=2), model_class=ElmoForSequenceClassification)
    model.save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    encoder = CrossEncoder(str(tmp_path), device="cpu")
    pairs = [("Who ran?", text) for text in TEXTS]
    with torch.no_grad():
        logits = [float(model(**ElmoTokenizer()(*pair, return_tensors="pt")).logits) for pair in pairs]
    wanted = 1 / (1 + np.exp(-np.array(logits)))
    np.testing.assert_allclose(encoder.predict(pairs, batch_size=3), wanted, atol=1e-5)
    np.testing.assert_allclose(encoder.predict([list(pair) for pair in pairs]), wanted, atol=1e-5)
