"""The task heads beside independent computations, and every choice of the config beside its absence."""

import itertools

import pytest
import torch
from tiny import SENTENCES, encode, random_model, tiny_config
from torch.nn import functional
from torch.testing import assert_close
from transformers import DataCollatorForMultipleChoice

from hf_elmo import (
    ElmoForMultipleChoice,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)

HEADS = [
    ElmoForTokenClassification,
    ElmoForSequenceClassification,
    ElmoForQuestionAnswering,
    ElmoForMultipleChoice,
]
NO_DROPOUT = {"elmo_dropout": 0.0, "task_dropout": 0.0}
WORD_VECTORS = {"word_vector_size": 3, "word_vector_vocab_size": 20}


def head(model_class, seed: int = 0, **overrides):
    """A head with random weights throughout, biases and mixes included."""
    return random_model(tiny_config(**{"num_labels": 3, **overrides}), seed=seed, model_class=model_class)


def batch_for(model, sentences=SENTENCES) -> dict[str, torch.Tensor]:
    """All inputs that the model reads."""
    batch = dict(encode(sentences))
    generator = torch.Generator().manual_seed(3)
    shape = batch["input_ids"].shape
    if model.config.word_vector_size:
        batch["word_vector_ids"] = torch.randint(0, 20, shape, generator=generator)
    if model.config.predicate_embedding_size:
        batch["predicate_ids"] = torch.randint(0, 2, shape, generator=generator)
    if isinstance(model, ElmoForMultipleChoice):
        batch = {name: value.unsqueeze(0) for name, value in batch.items()}
    return batch


def labels_for(model, batch) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    rows = batch["input_ids"].shape[0]
    if isinstance(model, ElmoForTokenClassification):
        labels = torch.randint(0, 3, batch["input_ids"].shape, generator=generator)
        inner = batch["attention_mask"].bool() & (batch["input_ids"] > 1)
        return {"labels": labels.masked_fill(~inner, -100)}
    if isinstance(model, ElmoForQuestionAnswering):
        return {"start_positions": torch.ones(rows).long(), "end_positions": torch.full((rows,), 2)}
    return {"labels": torch.randint(0, 3, (rows,), generator=generator)}


# --- Independent computations ----------------------------------------------------------------------------------------


def elmo_vectors(model, batch, mix: int = 0) -> torch.Tensor:
    """The ELMo vectors by the base model and the formula of the paper."""
    layers = model.elmo(
        **{k: batch[k] for k in ("input_ids", "character_ids", "attention_mask")}, output_hidden_states=True
    )
    weights = model.elmo.mixes[mix].weight.softmax(0)
    return model.elmo.mixes[mix].gamma * sum(w * layer for w, layer in zip(weights, layers.hidden_states, strict=True))


def task_vectors(model, batch, row: int) -> torch.Tensor:
    """What the task knows of each word of one sentence (T, X), computed without padding by a plain LSTM."""
    length = int(batch["attention_mask"][row].sum())
    parts = []
    if model.config.word_vector_size:
        parts.append(model.word_vectors.weight[batch["word_vector_ids"][row, :length]])
    if model.config.use_elmo:
        parts.append(elmo_vectors(model, batch)[row, :length])
    if model.config.predicate_embedding_size:
        parts.append(model.predicate_embedding.weight[batch["predicate_ids"][row, :length]])
    words = torch.cat(parts, dim=1)
    if model.config.task_lstm_size:
        words = torch.nn.LSTM.forward(model.task_lstm, words.unsqueeze(1))[0].squeeze(1)
    if model.config.elmo_at_output:
        words = torch.cat([words, elmo_vectors(model, batch, mix=1)[row, :length]], dim=1)
    return words


