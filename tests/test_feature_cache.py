"""Features from a cache are those of the model, whatever happens to the processes and files in between."""

import copy
import json
import logging
import pickle
import random
import shutil

import pytest
import torch
from cached_features import (
    HEADER_SIZE,
    LAYERS,
    assert_equal,
    by_sentence,
    computed,
    files,
    frozen_model,
    many_sentences,
    read,
    run,
)
from tiny import SENTENCES, encode, random_model, tiny_config, words_of
from torch import nn

from hf_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer, feature_cache
from hf_elmo.feature_cache import ENTRY_SIZE, FeatureCache

# --- The same numbers ------------------------------------------------------------------------------------------------


def test_layers_are_those_of_the_model_computed_or_read(tmp_path):
    model = frozen_model()
    batch = encode(SENTENCES)
    expected = model(**batch, output_hidden_states=True).hidden_states
    cache = FeatureCache(tmp_path)
    for hits in (0, len(SENTENCES)):
        layers = cache.layers(model, batch["character_ids"], batch["attention_mask"].bool())
        assert isinstance(layers, list)
        assert len(layers) == LAYERS
        assert_equal(layers, list(expected))
        assert all(layer.is_contiguous() and not layer.requires_grad for layer in layers)
        assert cache.statistics[:3] == (hits, len(SENTENCES), len(SENTENCES))


