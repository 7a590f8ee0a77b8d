"""Vectors of one model in the space of another: in the model, from AllenNLP's files, and made with a dictionary."""

import json
import random
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from originals import _original_module, _WheelImporter, wheel_source
from test_auto import run_without_the_package
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForTokenClassification

import hf_elmo.alignment
from hf_elmo import ELMO_MINI, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, batch_to_ids
from hf_elmo.alignment import (
    Anchors,
    align_anchors,
    cosine_table,
    csls,
    in_lower_case,
    procrustes,
    read_dictionary,
    with_alignment,
    word_anchors,
)
from hf_elmo.cli import main
from hf_elmo.conversion.aligned import aligned_card, convert_aligned, verify_alignment
from hf_elmo.conversion.allennlp import convert_allennlp
from hf_elmo.hub import save_model_files, verify_checksums
from hf_elmo.model_card import TASK_WEIGHTS
from hf_elmo.scripts.original_wheels import allennlp_fixtures

SIZE = 12  # of the vectors of a tiny model


def random_matrix(size: int = SIZE, seed: int = 3) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(size: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(random_matrix(size, seed)).Q


# --- In the model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combination", ["mix", "top", "average", 1])
def test_what_the_layers_become_is_multiplied(combination):
    plain = random_model(tiny_config(layer_combination=combination))
    aligned = random_model(tiny_config(layer_combination=combination, use_alignment=True))
    batch = encode(SENTENCES)
    with torch.no_grad():
        before = plain(**batch, output_hidden_states=True)
        assert torch.equal(aligned.alignment.matrix, torch.eye(SIZE))  # when fresh
        assert_close(aligned(**batch).last_hidden_state, before.last_hidden_state)
        aligned.alignment.matrix.copy_(random_matrix())
        after = aligned(**batch, output_hidden_states=True)
        expected = before.last_hidden_state.double() @ random_matrix().float().double().T
        assert_close(after.last_hidden_state.double(), expected, atol=1e-5, rtol=0)
        assert torch.equal(torch.stack(after.hidden_states), torch.stack(before.hidden_states))
        assert not after.last_hidden_state[~batch["attention_mask"].bool()].any()
        again = aligned.combine_layers(after.hidden_states, batch["attention_mask"])
        assert torch.equal(again[0], after.last_hidden_state)
        for row, sentence in enumerate(SENTENCES):
            alone = aligned(**encode([sentence])).last_hidden_state[0]
            assert_close(after.last_hidden_state[row, : len(alone)], alone, atol=1e-5, rtol=0)


def test_each_of_several_mixes_is_multiplied():
    model = random_model(tiny_config(num_output_representations=2, use_alignment=True))
    model.alignment.matrix.copy_(random_matrix())
    batch = encode(SENTENCES)
    with torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
        for mix, vectors in zip(model.mixes, outputs.elmo_representations, strict=True):
            mask = batch["attention_mask"].bool()
            mixed = mix([layer[mask] for layer in outputs.hidden_states])
            assert_close(vectors[mask], mixed @ random_matrix().float().T, atol=1e-5, rtol=0)


def test_nothing_else_changes():
    """A model without has no weight more, and one with has none that learns."""
    plain, aligned = random_model(), random_model(tiny_config(use_alignment=True))
    assert set(aligned.state_dict()) - set(plain.state_dict()) == {"alignment.matrix"}
    assert [name for name, _ in aligned.named_parameters()] == [name for name, _ in plain.named_parameters()]
    outputs = aligned(**encode(SENTENCES)).last_hidden_state
    outputs.sum().backward()
    assert not aligned.alignment.matrix.requires_grad
    assert aligned(**encode(["", ""])).last_hidden_state.shape == (2, 2, SIZE)


def test_saved_and_loaded(tmp_path):
    model = with_alignment(random_model(), random_matrix(), layer=1)
    model.save_pretrained(tmp_path / "saved")
    loaded, report = ElmoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(loaded.alignment.matrix, random_matrix().float())
    batch = encode(SENTENCES)
    with torch.no_grad():
        assert torch.equal(loaded(**batch).last_hidden_state, model(**batch).last_hidden_state)
    double = ElmoModel.from_pretrained(tmp_path / "saved", dtype=torch.float64)
    assert double.alignment.matrix.dtype == torch.float64


@pytest.mark.slow
def test_custom_code_initialises_and_keeps_it(tmp_path):
    """Without the package, a checkpoint that has the matrix and one that has not, which is then fresh."""
    random_model(tiny_config(layer_combination=1)).save_pretrained(tmp_path / "without")
    with_alignment(random_model(), random_matrix()).save_pretrained(tmp_path / "with")
    code = """
for name in ("without", "with"):
    model = AutoModel.from_pretrained(f"{folder}/{name}", trust_remote_code=True, use_alignment=True)
    print(json.dumps(model.alignment.matrix.tolist()))
"""
    fresh, kept = map(json.loads, run_without_the_package(code, tmp_path, tmp_path).splitlines())
    assert torch.equal(torch.tensor(fresh), torch.eye(SIZE))
    assert torch.equal(torch.tensor(kept), random_matrix().float())


def test_heads_keep_it_and_do_not_train_it(tmp_path):
    with_alignment(random_model(), random_matrix()).save_pretrained(tmp_path / "base")
    head = AutoModelForTokenClassification.from_pretrained(tmp_path / "base", num_labels=3, freeze_bilm=False)
    assert isinstance(head, ElmoForTokenClassification)
    batch = encode(SENTENCES)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    head.train()(**batch, labels=torch.ones_like(batch["input_ids"])).loss.backward()
    optimizer.step()
    assert torch.equal(head.elmo.alignment.matrix, random_matrix().float())
    head.save_pretrained(tmp_path / "head")
    again = ElmoForTokenClassification.from_pretrained(tmp_path / "head")
    assert torch.equal(again.elmo.alignment.matrix, random_matrix().float())
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, head.eval()(**batch).logits)