EVERYTHING = {
    "task_lstm_size": 5,
    "task_lstm_layers": 2,
    "elmo_at_output": True,
    "predicate_embedding_size": 2,
    **WORD_VECTORS,
}
SETTINGS = [
    {},
    {"task_lstm_size": 5},
    WORD_VECTORS,
    {"use_elmo": False, **WORD_VECTORS},
    {"use_elmo": False, "task_lstm_size": 4, **WORD_VECTORS},
    EVERYTHING,
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_token_classification(settings):
    model = head(ElmoForTokenClassification, **settings)
    batch = batch_for(model)
    labels = labels_for(model, batch)["labels"]
    outputs = model(**batch, labels=labels)
    losses = []
    for row in range(len(SENTENCES)):
        expected = model.classifier(task_vectors(model, batch, row))
        assert_close(outputs.logits[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)
        losses.append(functional.cross_entropy(expected, labels[row, : len(expected)], reduction="none"))
    counted = torch.cat(losses)[torch.cat([labels[r, : len(one)] for r, one in enumerate(losses)]) != -100]
    assert_close(outputs.loss, counted.mean())


def best_by_enumeration(crf, emissions: torch.Tensor, allowed) -> tuple[tuple[int, ...], float]:
    """The best path and the log of the sum over all paths, one by one."""
    scores = {}
    for path in itertools.product(range(emissions.shape[1]), repeat=len(emissions)):
        if not allowed(path):
            continue
        score = crf.start[path[0]] + crf.end[path[-1]] + sum(emissions[t, k] for t, k in enumerate(path))
        scores[path] = score + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))
    total = torch.logsumexp(torch.stack(list(scores.values())), dim=0)
    return max(scores, key=scores.get), total, scores


@pytest.mark.parametrize("scheme", [None, "BIO"])
def test_token_classification_with_a_crf(scheme):
    """Loss and decoded labels against the enumeration of all paths over the words, boundaries left out."""
    names = {0: "O", 1: "B-X", 2: "I-X"}
    model = head(ElmoForTokenClassification, id2label=names, use_crf=True, crf_scheme=scheme)
    with torch.no_grad():
        model.crf.transitions.mul_(4)
    sentences = ["a b c d", "e", "f g h"]
    batch = batch_for(model, sentences)
    labels = torch.full(batch["input_ids"].shape, -100)
    labels[0, 1:5] = torch.tensor([1, 2, 0, 1])
    labels[1, 1:2] = torch.tensor([0])
    labels[2, 1:4] = torch.tensor([0, 1, 2])
    outputs = model(**batch, labels=labels)

    def allowed(path):
        follows = itertools.pairwise((0, *path))
        return scheme is None or all(b != 2 or a in (1, 2) for a, b in follows)

    likelihoods, differs = [], False
    for row, sentence in enumerate(sentences):
        length = len(sentence.split())
        emissions = model.classifier(task_vectors(model, batch, row))[1 : length + 1]
        best, total, scores = best_by_enumeration(model.crf, emissions, allowed)
        assert outputs.logits[row, 1 : length + 1].argmax(dim=1).tolist() == list(best)
        differs |= emissions.argmax(dim=1).tolist() != list(best)
        likelihoods.append(scores[tuple(labels[row, 1 : length + 1].tolist())] - total)
        probabilities = outputs.logits[row, 1 : length + 1].exp().sum(dim=1)
        assert_close(probabilities, torch.ones(length), atol=2e-3, rtol=0)
    assert differs, "the emissions alone give the same labels, so this test says nothing"
    assert_close(outputs.loss, -torch.stack(likelihoods).mean(), atol=1e-4, rtol=1e-4)


POOLINGS = ["mean", "max", "mean_max", "boundary"]


def pooled(words: torch.Tensor, pooling: str) -> torch.Tensor:
    """One sentence (T, X) with its boundaries first and last."""
    inner = words[1:-1] if len(words) > 2 else words
    return {
        "mean": inner.mean(0),
        "max": inner.amax(0),
        "mean_max": torch.cat([inner.mean(0), inner.amax(0)]),
        "boundary": torch.cat([words[-1], words[0]]),
    }[pooling]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("settings", [{}, EVERYTHING | {"predicate_embedding_size": 0}], ids=["plain", "everything"])
