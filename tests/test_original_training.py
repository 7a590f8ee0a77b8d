"""Training as the original did: the model, torch's clip and torch's Adagrad against a second computation by hand."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from original_training import (
    Candidates,
    OriginalTraining,
    Recipe,
    Window,
    characters_of,
    from_original,
    run_recomputation,
    to_original,
    windows,
)
from safetensors.torch import load_file
from tiny import SENTENCES, random_model, tiny_config, words_of
from torch.testing import assert_close

from hf_elmo import ElmoForPreTraining, ElmoTokenizer, batch_to_ids
from hf_elmo.cli import main
from hf_elmo.pretraining_data import PretrainingData
from hf_elmo.softmax import CandidateSample

WORDS = words_of(SENTENCES)
KNOWN = sorted({word for sentence in WORDS for word in sentence})[::2]
VOCABULARY = ["<S>", "</S>", "<UNK>", *KNOWN]
ROWS = 3
NUM_SAMPLED = 4
SEED = 1  # of the samples

# Settings of the model, and the words of a row in a step: the gradient is of their sum.
CASES = {
    "clipped": ({"num_highway_layers": 2, "char_cnn_activation": "relu"}, 40),
    "not clipped": ({"num_highway_layers": 1, "char_cnn_activation": "tanh"}, 4),
}


def language_model(case: str, softmax: str = "full", dtype: torch.dtype = torch.float64) -> ElmoForPreTraining:
    settings, _ = CASES[case]
    config = tiny_config(
        vocab_size=len(VOCABULARY) + 1, dropout=0.0, softmax=softmax, num_sampled=NUM_SAMPLED, **settings
    )
    return random_model(config, model_class=ElmoForPreTraining).to(dtype).train()


def training_by_hand(model: ElmoForPreTraining, **overrides) -> OriginalTraining:
    config = model.config
    settings = {
        "activation": config.char_cnn_activation,
        "cell_clip": config.cell_clip,
        "projection_clip": config.projection_clip,
        "use_skip_connections": config.use_skip_connections,
    }
    return OriginalTraining(to_original(dict(model.named_parameters())), Recipe(**{**settings, **overrides}))


def windows_of_both_directions(case: str, count: int) -> list[tuple[Window, Window]]:
    _, steps = CASES[case]
    streams = [windows(itertools.cycle(WORDS), VOCABULARY, ROWS, steps, reverse) for reverse in (False, True)]
    return list(itertools.islice(zip(*streams, strict=True), count))


def inputs_of(batch: tuple[Window, Window]) -> list[torch.Tensor]:
    """As the model takes them: it has kept the character 0 for padding."""
    return [tensor for window in batch for tensor in (window.characters + 1, window.targets)]


def seeded_draw(seed: int) -> Callable[[], Candidates]:
    """What a model draws with a generator of this seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Candidates:
        sample = CandidateSample.draw(len(VOCABULARY), NUM_SAMPLED, generator)
        return sample.ids.tolist(), sample.tries

    return draw


def candidates(model: ElmoForPreTraining, count: int) -> list[tuple[Candidates, Candidates] | None]:
    """What the model draws in each step of `train_by_torch`, or None for the full softmax."""
    draw = seeded_draw(SEED)
    return [(draw(), draw()) if model.config.softmax == "sampled" else None for _ in range(count)]


def train_by_torch(model: ElmoForPreTraining, batches: Iterable[list[torch.Tensor]]) -> Iterator[torch.Tensor]:
    """The losses of both directions (2,) in each step, and the model changes."""
    generator = torch.Generator().manual_seed(SEED)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(trained, lr=0.2, initial_accumulator_value=1.0, eps=0)
    state = None
    for inputs in batches:
        outputs = model.forward_stream(*inputs, initial_state=state, generator=generator)
        state = outputs.state
        unroll_steps = inputs[0].shape[1]
        optimizer.zero_grad()
        (outputs.loss * unroll_steps).backward()
        torch.nn.utils.clip_grad_norm_(trained, 10.0)
        optimizer.step()
        yield torch.stack([outputs.forward_loss, outputs.backward_loss]).detach()


def largest_difference(model: ElmoForPreTraining, training: OriginalTraining) -> float:
    """Between two models in any weight that is trained."""
    found = {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}
    expected = from_original(training.parameters)
    assert set(found) == set(expected)
    return torch.stack([(found[name].double() - expected[name]).abs().max() for name in expected]).max().item()


# --- Weights after each step -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("softmax", ["full", "sampled"])
@pytest.mark.parametrize("case", CASES)
def test_five_steps_with_carried_state(case, softmax, dtype):
    model = language_model(case, softmax, dtype)
    precise = dtype == torch.float64
    tolerance = 1e-9 if precise else 1e-6
    training = training_by_hand(model, norm_offset=1e-6 if precise else 0.0)
    batches, drawn = windows_of_both_directions(case, 5), candidates(model, 5)
    norms = []
    for batch, pair, losses in zip(batches, drawn, train_by_torch(model, map(inputs_of, batches)), strict=True):
        step = training.step(*batch, pair)
        norms.append(step.norm)
        expected = torch.tensor([step.forward_loss, step.backward_loss], dtype=torch.float64)
        assert_close(losses.double(), expected, atol=tolerance, rtol=0)
        assert largest_difference(model, training) < tolerance
    assert min(norms[:3]) > 10 if case == "clipped" else max(norms) < 10