@pytest.mark.parametrize(
    ("matrix", "layer", "message"),
    [
        (random_matrix(5), 1, r"The matrix is \(5, 5\), but the vectors of this model need \(12, 12\)"),
        (random_matrix() * 1e300, 1, "NaN or infinite in torch.float32"),
        (random_matrix(), 3, r"layer=3 is not possible: the model has the layers 0 \(the words\) to 2"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(matrix, layer, message):
    with pytest.raises(ValueError, match=message):
        with_alignment(random_model(), matrix, layer)


# --- From AllenNLP's files -------------------------------------------------------------------------------------------

_ABSENT = "from allennlp import Absent as {}\n"


class _OldImporter(_WheelImporter):
    """Imports the code of allennlp 0.9.0 from its wheel; what ELMo does not use is an empty class."""

    package = "original_allennlp_0_9_0"
    stand_ins: ClassVar = {
        "": "class Absent: pass\n",
        "common": "from allennlp.common.params import Params\nfrom allennlp.common.registrable import Registrable\n",
        "common.file_utils": "def cached_path(path, **options):\n    return str(path)\n",
        "common.util": _ABSENT.format("lazy_groups_of") + _ABSENT.format("pad_sequence_to_length"),
        "data": "".join(map(_ABSENT.format, ("Token", "Vocabulary", "Instance"))),
        "data.dataset": _ABSENT.format("Batch"),
        "data.fields": _ABSENT.format("TextField"),
        "data.token_indexers": "",
        "data.tokenizers": "",
        "data.tokenizers.token": _ABSENT.format("Token"),
        "data.vocabulary": _ABSENT.format("Vocabulary"),
        "modules": "",
        "modules.token_embedders": "",
        "nn": "",
    }
    modules: ClassVar = {
        "common.file_utils",
        "common.util",
        "data.dataset",
        "data.tokenizers.token",
        "data.vocabulary",
    }

    def is_package(self, fullname):
        name = fullname[len(self.package) + 1 :]
        return name in self.stand_ins and name not in self.modules

    def get_source(self, fullname):
        name = fullname[len(self.package) + 1 :]
        source = self.stand_ins.get(name)
        if source is None:
            source = wheel_source("0.9.0", name.replace(".", "/") + ".py")
        source = source.replace("from overrides import overrides\n", "def overrides(method): return method\n")
        return re.sub(r"^from allennlp\b", f"from {self.package}", source, flags=re.MULTILINE)


def original_vectors(options, weights, matrix, ids, monkeypatch) -> np.ndarray:
    """What AllenNLP 0.9.0 computes with the settings of the published models."""
    embedder = _original_module("modules.token_embedders.elmo_token_embedder_multilang", _OldImporter)
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda path: load(path, weights_only=False))  # as it was in 2019
    model = embedder.ElmoTokenEmbedderMultiLang(
        options_files={"xx": str(options)},
        weight_files={"xx": str(weights)},
        aligning_files={"xx": str(matrix)},
        scalar_mix_parameters=[-9e10, 1, -9e10],
    )
    monkeypatch.setattr(torch, "load", load)
    with torch.no_grad():
        return model.eval()(ids, lang="xx").numpy()


def fixture(language: str, matrix: str = "align.pth") -> tuple[Path, Path, Path]:
    """The options, the weights and the matrix of a language; English has the weights of the other fixtures."""
    folder = allennlp_fixtures() / "elmo_multilingual" / language
    if language == "en":
        english = allennlp_fixtures() / "elmo"
        return english / "options.json", english / "lm_weights.hdf5", folder / matrix
    return folder / "options.json", folder / "weights.hdf5", folder / matrix


@pytest.mark.parametrize(
    ("language", "matrix"),
    [("en", "align.pth"), ("es", "align.pth"), ("fr", "align.pth"), ("it", "align.pth"), ("fr", "align_zero.pth")],
)
def test_the_vectors_are_those_of_allennlp(tmp_path, monkeypatch, language, matrix):
    options, weights, align = fixture(language, matrix)
    report = convert_aligned(options, weights, align, tmp_path / "folder")
    model = AutoModel.from_pretrained(tmp_path / "folder")
    assert model.config.layer_combination == 1
    assert model.config.use_alignment
    words = words_of(SENTENCES)
    ids = batch_to_ids(words)
    with torch.no_grad():
        ours = model(ids).last_hidden_state.numpy()
    theirs = original_vectors(options, weights, align, ids, monkeypatch)
    assert ours.shape == theirs.shape == (len(words), max(map(len, words)), 32)
    assert np.abs(ours - theirs).max() <= 1e-5
    assert bool(np.abs(theirs).max()) == (matrix != "align_zero.pth")
    assert report.parity.float64 < 1e-9


@pytest.fixture(scope="module")
def french(tmp_path_factory):
    folder = tmp_path_factory.mktemp("french") / "elmo-fr"
    lines = []
    report = convert_aligned(*fixture("fr"), folder, license="mit", languages=("fr",), progress=lines.append)
    return folder, report, lines


def test_the_folder_is_complete(french):
    folder, report, lines = french
    verify_checksums(folder)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == []
    assert "verifying the alignment" in lines
    plain = sum(weight.numel() for weight in ElmoModel.from_pretrained(folder).parameters())
    assert report.num_parameters == plain + 32 * 32
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "# elmo-fr\n" in card
    assert 'from_pretrained("elmo-fr"' in card
    assert "layer 1 times a matrix" in card
    assert "`align.pth`" in card
    assert TASK_WEIGHTS not in card
    assert card.index("## Alignment") < card.index("## Limits")
    assert ModelCard(card).data.language == ["fr"]


def test_broken_matrices_leave_nothing(tmp_path):
    options, weights, _ = fixture("fr")
    wrong = tmp_path / "wrong.pth"
    torch.save(torch.zeros(64, 32), wrong)
    with pytest.raises(ValueError, match=r"wrong.pth: 'matrix' has shape \(64, 32\); this model has \(32, 32\)"):
        convert_aligned(options, weights, wrong, tmp_path / "folder")
    torch.save(random_matrix(32).numpy() * 1e300, wrong)
    with pytest.raises(ValueError, match="NaN or infinite in torch"):
        convert_aligned(options, weights, wrong, tmp_path / "folder")
    (tmp_path / "options.json").write_text(options.read_text().replace('"projection_dim"', '"other"'))
    with pytest.raises(ValueError, match=r"options.json: .*projection_dim"):
        convert_aligned(tmp_path / "options.json", weights, wrong, tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["options.json", "wrong.pth"]


def test_a_wrong_result_is_not_kept(tmp_path):
    model = random_model()
    save_model_files(with_alignment(model, random_matrix()), ElmoTokenizer(), tmp_path)
    assert max(verify_alignment(tmp_path, random_model(), random_matrix().numpy(), 1).values()) < 1e-5
    with pytest.raises(ValueError, match="away from the product of layer and matrix"):
        verify_alignment(tmp_path, model, random_matrix().T.numpy(), 1)


def test_cards_of_others_and_none_get_the_section():
    assert aligned_card(None, "new", 1, ["Text."]).endswith("# new\n\nAn ELMo model.\n\n## Alignment\n\nText.\n")
    card = '# old\n\n`old` or "old"\n\n## Alignment\n\nEarlier.\n\n## Limits\n\n- None.\n'
    expected = '# new\n\n`new` or "new"\n\n## Alignment\n\nText.\n\n## Limits\n\n- None.\n'
    assert aligned_card(card, "new", 1, ["Text."]) == expected


# --- The dictionary and the anchors ----------------------------------------------------------------------------------


def test_dictionaries(tmp_path):
    path = tmp_path / "es-en.txt"
    path.write_bytes("\ufeffgato cat\nperro\tdog\r\n\ngato tomcat\ngato cat\n은행 bank\n".encode())
    assert read_dictionary(path) == [("gato", "cat"), ("perro", "dog"), ("gato", "tomcat"), ("은행", "bank")]
    assert in_lower_case([("Gato", "Cat"), ("gato", "cat")]) == [("gato", "cat")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"gato cat\nperro\n", "line 2 has 1 words; a line must be a word and its translation"),
        (b"a b c\n", "line 1 has 3 words"),
        (b"gato cat\n\xff b\n", "line 2 is not UTF-8"),
        (b"\n \n", "has no pairs of words"),
    ],
)
def test_broken_dictionaries_are_refused(tmp_path, content, message):
    path = tmp_path / "dictionary.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_dictionary(path)


def made_up_text(sentences: int = 60, words: int = 40, seed: int = 1) -> list[list[str]]:
    generator = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(words)]
    return [generator.choices(vocabulary, k=generator.randint(1, 12)) for _ in range(sentences)]