def test_sequence_classification(pooling, settings):
    model = head(ElmoForSequenceClassification, pooling=pooling, **settings)
    sentences = [*SENTENCES, ""]
    batch = batch_for(model, sentences)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    outputs = model(**batch, labels=labels)
    expected = torch.stack(
        [model.classifier(pooled(task_vectors(model, batch, row), pooling)) for row in range(len(sentences))]
    )
    assert_close(outputs.logits, expected, atol=1e-5, rtol=1e-5)
    assert_close(outputs.loss, functional.cross_entropy(expected, labels))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_sequence_classification_of_pairs(pooling):
    model = head(ElmoForSequenceClassification, pooling=pooling, num_sentences=2)
    batch = dict(ElmoTokenizer()(["a b c", "d"], ["e f", "g h i j"], padding=True, return_tensors="pt"))
    logits = model(**batch).logits
    words = elmo_vectors(model, batch)
    for row, cut in enumerate((5, 3)):
        length = int(batch["attention_mask"][row].sum())
        u, v = pooled(words[row, :cut], pooling), pooled(words[row, cut:length], pooling)
        expected = model.classifier(torch.cat([u, v, (u - v).abs(), u * v]))
        assert_close(logits[row], expected, atol=1e-5, rtol=1e-5)


def test_regression_and_several_labels():
    model = head(ElmoForSequenceClassification, num_labels=1)
    batch = batch_for(model)
    numbers = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0])
    outputs = model(**batch, labels=numbers)
    assert_close(outputs.loss, ((outputs.logits.squeeze(1) - numbers) ** 2).mean())
    assert model.config.problem_type == "regression"

    model = head(ElmoForSequenceClassification)
    several = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]])
    outputs = model(**batch, labels=several)
    p = outputs.logits.sigmoid()
    assert_close(outputs.loss, -(several * p.log() + (1 - several) * (1 - p).log()).mean())
    assert model.config.problem_type == "multi_label_classification"


def test_question_answering():
    model = head(ElmoForQuestionAnswering)
    batch = dict(
        ElmoTokenizer()(["who ?", "when"], ["she did", "in the year 1990 ."], padding=True, return_tensors="pt")
    )
    words = elmo_vectors(model, batch)
    start, end = torch.tensor([5, 99]), torch.tensor([6, 99])  # the second answer was cut off
    outputs = model(**batch, start_positions=start, end_positions=end)
    expected = model.qa_outputs(words)
    mask = batch["attention_mask"].bool()
    assert_close(outputs.start_logits[mask], expected[..., 0][mask], atol=1e-5, rtol=1e-5)
    assert_close(outputs.end_logits[mask], expected[..., 1][mask], atol=1e-5, rtol=1e-5)
    assert (outputs.start_logits[~mask] == torch.finfo(torch.float32).min).all()
    first = (
        functional.cross_entropy(outputs.start_logits[0], start[0]),
        functional.cross_entropy(outputs.end_logits[0], end[0]),
    )
    assert_close(outputs.loss, sum(first) / 2)


def test_multiple_choice_with_the_stock_collator():
    model = head(ElmoForMultipleChoice, num_sentences=2)
    tokenizer = ElmoTokenizer()
    questions = [("The river", ["rose .", "slept all day .", "sang"]), ("A bank", ["lends", "walks", "is a word"])]
    features = [{**tokenizer([first] * 3, seconds), "label": 1} for first, seconds in questions]
    batch = DataCollatorForMultipleChoice(tokenizer)(features)
    outputs = model(**batch)
    for row, (first, seconds) in enumerate(questions):
        for column, second in enumerate(seconds):
            single = dict(tokenizer([first], [second], return_tensors="pt"))
            words = elmo_vectors(model, single)[0]
            cut = len(tokenizer(first)["input_ids"])
            u, v = pooled(words[:cut], "mean"), pooled(words[cut:], "mean")
            expected = model.classifier(torch.cat([u, v, (u - v).abs(), u * v]))[0]
            assert_close(outputs.logits[row, column], expected, atol=1e-5, rtol=1e-5)
    assert_close(outputs.loss, functional.cross_entropy(outputs.logits, torch.tensor([1, 1])))