def test_the_samples_of_these_tests_are_of_all_kinds():
    """Both formulas of the expected count come up, and right words are drawn by accident."""
    for case in CASES:
        drawn = candidates(language_model(case, "sampled"), 5)
        assert {tries == len(words) for pair in drawn for words, tries in pair} == {True, False}
        targets = windows_of_both_directions(case, 5)[0][0].targets
        assert set(drawn[0][0][0]) & set(targets.flatten().tolist())


def forget_the_state(training: OriginalTraining) -> None:
    training.states = None


def swap_the_directions(training: OriginalTraining) -> None:
    training.states.reverse()


@pytest.mark.parametrize(
    ("overrides", "mistake"),
    [
        ({"activation": "tanh"}, None),
        ({"cell_clip": None}, None),
        ({"projection_clip": None}, None),
        ({"use_skip_connections": False}, None),
        ({"forget_bias": 0.0}, None),
        ({"learning_rate": 0.19}, None),
        ({"initial_accumulator": 0.1}, None),
        ({"clip_norm": 9.9}, None),
        ({}, forget_the_state),
        ({}, swap_the_directions),
    ],
)
def test_a_difference_in_the_recipe_is_noticed(overrides, mistake):
    model = language_model("clipped")
    training = training_by_hand(model, **overrides)
    batches = windows_of_both_directions("clipped", 2)
    for batch, _ in zip(batches, train_by_torch(model, map(inputs_of, batches)), strict=True):
        training.step(*batch)
        if mistake:
            mistake(training)
    assert largest_difference(model, training) > 1e-4


# --- The second computation itself -----------------------------------------------------------------------------------


def test_characters_are_those_of_the_library():
    words = ["<S>", "</S>", "<UNK>", "", "é" * 24, "é" * 40, *itertools.chain(*WORDS)]
    assert torch.tensor([[characters_of(word, 50) for word in words]]).add(1).equal(batch_to_ids([words]))


def test_rows_take_sentences_from_one_stream():
    sentences = ["a b c".split(), ["d"], ["e"], "f g".split(), ["h"], ["i"]]
    vocabulary = ["<S>", "</S>", "<UNK>", *"abcdefgh"]

    def words(reverse: bool) -> list[list[list[str]]]:
        read = windows(iter(sentences), vocabulary, rows=2, steps=3, reverse=reverse)
        return [[[vocabulary[target] for target in row] for row in window.targets.tolist()] for window in read]

    assert words(reverse=False) == [
        [["a", "b", "c"], ["d", "</S>", "e"]],
        [["</S>", "f", "g"], ["</S>", "h", "</S>"]],
    ]
    assert words(reverse=True) == [
        [["c", "b", "a"], ["d", "<S>", "e"]],
        [["<S>", "g", "f"], ["<S>", "h", "<S>"]],
    ]
    window = next(windows([["b", "strange"]], vocabulary, rows=1, steps=3, reverse=True, width=9))
    assert window.targets.tolist() == [[2, 4, 0]]
    assert window.characters.tolist() == [[characters_of(word, 9) for word in ("</S>", "strange", "b")]]


@pytest.mark.parametrize("softmax", ["full", "sampled"])
def test_gradients_of_the_second_computation_by_differences(softmax):
    """The largest one of each parameter, in the second step."""
    model = language_model("not clipped", softmax)
    training = training_by_hand(model)
    batches, drawn = windows_of_both_directions("not clipped", 2), candidates(model, 2)
    training.step(*batches[0], drawn[0])
    parameters = {
        name: value.clone(memory_format=torch.contiguous_format) for name, value in training.parameters.items()
    }

    def objective(value: torch.Tensor, number: torch.Tensor) -> float:
        value.copy_(number)
        forward, backward, _ = training.losses(parameters, batches[1], drawn[1])
        return (4 * 0.5 * (forward + backward)).item()  # windows have 4 steps

    state = training.states
    gradients = training.step(*batches[1], drawn[1]).gradients
    training.states = state
    for name, gradient in gradients.items():
        place = gradient.abs().argmax()
        value = parameters[name].view(-1)[place : place + 1]
        original = value.clone()
        above, below = objective(value, original + 1e-5), objective(value, original - 1e-5)
        value.copy_(original)
        assert gradient.abs().max() > 1e-3
        assert_close((above - below) / 2e-5, gradient.flatten()[place].item(), atol=1e-8, rtol=1e-6)