@pytest.mark.parametrize("words_per_batch", [1, 25, 2048])
@pytest.mark.parametrize("max_occurrences", [None, 3])
def test_anchors_are_means_over_occurrences(words_per_batch, max_occurrences):
    model, tokenizer, text = random_model(), ElmoTokenizer(), made_up_text(20, words=9)
    words = ["w3", "absent", "w7", "w0"]
    found = word_anchors(
        model, tokenizer, text, words, layer=2, max_occurrences=max_occurrences, words_per_batch=words_per_batch
    )
    for row, word in enumerate(words):
        vectors = []
        for sentence in text:
            batch = tokenizer([sentence], is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                layer = model(**batch, output_hidden_states=True).hidden_states[2][0, 1:-1]
            vectors += [layer[place].double() for place, other in enumerate(sentence) if other == word]
        vectors = vectors[:max_occurrences]
        assert found.counts[row] == len(vectors)
        expected = torch.stack(vectors).mean(dim=0) if vectors else torch.zeros(SIZE, dtype=torch.float64)
        assert_close(found.vectors[row], expected, atol=1e-6, rtol=0)
    assert found.places(min_occurrences=1) == {"w3": 0, "w7": 2, "w0": 3}


def test_anchors_of_any_case_and_of_padding_on_the_left():
    model, tokenizer = random_model(), ElmoTokenizer()
    text = [["Bank", "of", "a", "river"], ["The", "BANK"], []]
    assert word_anchors(model, tokenizer, text, ["bank"]).counts == [0]
    found = word_anchors(model, tokenizer, text, ["bank"], ignore_case=True)
    assert found.counts == [2]
    left = ElmoTokenizer(padding_side="left")
    assert_close(word_anchors(model, left, text, ["bank"], ignore_case=True).vectors, found.vectors)


def test_only_what_is_needed_is_read(monkeypatch):
    """The text is not read on when all words are complete, and long sentences are cut."""
    read = []

    def sentences():
        for number in range(1000):
            read.append(number)
            yield ["a", "b"]

    found = word_anchors(random_model(), ElmoTokenizer(), sentences(), ["a"], max_occurrences=5)
    assert found.counts == [5]
    assert len(read) <= 6
    monkeypatch.setattr(hf_elmo.alignment, "LONGEST_SENTENCE", 10)
    found = word_anchors(random_model(), ElmoTokenizer(), [["a", "b"] * 20], ["b"], layer=0)
    assert found.counts == [20]


def test_a_word_twice_is_refused():
    with pytest.raises(ValueError, match="1 of the words occur more than once"):
        word_anchors(random_model(), ElmoTokenizer(), [], ["a", "a"])
    with pytest.raises(ValueError, match="layer=7 is not possible"):
        word_anchors(random_model(), ElmoTokenizer(), [], ["a"], layer=7)


# --- The matrix and its figures --------------------------------------------------------------------------------------


def test_procrustes_finds_a_rotation():
    source, known = torch.randn(50, SIZE, dtype=torch.float64), rotation(SIZE, seed=5)
    assert_close(procrustes(source, source @ known.T), known)
    shifted = source @ known.T + 7
    assert_close(procrustes(source, shifted, center=True), known)
    assert not torch.allclose(procrustes(source, shifted), known, atol=0.01)


def test_procrustes_is_the_best_orthogonal_matrix():
    source, target = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 4, dtype=torch.float64)
    best = procrustes(source.float(), target.float())
    assert_close(best @ best.T, torch.eye(4, dtype=torch.float64))
    distance = (source @ best.T - target).norm()
    for seed in range(200):
        assert (source @ rotation(4, seed).T - target).norm() > distance
    with pytest.raises(ValueError, match=r"The source is \(30, 4\) and the target \(30, 5\)"):
        procrustes(source, torch.zeros(30, 5))