@pytest.mark.parametrize("model_class", HEADS)
@pytest.mark.parametrize("crf", [False, True])
def test_batch_mates_and_padding_change_nothing(model_class, crf):
    settings = {"use_crf": True} if crf and model_class is ElmoForTokenClassification else {}
    model = head(model_class, **(EVERYTHING if model_class is ElmoForTokenClassification else {}), **settings)
    batch = batch_for(model)
    together = model(**batch).to_tuple()
    rows = batch["input_ids"].shape[-2]
    for row in range(rows):
        if model_class is ElmoForMultipleChoice:
            alone = model(**{name: value[:, row : row + 1] for name, value in batch.items()}).to_tuple()
            assert_close(alone[0][0, 0], together[0][0, row], atol=1e-5, rtol=0)
            continue
        length = int(batch["attention_mask"][row].sum())
        alone = model(**{name: value[row : row + 1, :length] for name, value in batch.items()}).to_tuple()
        for one, all_of_them in zip(alone, together, strict=True):
            expected = all_of_them[row] if one.shape[1:] == all_of_them.shape[1:] else all_of_them[row, :length]
            assert_close(one[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model_class", HEADS)
def test_layers_are_returned_on_request(model_class):
    model = head(model_class)
    batch = batch_for(model)
    assert model(**batch).hidden_states is None
    outputs = model(**batch, output_hidden_states=True)
    flat = {
        name: value.flatten(0, 1) if model_class is ElmoForMultipleChoice else value for name, value in batch.items()
    }
    expected = model.elmo(**flat, output_hidden_states=True).hidden_states
    assert len(outputs.hidden_states) == 3
    assert all(torch.equal(a, b) for a, b in zip(outputs.hidden_states, expected, strict=True))
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == 3
    as_tuple = model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple)


# --- Each choice changes a result ------------------------------------------------------------------------------------


def test_the_mix_penalty_is_added_to_the_loss():
    for model_class in HEADS:
        plain = head(model_class, **NO_DROPOUT)
        batch = batch_for(plain)
        labels = labels_for(plain, batch)
        penalised = head(model_class, mix_l2=0.5, **NO_DROPOUT)
        expected = plain(**batch, **labels).loss + 0.5 * plain.elmo.mixes[0].weight.pow(2).sum()
        assert_close(penalised(**batch, **labels).loss, expected)


@pytest.mark.parametrize("model_class", HEADS)
@pytest.mark.parametrize("dropout", ["elmo_dropout", "task_dropout"])
def test_dropout_acts_in_training_only(model_class, dropout):
    model = head(model_class, **(NO_DROPOUT | {dropout: 0.5}))
    batch = batch_for(model)
    outputs = [model(**batch).to_tuple()[0] for _ in range(2)]
    assert torch.equal(*outputs)
    model.train()
    outputs = [model(**batch).to_tuple()[0] for _ in range(2)]
    assert not torch.equal(*outputs)


@pytest.mark.parametrize("model_class", HEADS)
def test_a_frozen_bilm_stays_as_it_is(model_class):
    """Its weights are bit-equal after training, and it drops nothing out; the mix and the head learn."""
    model = head(model_class, dropout=0.5, **NO_DROPOUT).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = batch_for(model)
    labels = labels_for(model, batch)
    assert torch.equal(model(**batch, **labels).loss, model(**batch, **labels).loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(**batch, **labels).loss.backward()
        optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert not any("character_encoder" in name or "bilstm" in name for name in changed)
    assert {"elmo.mixes.0.weight", "elmo.mixes.0.gamma"} < changed


@pytest.mark.parametrize("model_class", HEADS)
def test_a_bilm_that_is_not_frozen_learns(model_class):
    model = head(model_class, freeze_bilm=False, dropout=0.5, **NO_DROPOUT).train()
    batch = batch_for(model)
    labels = labels_for(model, batch)
    losses = [model(**batch, **labels).loss for _ in range(2)]
    assert not torch.equal(*losses), "the biLM's own dropout is off"
    losses[0].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.elmo.parameters())


@pytest.mark.parametrize("frozen", [True, False])
def test_mixed_precision_spares_a_frozen_bilm(frozen):
    model = head(ElmoForTokenClassification, freeze_bilm=frozen, **NO_DROPOUT)
    batch = batch_for(model)
    expected = model(**batch, output_hidden_states=True).hidden_states[2]
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**batch, output_hidden_states=True)
    assert outputs.logits.dtype == torch.bfloat16
    assert torch.equal(outputs.hidden_states[2].float(), expected) is frozen


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_frozen_is_frozen_after_loading(tmp_path, frozen):
    head(
        ElmoForTokenClassification, freeze_bilm=frozen, train_word_vectors=not frozen, **WORD_VECTORS
    ).save_pretrained(tmp_path)
    for loaded in (
        ElmoForTokenClassification.from_pretrained(tmp_path),
        ElmoForTokenClassification.from_pretrained(tmp_path, output_loading_info=True)[0],
    ):
        learning = {name for name, parameter in loaded.named_parameters() if parameter.requires_grad}
        assert ("elmo.bilstm.forward_layers.0.bias" in learning) is not frozen
        assert ("word_vectors.weight" in learning) is not frozen
        assert {"elmo.mixes.0.weight", "classifier.weight"} < learning


