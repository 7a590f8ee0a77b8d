"""Exported models in pipelines: the same answers as those of torch."""

import numpy as np
import pytest
import torch
from test_onnx import LABELS, model_for
from tiny import SENTENCES
from transformers import pipeline

from hf_elmo import ElmoTokenizer
from hf_elmo.conversion.onnx_export import export_onnx
from hf_elmo.onnx_pipeline import ElmoOnnxModel

TEXTS = [*SENTENCES, "", "It's a “river bank”—isn’t it? John lives in the U.S. now."]


def pipelines(folder, task, pipeline_task, tokenizer=None, **settings):
    """A pipeline with torch, and one with the same model exported."""
    tokenizer = tokenizer or ElmoTokenizer()
    model_for(task, **settings).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    export_onnx(folder / "model", folder / "onnx")
    exported = ElmoOnnxModel.from_pretrained(folder / "onnx", threads=1)
    tokenizer_of_folder = ElmoTokenizer.from_pretrained(folder / "onnx")
    return (
        pipeline(pipeline_task, model=str(folder / "model")),
        pipeline(pipeline_task, model=exported, tokenizer=tokenizer_of_folder),
    )


@pytest.mark.parametrize("batch_size", [1, 4])
def test_features(tmp_path, caplog, batch_size):
    of_torch, of_onnx = pipelines(tmp_path, "features", "feature-extraction")
    for right, found in zip(of_torch(TEXTS), of_onnx(TEXTS, batch_size=batch_size), strict=True):
        length = len(right[0])
        np.testing.assert_allclose(np.array(found)[:, :length], right, atol=1e-5, rtol=0)
    assert "is not supported" not in caplog.text
    assert "ElmoModel" in repr(of_onnx)


def test_labels_of_words(tmp_path):
    tokenizer = ElmoTokenizer()
    tokenizer.set_word_vectors(["the", "cat", "sat"])
    settings = {"id2label": LABELS, "use_crf": True, "crf_scheme": "BIO", "task_lstm_size": 5}
    settings |= {"word_vector_size": 3, "word_vector_vocab_size": 5}
    of_torch, of_onnx = pipelines(tmp_path, "token-classification", "token-classification", tokenizer, **settings)
    for strategy in ("none", "simple", "first", "average", "max"):
        options = {"aggregation_strategy": strategy, "ignore_labels": []}
        found = of_onnx(TEXTS, batch_size=3, **options)
        assert sum(map(len, found)) > 10
        for ours, right in zip(found, of_torch(TEXTS, **options), strict=True):
            for one, other in zip(ours, right, strict=True):
                assert abs(one.pop("score") - other.pop("score")) <= 1e-5
                assert one == other  # the label, the word, and where it is


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_labels_of_texts(tmp_path, problem):
    settings = {"num_labels": 1 if problem == "regression" else 3, "problem_type": problem}
    of_torch, of_onnx = pipelines(tmp_path, "sequence-classification", "text-classification", **settings)
    for ours, right in zip(of_onnx(TEXTS, top_k=None), of_torch(TEXTS, top_k=None), strict=True):
        assert [entry["label"] for entry in ours] == [entry["label"] for entry in right]
        np.testing.assert_allclose([e["score"] for e in ours], [e["score"] for e in right], atol=1e-5)


def test_pairs(tmp_path):
    settings = {"num_labels": 3, "num_sentences": 2}
    of_torch, of_onnx = pipelines(tmp_path, "sequence-classification", "text-classification", **settings)
    pairs = [{"text": text, "text_pair": pair} for text, pair in zip(TEXTS, TEXTS[::-1], strict=True)]
    for ours, right in zip(of_onnx(pairs, batch_size=4), of_torch(pairs), strict=True):
        assert ours["label"] == right["label"]
        assert abs(ours["score"] - right["score"]) <= 1e-5
    with pytest.raises(ValueError, match=r"has 1 sentence\(s\), but this model classifies pairs"):
        of_onnx("A single text.")


def test_what_is_no_pipeline(tmp_path):
    model_for("lm", vocab_size=4).save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    with pytest.raises(
        ValueError, match="exported for the task lm, and no pipeline is for it: export it with --task f"
    ):
        ElmoOnnxModel.from_pretrained(tmp_path / "onnx")


def test_inputs_that_are_missing(tmp_path):
    _, of_onnx = pipelines(tmp_path, "features", "feature-extraction")
    with pytest.raises(ValueError, match="attention_mask is missing: this model reads"):
        of_onnx.model(character_ids=torch.zeros(1, 1, 50))