def test_csls_against_a_plain_loop(monkeypatch):
    monkeypatch.setattr(hf_elmo.alignment, "ROWS_AT_ONCE", 3)
    sources, targets = torch.randn(9, 5), torch.randn(7, 5)
    found = csls(sources[:4], targets, sources, neighbours=2)

    def cosine(one, other):
        return float(one @ other / one.norm() / other.norm())

    def crowd(one, others):
        return sum(sorted((cosine(one, other) for other in others), reverse=True)[:2]) / 2

    for x in range(4):
        for y in range(7):
            expected = 2 * cosine(sources[x], targets[y]) - crowd(sources[x], targets) - crowd(targets[y], sources)
            assert float(found[x, y]) == pytest.approx(expected, abs=1e-5)
    assert csls(sources[:1], targets[:3], sources, neighbours=10).shape == (1, 3)
    assert_close(cosine_table(sources, sources).diagonal(), torch.ones(9))


def anchors_of(words: list[str], vectors: torch.Tensor, counts: list[int] | None = None) -> Anchors:
    return Anchors(words, vectors.double(), counts or [5] * len(words))


def test_what_is_reported():
    """Of six pairs, one has a rare source word, one a target word that is not there; `a` has two translations."""
    known, vectors = rotation(4, seed=1), torch.randn(5, 4, dtype=torch.float64)
    source = anchors_of(["a", "b", "c", "d", "rare"], vectors, [5, 5, 5, 5, 1])
    target = anchors_of(["A", "B", "C", "D", "absent", "A2"], torch.cat([vectors, vectors[:1] * 2]) @ known.T)
    target.counts[4] = 0
    pairs = [("a", "A"), ("a", "A2"), ("b", "B"), ("c", "C"), ("d", "absent"), ("rare", "D")]
    matrix, report = align_anchors(pairs, source, target, min_occurrences=2, held_out=0.34, seed=3)
    assert (report.pairs, report.missing_source, report.missing_target) == (6, 1, 1)
    assert report.training_pairs + report.test_pairs == 4
    assert report.test_words == 1
    assert report.candidates == 5
    assert matrix.shape == (4, 4)
    assert align_anchors(pairs, source, target, min_occurrences=2, held_out=0.34, seed=3)[1] == report
    text = str(report)
    assert "pairs: 6 given, 4 used" in text
    assert "1 missing in the source text, 1 in the target text" in text
    assert "do not determine a matrix of 4 x 4" in text

    _, report = align_anchors(pairs, source, target, min_occurrences=2, held_out=0)
    assert report.test_pairs == 0
    assert report.after.csls_precision is None
    assert "(training pairs)" in str(report)
    assert "precision" not in str(report)
    assert json.loads(json.dumps(report.to_dict()))["after"]["mean_cosine"] == pytest.approx(1)