@pytest.mark.parametrize("model_class", [ElmoForTokenClassification, ElmoForMultipleChoice])
def test_layer_weights_are_those_of_the_mixes(model_class):
    model = head(model_class, task_lstm_size=3, elmo_at_output=True)
    for number, mix in enumerate(model.elmo.mixes):
        weights, gamma = model.layer_weights(number)
        assert torch.equal(weights, torch.softmax(mix.weight, dim=0))
        assert gamma == mix.gamma
    assert not torch.equal(model.layer_weights().weights, model.layer_weights(1).weights)
    without = head(model_class, use_elmo=False, **WORD_VECTORS)
    with pytest.raises(ValueError, match=r"use_elmo=False, so it has no layers"):
        without.layer_weights()


def test_word_vectors_are_set_saved_and_checked(tmp_path):
    model = head(ElmoForTokenClassification, word_vector_size=3, word_vector_vocab_size=4)
    matrix = torch.arange(12.0).view(4, 3)
    with pytest.raises(ValueError, match="Row 0 of the word vectors is padding"):
        model.set_word_vectors(matrix + 1)
    with pytest.raises(ValueError, match=r"shape \(4, 2\), but this model has \(4, 3\)"):
        model.set_word_vectors(matrix[:, :2])
    matrix[0] = 0
    model.set_word_vectors(matrix.numpy())
    model.save_pretrained(tmp_path)
    assert torch.equal(ElmoForTokenClassification.from_pretrained(tmp_path).word_vectors.weight, matrix)


def test_fresh_word_vectors_are_zero_at_padding():
    model = ElmoForTokenClassification(tiny_config(**WORD_VECTORS))
    assert (model.word_vectors.weight[0] == 0).all()
    assert (model.word_vectors.weight[1:] != 0).all()


# --- From the tokenizer ----------------------------------------------------------------------------------------------