def test_a_cache_opened_again_reads_and_does_not_compute(tmp_path, monkeypatch):
    model = frozen_model()
    expected = computed(model, SENTENCES)
    read(FeatureCache(tmp_path), model, SENTENCES)
    monkeypatch.setattr(ElmoModel, "forward", None)
    cache = FeatureCache(tmp_path)
    assert_equal(read(cache, model, SENTENCES), expected)
    assert cache.statistics[:3] == (5, 0, 5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_order_do_not_matter(tmp_path, side):
    model = frozen_model()
    expected = computed(model, SENTENCES)
    cache = FeatureCache(tmp_path)
    read(cache, model, SENTENCES)
    order = [3, 0, 4, 2, 1]
    permuted = read(cache, model, [SENTENCES[number] for number in order], padding_side=side)
    assert_equal(permuted, [expected[number] for number in order])
    padded = encode(SENTENCES[1:2], padding_side=side)
    characters = nn.functional.pad(padded["character_ids"], (0, 0, 3, 4))
    mask = nn.functional.pad(padded["attention_mask"], (3, 4)).bool()
    layers = cache.layers(model, characters, mask)
    assert_equal(by_sentence(layers, mask)[0], expected[1])
    assert all(layer[~mask].eq(0).all() for layer in layers)
    assert cache.statistics.misses == 5


def test_characters_at_masked_positions_do_not_matter(tmp_path):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    batch = encode(SENTENCES[:1])
    mask = batch["attention_mask"].bool()
    mask[0, 2] = False
    layers = cache.layers(model, batch["character_ids"], mask)
    changed = batch["character_ids"].clone()
    changed[0, 2] = 7
    assert_equal(cache.layers(model, changed, mask), layers)
    assert cache.statistics[:2] == (1, 1)


def test_only_missing_sentences_are_computed_in_one_call(tmp_path):
    model = frozen_model()
    calls = []
    model.register_forward_hook(
        lambda module, args, kwargs, outputs: calls.append(kwargs["character_ids"].shape[0]), with_kwargs=True
    )
    cache = FeatureCache(tmp_path)
    first = read(cache, model, SENTENCES[:2])
    both = read(cache, model, [SENTENCES[3], SENTENCES[0], SENTENCES[4], SENTENCES[1], SENTENCES[3]])
    assert calls == [2, 2]  # a sentence that stands twice in a batch is computed once
    assert_equal([both[1], both[3]], first)
    assert_equal(both[4], both[0])
    assert_equal([both[0], both[2]], computed(model, [SENTENCES[3], SENTENCES[4]]))


def test_sentences_that_differ_in_one_character_or_in_order_are_different(tmp_path):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    read(cache, model, ["a b", "b a", "a c", "a", "a a", "ab"])
    assert cache.statistics[:3] == (0, 6, 6)


def test_empty_rows_and_batches_have_zeros_and_are_not_stored(tmp_path):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    batch = encode(SENTENCES[:2])
    characters, mask = batch["character_ids"].clone(), batch["attention_mask"].bool()
    mask[0] = False
    layers = cache.layers(model, characters, mask)
    assert all(layer[0].eq(0).all() for layer in layers)
    assert_equal(by_sentence(layers, mask)[1], computed(model, SENTENCES[1:2])[0], rtol=0, atol=1e-6)
    characters[1] = 0  # without characters there is no word, whatever the mask says
    layers = cache.layers(model, characters, mask)
    assert all(layer.eq(0).all() for layer in layers)
    assert [tuple(layer.shape) for layer in layers] == [(2, characters.shape[1], 12)] * LAYERS
    for rows, columns in ((0, 3), (2, 0)):
        layers = cache.layers(model, characters[:rows, :columns], mask[:rows, :columns])
        assert [tuple(layer.shape) for layer in layers] == [(rows, columns, 12)] * LAYERS
    assert cache.statistics[:3] == (0, 1, 1)


def test_dropout_is_off_inside_and_as_before_outside(tmp_path):
    model = frozen_model(dropout=0.5)
    expected = computed(model, SENTENCES)
    model.train()
    model.character_encoder.eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert_equal(read(FeatureCache(tmp_path), model, SENTENCES), expected)
    assert {name: module.training for name, module in model.named_modules()} == before


def test_autocast_does_not_reach_the_features(tmp_path):
    model = frozen_model()
    expected = computed(model, SENTENCES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = read(FeatureCache(tmp_path), model, SENTENCES)
    assert_equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_features_have_the_models_dtype(tmp_path, dtype):
    model = frozen_model().to(dtype)
    expected = computed(model, SENTENCES)
    cache = FeatureCache(tmp_path)
    for _ in range(2):
        actual = read(cache, model, SENTENCES)
        assert actual[0][0].dtype == dtype
        assert_equal(actual, [[layer.float().to(dtype) for layer in layers] for layers in expected])


def test_float16_rounds_what_is_read_and_what_is_computed(tmp_path):
    model = frozen_model()
    expected = computed(model, SENTENCES)
    cache = FeatureCache(tmp_path, dtype="float16")
    first = read(cache, model, SENTENCES)
    assert first[0][0].dtype == torch.float32
    assert_equal(first, expected, rtol=2**-11, atol=2**-25)
    assert_equal(first, [[layer.half().float() for layer in layers] for layers in expected])
    assert_equal(read(cache, model, SENTENCES), first)
    assert_equal(read(FeatureCache(tmp_path, dtype="float16"), model, SENTENCES), first)
    exact = FeatureCache(tmp_path)  # the same folder
    assert_equal(read(exact, model, SENTENCES), expected)
    assert exact.statistics.misses == 5


def test_float16_does_not_keep_what_does_not_fit(tmp_path, caplog):
    model = frozen_model(char_cnn_activation="relu", num_highway_layers=0)
    model.character_encoder.projection.weight.mul_(1e6)
    expected = computed(model, SENTENCES[:2])
    assert all(layers[0].abs().max() > 65504 for layers in expected)
    cache = FeatureCache(tmp_path, dtype="float16")
    for _ in range(2):
        assert_equal(read(cache, model, SENTENCES[:2]), expected)
    assert cache.statistics[:3] == (0, 4, 0)
    assert caplog.text.count("Values above 65504 do not fit float16") == 1


# --- The model -------------------------------------------------------------------------------------------------------


def change_in_place(weight):
    with torch.no_grad():
        weight.mul_(1.5)


def change_one_value(weight):
    weight.view(-1)[1] += 0.5  # not one of those that are looked at


def change_data(weight):
    weight.data.mul_(1.5)


def change_storage(weight):
    weight.data = weight.data * 1.5


def change_by_fused_optimizer(weight):
    weight.requires_grad_(True)
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()
    weight.requires_grad_(False)


@pytest.mark.parametrize(
    "change", [change_in_place, change_one_value, change_data, change_storage, change_by_fused_optimizer]
)
def test_changed_weights_are_noticed(tmp_path, change):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    before = read(cache, model, SENTENCES)
    original = copy.deepcopy(model.state_dict())
    change(model.bilstm.backward_layers[1].projection_weight)
    changed = read(cache, model, SENTENCES)
    assert_equal(changed, computed(model, SENTENCES))
    assert not torch.equal(changed[0][2], before[0][2])
    model.load_state_dict(original)
    assert_equal(read(cache, model, SENTENCES), before)
    assert cache.statistics[:2] == (5, 10)


@pytest.mark.parametrize("part", ["embedding.weight", "convolutions.2.bias", "highways.1.carry.weight"])
def test_every_weight_counts(tmp_path, part):
    model = frozen_model()
    before = feature_cache._fingerprint(model, "float32")
    model.character_encoder.get_parameter(part).view(-1)[-1] += 1e-6
    assert feature_cache._fingerprint(model, "float32") != before


def test_the_mix_does_not_count(tmp_path):
    cache = FeatureCache(tmp_path)
    read(cache, frozen_model(), SENTENCES)
    other = frozen_model(layer_combination="mix", num_output_representations=2, mix_layer_norm="token", dropout=0.3)
    other.load_state_dict(frozen_model().state_dict(), strict=False)
    other.mixes[0].weight[0] = 5.0
    other.mixes.requires_grad_(True)
    assert_equal(read(cache, other, SENTENCES), computed(other, SENTENCES))
    assert cache.statistics[:2] == (5, 5)


@pytest.mark.parametrize(
    "overrides",
    [
        {"cell_clip": 0.2},
        {"projection_clip": None},
        {"use_skip_connections": False},
        {"forget_bias": 0.0},
        {"char_cnn_activation": "tanh"},
    ],
)
def test_models_with_the_same_weights_and_other_settings_are_different(tmp_path, overrides):
    cache = FeatureCache(tmp_path)
    read(cache, frozen_model(), SENTENCES)
    other = frozen_model(**overrides)
    assert_equal(read(cache, other, SENTENCES), computed(other, SENTENCES))
    assert cache.statistics[:2] == (0, 10)


def test_a_copy_of_a_model_and_a_saved_model_are_the_same_model(tmp_path):
    model = frozen_model()
    cache = FeatureCache(tmp_path / "cache")
    expected = read(cache, model, SENTENCES)
    model.save_pretrained(tmp_path / "model")
    for same in (copy.deepcopy(model), ElmoModel.from_pretrained(tmp_path / "model").requires_grad_(False)):
        assert_equal(read(cache, same, SENTENCES), expected)
    assert cache.statistics.misses == 5


def test_files_of_another_model_are_not_used(tmp_path, caplog):
    read(FeatureCache(tmp_path), frozen_model(), SENTENCES)
    other = frozen_model(seed=1)
    probe = FeatureCache(tmp_path)
    read(probe, other, ["x"])
    [folder] = {path.parent for path in files(tmp_path, ".index")} - {probe._rows.folder}
    for path in folder.iterdir():
        shutil.copy(path, probe._rows.folder)
    (probe._rows.folder / "notes.index").write_text("not an index, but longer than the header of an index file is")
    cache = FeatureCache(tmp_path)
    assert_equal(read(cache, other, SENTENCES), computed(other, SENTENCES))
    assert cache.statistics[:3] == (0, 5, 6)
    assert caplog.text.count("of another model or program") == 2


def test_a_model_that_learns_is_refused(tmp_path):
    model = random_model()
    cache = FeatureCache(tmp_path)
    with pytest.raises(ValueError, match=r"not frozen: character_encoder.embedding.weight asks for a gradient"):
        read(cache, model, SENTENCES)
    with torch.no_grad():
        assert_equal(read(cache, model, SENTENCES), computed(model, SENTENCES))


def test_wrong_inputs_are_refused_as_by_the_model(tmp_path):
    cache = FeatureCache(tmp_path)
    batch = encode(SENTENCES)
    with pytest.raises(ValueError, match="character_ids is missing"):
        cache.layers(frozen_model(), None, batch["attention_mask"])
    with pytest.raises(ValueError, match="attention_mask has the shape"):
        cache.layers(frozen_model(), batch["character_ids"], batch["attention_mask"][:, 1:])


def test_wrong_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dtype='bfloat16' is not possible: .*'float32', 'float16'"):
        FeatureCache(tmp_path, dtype="bfloat16")
    for size in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"max_bytes={size} is not possible"):
            FeatureCache(tmp_path, max_bytes=size)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file, but a feature cache needs a folder"):
        FeatureCache(tmp_path / "file")


# --- Space -----------------------------------------------------------------------------------------------------------


def test_the_bound_is_kept_and_said_once(tmp_path, caplog):
    model = frozen_model()
    sentences = many_sentences(40)
    cache = FeatureCache(tmp_path, max_bytes=20_000)
    batches = [sentences[start : start + 8] for start in range(0, 40, 8)]
    expected = [computed(model, batch) for batch in batches]
    for _ in range(2):
        for batch, layers in zip(batches, expected, strict=True):
            assert_equal(read(cache, model, batch), layers, rtol=0, atol=1e-6)
    assert 15_000 < cache.statistics.bytes <= 20_000
    assert cache.statistics.hits == cache.statistics.rows < 40
    assert caplog.text.count("has reached max_bytes=20000") == 1


def test_the_bound_counts_other_models(tmp_path):
    read(FeatureCache(tmp_path), frozen_model(), SENTENCES)
    size = FeatureCache(tmp_path).statistics.bytes
    cache = FeatureCache(tmp_path, max_bytes=size + 100)
    assert_equal(read(cache, frozen_model(seed=1), SENTENCES), computed(frozen_model(seed=1), SENTENCES))
    assert cache.statistics[2:] == (0, size)


def test_size_on_disk_is_as_promised(tmp_path):
    read(FeatureCache(tmp_path), frozen_model(), SENTENCES)
    words = int(encode(SENTENCES)["attention_mask"].sum())
    assert files(tmp_path, ".features")[0].stat().st_size == words * (6 + 2 * 12) * 4
    assert files(tmp_path, ".index")[0].stat().st_size == HEADER_SIZE + 5 * ENTRY_SIZE


def test_a_folder_that_cannot_be_made_stops_the_storing_only(tmp_path, caplog):
    model = frozen_model()
    (tmp_path / "file").touch()
    cache = FeatureCache(tmp_path / "file" / "cache")
    for _ in range(2):
        assert_equal(read(cache, model, SENTENCES), computed(model, SENTENCES))
    assert cache.statistics[:3] == (0, 10, 0)
    assert caplog.text.count("Features cannot be written") == 1


def test_a_folder_that_disappears_stops_the_storing_only(tmp_path, caplog):
    model = frozen_model()
    cache = FeatureCache(tmp_path / "cache")
    first = read(cache, model, SENTENCES[:2])
    shutil.rmtree(tmp_path / "cache")
    both = read(cache, model, SENTENCES)
    assert_equal(both, computed(model, SENTENCES), rtol=0, atol=1e-6)
    assert_equal(read(cache, model, SENTENCES)[:2], both[:2])
    assert_equal(both[:2], first, rtol=0, atol=1e-6)
    assert "Features cannot be written" in caplog.text


@pytest.mark.slow
def test_a_full_disk_stops_the_storing_only(tmp_path):
    """A limit on file sizes makes writing fail in the middle, like a full disk, and for every user."""
    finished = run(
        """
import resource
model, sentences = frozen_model(), many_sentences(30)
results = {}
for limit in (0, 30, 3_000, 5_001, 20_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    folder = Path(sys.argv[1]) / str(limit)
    for _ in range(2):
        cache = FeatureCache(folder)
        for start in range(0, 30, 2):
            expected = computed(model, sentences[start : start + 2])
            assert_equal(read(cache, model, sentences[start : start + 2]), expected, rtol=0, atol=1e-6)
    results[limit] = cache.statistics.hits
print(json.dumps(results))
""",
        str(tmp_path),
    )
    assert finished.returncode == 0, finished.stderr
    hits = list(json.loads(finished.stdout).values())
    assert hits[:2] == [0, 0]
    assert 0 < hits[2] <= hits[3] < hits[4] <= 30
    assert "Features cannot be written ([Errno 27]" in finished.stderr
    assert "Damaged" not in finished.stderr
    for path in files(tmp_path / "5001", ".features"):  # what was written in vain is taken back
        assert path.stat().st_size % (30 * 4) == 0


def test_interrupted_writing_takes_nothing_along(tmp_path, monkeypatch):
    model = frozen_model()
    cache = FeatureCache(tmp_path)
    read(cache, model, SENTENCES[:2])
    original = feature_cache._append

    def interrupted(path, content, header=b""):
        if path.suffix == ".index":
            original(path, content[:7], header)
            raise KeyboardInterrupt
        return original(path, content, header)

    monkeypatch.setattr(feature_cache, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(cache, model, SENTENCES[2:4])
    monkeypatch.undo()
    expected = read(cache, model, SENTENCES)
    for reader in (cache, FeatureCache(tmp_path)):
        assert_equal(read(reader, model, SENTENCES), expected)
    assert reader.statistics[:3] == (5, 0, 5)


# --- Training --------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """The smallest model with a head: ELMo, a mix that learns, a classifier."""

    def __init__(self, cache: FeatureCache | None):
        super().__init__()
        torch.manual_seed(1)
        self.elmo = frozen_model()
        self.elmo.mixes.requires_grad_(True)
        self.classifier = nn.Linear(12, 2)
        self.cache = cache

    def forward(self, batch, labels):
        if self.cache is None:
            layers = self.elmo(**batch, output_hidden_states=True).hidden_states
        else:
            layers = self.cache.layers(self.elmo, batch["character_ids"], batch["attention_mask"].bool())
        mixed = self.elmo.mixes[0](list(layers))
        return nn.functional.cross_entropy(self.classifier(mixed)[batch["attention_mask"].bool()], labels)


def losses_of_training(cache: FeatureCache | None, epochs: int = 3) -> list[float]:
    sentences = many_sentences(24)
    tagger = Tagger(cache)
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for epoch in range(epochs):
        random.Random(epoch).shuffle(sentences)
        for start in range(0, 24, 6):
            batch = encode(sentences[start : start + 6])
            labels = (batch["character_ids"][..., 1][batch["attention_mask"].bool()] % 2).long()
            loss = tagger(batch, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_training_with_and_without_a_cache_gives_the_same_losses(tmp_path):
    expected = losses_of_training(None)
    assert expected[-1] < expected[0] - 0.05
    cache = FeatureCache(tmp_path)
    assert losses_of_training(cache) == pytest.approx(expected, rel=0, abs=1e-6)
    assert cache.statistics[:3] == (48, 24, 24)
    assert losses_of_training(cache) == pytest.approx(expected, rel=0, abs=1e-6)  # all of it read
    half = FeatureCache(tmp_path / "half", dtype="float16")
    assert losses_of_training(half) == pytest.approx(expected, rel=0, abs=1e-3)


def test_trainer_runs_through_a_cache_with_workers_and_checkpoints(tmp_path):
    from transformers import Trainer, TrainingArguments  # here, as the other processes of these tests do without

    tokenizer = ElmoTokenizer()
    rows = [
        {**tokenizer(words, is_split_into_words=True), "labels": [len(words) % 2] * (len(words) + 2)}
        for words in words_of(many_sentences(12))
    ]

    def collate(batch):
        labels = nn.utils.rnn.pad_sequence([torch.tensor(row["labels"]) for row in batch], True, -100)
        inputs = [{name: row[name] for name in row if name != "labels"} for row in batch]
        return {**tokenizer.pad(inputs, return_tensors="pt"), "labels": labels}

    def train(name: str, cache: FeatureCache | None, workers: int) -> tuple[list[float], ElmoForTokenClassification]:
        config = tiny_config(num_labels=2, elmo_dropout=0.2, task_dropout=0.2)
        model = random_model(config, model_class=ElmoForTokenClassification)
        model.feature_cache = cache
        arguments = TrainingArguments(
            str(tmp_path / name),
            num_train_epochs=3,
            learning_rate=0.05,
            per_device_train_batch_size=4,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            dataloader_num_workers=workers,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model, arguments, data_collator=collate, train_dataset=rows, eval_dataset=rows[:3])
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], model

    expected, _ = train("plain", None, workers=0)
    cache = FeatureCache(tmp_path / "cache")
    losses, model = train("cached", cache, workers=1)
    assert len(losses) == 9
    assert losses == pytest.approx(expected, rel=0, abs=1e-6)
    assert cache.statistics[:3] == (36 - 12 + 9, 12, 12)
    assert not [name for name in model.state_dict() if "cache" in name]
    assert "feature" not in json.dumps(model.config.to_dict())


# --- The object ------------------------------------------------------------------------------------------------------


def test_a_model_that_holds_a_cache_can_be_copied_pickled_and_saved(tmp_path):
    model = frozen_model()
    model.feature_cache = FeatureCache(tmp_path / "cache", "float16", max_bytes=10**6)
    expected = read(model.feature_cache, model, SENTENCES)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        cache = same.feature_cache
        assert cache is not model.feature_cache
        assert (cache.folder, cache.dtype, cache.max_bytes) == (tmp_path / "cache", "float16", 10**6)
        assert_equal(read(cache, same, SENTENCES), expected)
        assert cache.statistics[:2] == (5, 0)
    model.save_pretrained(tmp_path / "model")
    assert "feature" not in (tmp_path / "model" / "config.json").read_text()
    assert model.state_dict().keys() == frozen_model().state_dict().keys()


def test_a_closed_cache_is_refused(tmp_path):
    with FeatureCache(tmp_path) as cache:
        read(cache, frozen_model(), SENTENCES)
    with pytest.raises(ValueError, match=r"is closed: open another one"):
        read(cache, frozen_model(), SENTENCES)
    assert "closed" in repr(cache)


def test_it_says_what_it_did(tmp_path):
    cache = FeatureCache(tmp_path)
    read(cache, frozen_model(), SENTENCES)
    read(cache, frozen_model(), SENTENCES[:2])
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert cache.statistics == (2, 5, 5, size)
    assert repr(cache) == (
        f"FeatureCache({str(tmp_path)!r}, dtype='float32', max_bytes={10 * 2**30}: 2 hits, 5 misses, 5 rows, "
        f"{size} bytes)"
    )


def test_nothing_is_written_or_said_without_need(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    FeatureCache(tmp_path / "cache").close()
    assert not (tmp_path / "cache").exists()
    read(FeatureCache(tmp_path / "cache"), frozen_model(), SENTENCES)
    read(FeatureCache(tmp_path / "cache"), frozen_model(), SENTENCES)
    assert len(list((tmp_path / "cache").rglob("*.*"))) == 2
    assert caplog.text == ""


def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = FeatureCache("cache")
    monkeypatch.chdir("/")
    assert cache.folder == tmp_path / "cache"