def test_precision_tells_right_from_wrong():
    """With a rotation between them all words are found; with unrelated vectors few are."""
    words, known = [f"w{number}" for number in range(200)], rotation(SIZE, seed=2)
    pairs = [(word, word) for word in words]
    source = anchors_of(words, torch.randn(200, SIZE))
    matrix, report = align_anchors(pairs, source, source.times(known), seed=1)
    assert_close(matrix, known)
    assert (report.training_pairs, report.test_pairs) == (160, 40)
    assert report.after.nearest_precision == report.after.csls_precision == 1
    assert report.after.mean_cosine == pytest.approx(1)
    assert report.before.nearest_precision < 0.1
    _, unrelated = align_anchors(pairs, source, anchors_of(words, torch.randn(200, SIZE)))
    assert unrelated.after.nearest_precision < 0.2
    assert unrelated.after.csls_precision < 0.2


@pytest.mark.parametrize(
    ("options", "pairs", "message"),
    [
        ({}, [("no", "a")], "No pair of the dictionary has both words at least 1 times"),
        ({"min_occurrences": 9}, [("a", "a")], "at least 9 times in the texts, where 0 of its source words"),
        ({"held_out": 1.0}, [("a", "a")], r"held_out=1.0 is not possible"),
        ({"min_occurrences": 0}, [("a", "a")], "min_occurrences=0 is not possible"),
        ({"held_out": 0.5}, [("a", "a"), ("a", "b")], "only one word of the dictionary can be used"),
    ],
)
def test_what_cannot_be_aligned(options, pairs, message):
    anchors = anchors_of(["a", "b"], torch.randn(2, 4))
    with pytest.raises(ValueError, match=message):
        align_anchors(pairs, anchors, anchors, **options)