def test_the_tokenizer_makes_word_vector_ids(tmp_path):
    tokenizer = ElmoTokenizer()
    assert "word_vector_ids" not in tokenizer("a")
    tokenizer.set_word_vectors(["the", "The", "bank", "\u2028"])
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, ElmoTokenizer.from_pretrained(tmp_path)):
        assert one("the The THE Bank zzz")["word_vector_ids"] == [0, 2, 3, 2, 4, 1, 0]
        batch = one(["the", "the bank"], padding=True, return_tensors="pt")
        assert batch["word_vector_ids"].tolist() == [[0, 2, 0, 0], [0, 2, 4, 0]]
        padded = one.pad([one("the"), one("the bank")], return_tensors="pt")
        assert torch.equal(padded["word_vector_ids"], batch["word_vector_ids"])
    with pytest.raises(ValueError, match="1 of the words occur more than once"):
        tokenizer.set_word_vectors(["a", "b", "a"])


def test_predicates_are_padded():
    tokenizer = ElmoTokenizer()
    features = [{**tokenizer("a b"), "predicate_ids": [0, 1, 0, 0]}, {**tokenizer("a"), "predicate_ids": [0, 1, 0]}]
    assert tokenizer.pad(features, return_tensors="pt")["predicate_ids"].tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]


# --- Mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_told():
    model = head(ElmoForTokenClassification)
    batch = batch_for(model)
    shape = batch["input_ids"].shape
    with pytest.raises(ValueError, match=r"labels has the value 3, but this model has 3 labels.*Set num_labels"):
        model(**batch, labels=torch.full(shape, 3))
    with pytest.raises(ValueError, match=r"labels has the shape \(5, 3\), but this batch needs"):
        model(**batch, labels=torch.zeros(5, 3).long())
    with pytest.raises(ValueError, match="There is nothing to read"):
        model()
    with pytest.raises(ValueError, match="character_ids is missing"):
        model(batch["input_ids"])
    with pytest.raises(ValueError, match=r"word ids are \(batch, words\)"):
        model(batch["character_ids"])

    model = head(ElmoForTokenClassification, **WORD_VECTORS)
    with pytest.raises(ValueError, match=r"word_vector_ids is missing.*a tokenizer that knows"):
        model(**batch)
    with pytest.raises(ValueError, match=r"word_vector_ids has the shape \(5, 2\)"):
        model(**batch, word_vector_ids=torch.zeros(5, 2).long())
    model = head(ElmoForTokenClassification, predicate_embedding_size=2)
    with pytest.raises(ValueError, match=r"predicate_ids is missing.*1 at the predicate"):
        model(**batch)

    pair = ElmoTokenizer()("a b", "c", return_tensors="pt")
    with pytest.raises(ValueError, match="Row 0 of the batch has 2 sentences, but this model classifies single ones"):
        head(ElmoForSequenceClassification)(**pair)
    with pytest.raises(ValueError, match=r"has 1 sentence\(s\), but this model classifies pairs"):
        head(ElmoForSequenceClassification, num_sentences=2)(**batch)
    model = head(ElmoForSequenceClassification)
    with pytest.raises(ValueError, match="labels has the value 7, but this model has 3 labels"):
        model(**batch, labels=torch.full((5,), 7))
    with pytest.raises(ValueError, match=r"labels has the shape \(2,\)"):
        model(**batch, labels=torch.zeros(2).long())
    model = head(ElmoForSequenceClassification, problem_type="multi_label_classification")
    with pytest.raises(ValueError, match=r"several labels a sentence need \(5, 3\)"):
        model(**batch, labels=torch.zeros(5))
    model = head(ElmoForSequenceClassification, num_labels=1)
    with pytest.raises(ValueError, match=r"labels has the shape \(3,\)"):
        model(**batch, labels=torch.zeros(3))

    model = head(ElmoForQuestionAnswering)
    with pytest.raises(ValueError, match="give start_positions and end_positions, or neither"):
        model(**batch, start_positions=torch.zeros(5).long())
    with pytest.raises(ValueError, match="There are 2 positions for a batch of 5"):
        model(**batch, start_positions=torch.zeros(2).long(), end_positions=torch.zeros(2).long())
    model = head(ElmoForMultipleChoice)
    with pytest.raises(ValueError, match=r"choices are \(batch, choices, words\)"):
        model(**batch)
    with pytest.raises(ValueError, match="labels has the value 9"):
        model(**batch_for(model), labels=torch.tensor([9]))