# --- The gradient of the model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stream", "sentences"])
@pytest.mark.parametrize(
    "softmax",
    [{"softmax": "full"}, {"softmax": "sampled", "num_sampled": 3}, {"softmax": "adaptive", "softmax_cutoffs": [5]}],
)
def test_gradients_of_the_model_by_differences(way, softmax):
    """Of every parameter that is trained, in a random direction."""
    config = tiny_config(vocab_size=len(VOCABULARY) + 1, dropout=0.0, **softmax)
    model = random_model(config, model_class=ElmoForPreTraining).double().train()
    forward, backward = (
        next(windows(WORDS, VOCABULARY, rows=2, steps=4, reverse=reverse)) for reverse in (False, True)
    )
    inputs = inputs_of((forward, backward))
    state = model.forward_stream(*inputs).state

    def loss(*parameters):  # which are the model's own
        generator = torch.Generator().manual_seed(1)
        if way == "sentences":
            return model(character_ids=inputs[0], labels=inputs[1], generator=generator).loss
        return model.forward_stream(*inputs, initial_state=state, generator=generator).loss

    assert torch.autograd.gradcheck(loss, [p for p in model.parameters() if p.requires_grad], fast_mode=True)


# --- A program that trains -------------------------------------------------------------------------------------------


def check_training_program(
    train: Callable[..., None],
    folder: Path,
    *,
    unroll_steps: int = 20,
    draw: Callable[[], Candidates] | None = None,
    **config: Any,
) -> None:
    """Compares what a program makes of a model in two steps of training with what the original makes of it.

    Args:
        train: Is called with the model's folder (with its tokenizer), the file of the corpus and the folder to write,
            and by name with `rows`, `unroll_steps` and `num_updates`. Trains on the corpus in its order and saves.
        folder: Where the files are.
        unroll_steps: Words of a row in a step.
        draw: The words that the program draws if the softmax is sampled (see `run_recomputation`).
        config: Settings of the model.
    """
    before, corpus, after = folder / "before", folder / "corpus.txt", folder / "after"
    lines = SENTENCES * (2 * ROWS * unroll_steps // len(SENTENCES))
    corpus.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in VOCABULARY), encoding="utf-8")
    tokenizer = ElmoTokenizer(vocabulary)
    model = random_model(tiny_config(vocab_size=len(tokenizer), dropout=0.0, **config), model_class=ElmoForPreTraining)
    with torch.no_grad():
        for name, parameter in model.elmo.mixes.named_parameters():
            parameter.fill_(name.endswith("gamma"))  # fresh: programs do not have to keep others
    model.save_pretrained(before)
    tokenizer.save_pretrained(before)

    settings = {"rows": ROWS, "unroll_steps": unroll_steps, "num_updates": 2}
    expected = run_recomputation(before, lines, VOCABULARY, draw=draw, **settings).weights
    train(before, corpus, after, **settings)
    found = load_file(after / "model.safetensors")
    assert set(found) == set(expected)
    for name, parameter in model.named_parameters():
        assert parameter.double().equal(expected[name]) is (not parameter.requires_grad), name
        assert_close(found[name].double(), expected[name], atol=1e-6, rtol=0, msg=lambda text, n=name: f"{n}: {text}")


def train_on_batches_of_the_library(
    before: Path, corpus: Path, after: Path, *, rows: int, unroll_steps: int, num_updates: int
) -> None:
    """The parts of the library that a program puts together."""
    model = ElmoForPreTraining.from_pretrained(before).train()
    tokenizer = ElmoTokenizer.from_pretrained(before)
    data = PretrainingData(corpus, tokenizer, rows=rows, steps=unroll_steps, shuffle=False)
    names = ("forward_ids", "forward_labels", "backward_ids", "backward_labels")
    batches = [[batch.inputs[name] for name in names] for batch in itertools.islice(data, num_updates)]
    for _ in train_by_torch(model, batches):
        pass
    model.save_pretrained(after)


def train_by_program(
    before: Path, corpus: Path, after: Path, *, rows: int, unroll_steps: int, num_updates: int
) -> None:
    """The program as it is by default, but for the order of the text."""
    output = after.parent / "run"
    paths = ["--init_from", str(before), "--text", str(corpus), "--output", str(output)]
    sizes = f"--batch_size {rows} --unroll_steps {unroll_steps} --max_steps {num_updates}".split()
    main(["pretrain", *paths, *sizes, "--no-shuffle", "--state_reset", "0", "--seed", str(SEED), "--quiet"])
    (output / "model").rename(after)


@pytest.mark.parametrize("train", [train_on_batches_of_the_library, train_by_program])
@pytest.mark.parametrize("softmax", ["full", "sampled"])
def test_a_program_trains_as_the_original(tmp_path, train, softmax):
    draw = seeded_draw(SEED) if softmax == "sampled" else None
    check_training_program(train, tmp_path, draw=draw, softmax=softmax, num_sampled=NUM_SAMPLED)