# --- The command -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def rotated(model: ElmoModel, first: torch.Tensor, second: torch.Tensor) -> ElmoModel:
    """The same model with the two directions of layer 1 rotated, and what reads that layer rotated back."""
    for layers, turn in ((model.bilstm.forward_layers, first), (model.bilstm.backward_layers, second)):
        turn = turn.float()
        layers[0].projection_weight.copy_(layers[0].projection_weight @ turn)
        layers[0].recurrent_weight.copy_(turn.T @ layers[0].recurrent_weight)
        layers[1].input_weight.copy_(turn.T @ layers[1].input_weight)
    return model


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two models, one a rotated copy of the other, text and a dictionary."""
    folder = tmp_path_factory.mktemp("world")
    config = tiny_config(projection_clip=None, use_skip_connections=False)
    first, second = rotation(6, seed=1), rotation(6, seed=2)
    save_model_files(random_model(config), ElmoTokenizer(), folder / "english")
    save_model_files(rotated(random_model(config), first, second), ElmoTokenizer(), folder / "spanish")
    (folder / "text.txt").write_text("".join(f"{' '.join(words)}\n" for words in made_up_text(300)))
    (folder / "dictionary.txt").write_text("".join(f"w{number} w{number}\n" for number in range(45)))
    return folder, torch.block_diag(first, second)


def run(folder: Path, output: Path, *more: str, source: str = "spanish", target: str = "english") -> int:
    text = str(folder / "text.txt")
    models = [str(folder / source), str(folder / target)]
    files = ["--dictionary", str(folder / "dictionary.txt"), "--source-text", text, "--target-text", text]
    return main(["align", *models, *files, "--output", str(output), "--quiet", *more])


def test_the_command_recovers_a_rotation(world, tmp_path, capsys):
    folder, known = world
    assert run(folder, tmp_path / "aligned", "--min-occurrences", "2", "--max-occurrences", "50") == 0
    printed = capsys.readouterr().out
    assert "pairs: 45 given, 40 used (32 for the matrix, 8 held out); 5 missing in the source text, 5" in printed
    assert "100.00% after; CSLS" in printed
    aligned = AutoModel.from_pretrained(tmp_path / "aligned")
    assert_close(aligned.alignment.matrix.double(), known, atol=1e-4, rtol=0)
    batch = encode(["w1 w2 w3", "something else"])
    with torch.no_grad():
        target = ElmoModel.from_pretrained(folder / "english")(**batch, output_hidden_states=True).hidden_states[1]
        assert_close(aligned(**batch).last_hidden_state, target, atol=1e-4, rtol=0)
    verify_checksums(tmp_path / "aligned")
    figures = json.loads((tmp_path / "aligned" / "alignment.json").read_text())
    assert figures["after"]["nearest_precision"] == figures["after"]["csls_precision"] == 1
    assert figures["before"]["mean_cosine"] < 0.9
    card = (tmp_path / "aligned" / "README.md").read_text(encoding="utf-8")
    assert "the space of `english`" in card
    assert "hf-elmo align" in card
    assert "100.00%" in card


def test_the_model_of_the_package_is_known_by_its_name(tmp_path, monkeypatch):
    """With itself as the target, nothing is turned; no path of this machine is written down."""
    monkeypatch.chdir(tmp_path)
    words = "the bank of river was near a house and lent money to king".split()
    (tmp_path / "text.txt").write_text("".join(f"{' '.join(words[start:] + words[:start])}\n" for start in range(13)))
    (tmp_path / "dictionary.txt").write_text("".join(f"{word} {word}\n" for word in words))
    command = "align elmo-mini elmo-mini --dictionary dictionary.txt --source-text text.txt --target-text text.txt"
    assert main([*command.split(), "--output", "aligned", "--held-out", "0", "--quiet"]) == 0
    figures = json.loads((tmp_path / "aligned" / "alignment.json").read_text())
    assert (figures["source"], figures["target"]) == ("elmo-mini", "elmo-mini")
    card = (tmp_path / "aligned" / "README.md").read_text(encoding="utf-8")
    assert "the space of `elmo-mini`" in card
    assert str(ELMO_MINI) not in card


def test_the_space_of_an_aligned_model_is_where_its_vectors_are(world, tmp_path, capsys):
    """English in the space of Spanish that was put into another space: the matrices follow each other."""
    folder, known = world
    spanish = ElmoModel.from_pretrained(folder / "spanish")
    other = rotation(SIZE, seed=9)
    save_model_files(with_alignment(spanish, other), ElmoTokenizer(), tmp_path / "spanish")
    options = {"source": "english", "target": str(tmp_path / "spanish")}
    assert run(folder, tmp_path / "aligned", "--held-out", "0", **options) == 0
    aligned = ElmoModel.from_pretrained(tmp_path / "aligned")
    assert_close(aligned.alignment.matrix.double(), other @ known.T, atol=1e-4, rtol=0)
    assert run(folder, tmp_path / "two", "--layer", "2", **options) == 1
    assert "is aligned itself, at layer 1: only --layer 1 leads into its space" in capsys.readouterr().err


def test_a_language_model_can_be_aligned(world, tmp_path):
    """What `hf-elmo pretrain` writes has a softmax around the encoder; the card of the model stays."""
    folder, _ = world
    model = random_model(tiny_config(), model_class=ElmoForPreTraining)
    save_model_files(model, ElmoTokenizer(), tmp_path / "lm")
    (tmp_path / "lm" / "README.md").write_text(f"---\nlicense: mit\n---\n\n# lm\n\n## Limits\n\n- {TASK_WEIGHTS}\n")
    assert run(folder, tmp_path / "aligned", "--center", source=str(tmp_path / "lm")) == 0
    aligned = ElmoModel.from_pretrained(tmp_path / "aligned")
    for name, weight in model.elmo.bilstm.state_dict().items():
        assert torch.equal(aligned.bilstm.state_dict()[name], weight)
    card = (tmp_path / "aligned" / "README.md").read_text(encoding="utf-8")
    assert ModelCard(card).data.license == "mit"
    assert "# aligned\n" in card
    assert "--center" in card
    assert TASK_WEIGHTS not in card


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--layer", "3"), "layer=3 is not possible"),
        (("--held-out", "1"), "--held-out 1.0 is not possible"),
        (("--max-occurrences", "0"), "--max-occurrences 0 is not possible"),
        (("--max-occurrences", "2", "--min-occurrences", "3"), "not below --min-occurrences 3"),
        (("--device", "nowhere"), "--device nowhere cannot be used here"),
    ],
)
def test_mistakes_are_told_before_the_text_is_read(world, tmp_path, capsys, more, message):
    assert run(world[0], tmp_path / "aligned", *more) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "aligned").exists()


def test_models_that_do_not_fit_are_refused(world, tmp_path, capsys):
    save_model_files(random_model(tiny_config(projection_size=5)), ElmoTokenizer(), tmp_path / "narrow")
    assert run(world[0], tmp_path / "aligned", target=str(tmp_path / "narrow")) == 1
    assert "have 12 values, those of" in capsys.readouterr().err
    assert run(world[0], tmp_path / "aligned", target="nothing") == 1
    assert "is no model folder" in capsys.readouterr().err
    weights = tmp_path / "narrow" / "model.safetensors"
    weights.write_bytes(b"broken")
    assert run(world[0], tmp_path / "aligned", source=str(tmp_path / "narrow"), target=str(tmp_path / "narrow")) == 1
    assert "cannot be read; get them again" in capsys.readouterr().err
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    assert run(world[0], tmp_path / "taken") == 1
    assert "exists and is not empty" in capsys.readouterr().err


def test_what_was_converted_can_be_aligned_and_the_other_way_round(tmp_path, french):
    """A converted folder without a matrix, put into the space of one with: its card is kept and renamed."""
    options, weights, _ = fixture("es")
    convert_allennlp(options, weights, tmp_path / "elmo-es")
    text = tmp_path / "text.txt"
    text.write_text("el perro y el gato\nthe dog and the cat\n")
    (tmp_path / "dictionary.txt").write_text("perro dog\ngato cat\ny and\n")
    arguments = [str(tmp_path / "elmo-es"), str(french[0]), "--dictionary", str(tmp_path / "dictionary.txt")]
    arguments += ["--source-text", str(text), "--target-text", str(text), "--output", str(tmp_path / "aligned-es")]
    assert main(["align", *arguments, "--quiet"]) == 0
    card = (tmp_path / "aligned-es" / "README.md").read_text(encoding="utf-8")
    assert 'from_pretrained("aligned-es"' in card
    assert "elmo-es\n" not in card.split("## Use")[0]
    assert "Converted from the options and HDF5 files" in card