def test_labels_of_the_scheme_are_demanded():
    with pytest.raises(ValueError, match="'LABEL_0' does not fit the scheme BIO"):
        ElmoForTokenClassification(tiny_config(use_crf=True, crf_scheme="BIO", num_labels=3))


# --- Learning --------------------------------------------------------------------------------------------------------


def twenty_sentences() -> list[str]:
    words = ["river", "bank", "money", "the", "A", "lends", "boat", "rises", ",", "slowly", "won", "'t"]
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(2, 9, (20,), generator=generator).tolist()
    return [" ".join(words[i] for i in torch.randint(len(words), (n,), generator=generator).tolist()) for n in lengths]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "crf"), [*[(model_class, False) for model_class in HEADS], (ElmoForTokenClassification, True)]
)
def test_twenty_sentences_are_learned_by_heart(model_class, crf):
    torch.manual_seed(0)
    settings = {"use_crf": True, "crf_scheme": "BIO", "id2label": {0: "O", 1: "B-X", 2: "I-X"}} if crf else {}
    config = tiny_config(num_labels=3, task_lstm_size=32, projection_size=16, cell_size=32, **NO_DROPOUT, **settings)
    model = model_class(config).train()
    sentences = twenty_sentences()
    batch = dict(encode(sentences))
    shape = batch["input_ids"].shape
    generator = torch.Generator().manual_seed(6)
    if model_class is ElmoForTokenClassification:
        inner = batch["attention_mask"].bool() & (batch["input_ids"] > 1)
        gold = torch.randint(0, 2, shape, generator=generator)
        targets = {"labels": gold.masked_fill(~inner, -100)}
    elif model_class is ElmoForQuestionAnswering:
        lengths = batch["attention_mask"].sum(dim=1)
        gold = (torch.rand(20, generator=generator) * lengths).long()
        targets = {"start_positions": gold, "end_positions": gold}
    elif model_class is ElmoForMultipleChoice:
        batch = {name: value.view(5, 4, *value.shape[1:]) for name, value in batch.items()}
        gold = torch.randint(0, 4, (5,), generator=generator)
        targets = {"labels": gold}
    else:
        gold = torch.randint(0, 3, (20,), generator=generator)
        targets = {"labels": gold}
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        model(**batch, **targets).loss.backward()
        optimizer.step()
    outputs = model.eval()(**batch)
    if model_class is ElmoForTokenClassification:
        assert torch.equal(outputs.logits.argmax(-1)[inner], gold[inner])
    elif model_class is ElmoForQuestionAnswering:
        assert torch.equal(outputs.start_logits.argmax(-1), gold)
        assert torch.equal(outputs.end_logits.argmax(-1), gold)
    else:
        assert torch.equal(outputs.logits.argmax(-1), gold)


def test_a_head_loads_the_base_model_and_the_other_way_round(tmp_path):
    base = random_model()
    base.save_pretrained(tmp_path / "base")
    loaded, report = ElmoForTokenClassification.from_pretrained(
        tmp_path / "base", num_labels=5, output_loading_info=True
    )
    assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(a, b) for a, b in zip(base.parameters(), loaded.elmo.parameters(), strict=True))
    loaded.save_pretrained(tmp_path / "head")
    again = ElmoModel.from_pretrained(tmp_path / "head")
    assert all(torch.equal(a, b) for a, b in zip(base.parameters(), again.parameters(), strict=True))
