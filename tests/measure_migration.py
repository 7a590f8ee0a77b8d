"""Measures how far our numbers are from those of the original programs, for MIGRATING.md.

    python tests/measure_migration.py

writes results/parity/migrating.json and puts its figures into the tables of MIGRATING.md. AllenNLP's and flair's code
runs beside ours (`originals.py`); bilm-tf and simple_elmo run on TensorFlow, in an environment of their own
(`tensorflow_python.py`). The weights are those of AllenNLP's test fixtures, random ones for ELMoForManyLangs, and for
language models those of a short training by bilm-tf itself.

Shape letters: L layers, T words of a sentence, D dimensions.
"""

import json
import random
import re
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from originals import (
    elmo_options,
    original_elmo_embedder,
    original_elmo_module,
    original_flair_vectors,
    original_token_embedder,
)
from tensorflow_python import WITH_BILM_TF, WITH_SIMPLE_ELMO, run_original
from test_manylangs import korean_sentences, original_embedder, write_source

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoState, ElmoTokenizer, batch_to_ids
from hf_elmo.conversion import convert_allennlp
from hf_elmo.conversion.bilm_tf import convert_bilm_tf
from hf_elmo.conversion.manylangs import convert_manylangs
from hf_elmo.perplexity import evaluate_perplexity
from hf_elmo.scripts.original_wheels import allennlp_fixtures

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "results" / "parity" / "migrating.json", ROOT / "MIGRATING.md"
COMMAND = "python tests/measure_migration.py"

FIXTURES = allennlp_fixtures() / "elmo"
OPTIONS, WEIGHTS, VOCABULARY = FIXTURES / "options.json", FIXTURES / "lm_weights.hdf5", FIXTURES / "vocab_test.txt"

Figures = dict[str, float]


def fixture_sentences() -> list[list[str]]:
    lists = json.loads((FIXTURES / "sentences.json").read_text(encoding="utf-8"))
    return [sentence.split() for sentences in lists for sentence in sentences]


def difference(ours: Iterable, theirs: Iterable) -> float:
    """The largest absolute difference of arrays that must have the same shapes."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(ours, theirs, strict=True)]
    for one, other in pairs:
        if one.shape != other.shape:
            raise ValueError(f"Shapes differ: ours is {one.shape}, theirs {other.shape}.")
    return max(float(np.abs(one - other).max()) for one, other in pairs if one.size)


# --- Ours ------------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def layers_of(
    folder: Path, sentences: list[list[str]], batch_size: int = 1000, state: ElmoState | None = None
) -> tuple[list[np.ndarray], ElmoState | None]:
    """All layers (L+1, T, D) of each sentence, without boundaries, the state carried on as the originals did."""
    model, tokenizer = ElmoModel.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    found, rest = [], iter(sentences)
    while batch := list(islice(rest, batch_size)):
        inputs = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        started = state and state.for_batch(len(batch))
        outputs = model(**inputs, initial_state=started, output_state=True, output_hidden_states=True)
        state = outputs.state if state is None else state.updated(outputs.state)
        layers = torch.stack(outputs.hidden_states, dim=1).numpy()
        found += [layers[row, :, 1 : len(words) + 1] for row, words in enumerate(batch)]
    return found, state


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


# --- AllenNLP and flair, beside ours ---------------------------------------------------------------------------------


@torch.no_grad()
def measure_allennlp(place: Path) -> Figures:
    folder, sentences = converted_fixtures(place), fixture_sentences()
    files = (str(OPTIONS), str(WEIGHTS))
    ours, _ = layers_of(folder, sentences)
    in_turn, _ = layers_of(folder, sentences, batch_size=8)
    text, output = place / "sentences.txt", place / "theirs.hdf5"
    text.write_text("".join(f"{' '.join(words)}\n" for words in sentences), encoding="utf-8")
    embedder = original_elmo_embedder()
    embedder(*files).embed_file(text.open(encoding="utf-8"), str(output), "average", 8)
    with h5py.File(output) as file:
        averages = [file[str(number)][...] for number in range(len(sentences))]
    figures = {
        "embedder.embed_sentence(words)": difference(ours[:1], [embedder(*files).embed_sentence(sentences[0])]),
        "embedder.embed_batch(sentences)": difference(ours, embedder(*files).embed_batch(sentences)),
        "embedder.embed_sentences(sentences, 8)": difference(in_turn, embedder(*files).embed_sentences(sentences, 8)),
        'embedder.embed_file(file, path, "average", 8)': difference(
            [layers.mean(axis=0) for layers in in_turn], averages
        ),
    }
    return figures | allennlp_modules(folder, sentences, files)


def allennlp_modules(folder: Path, sentences: list[list[str]], files: tuple[str, str]) -> Figures:
    original, ids = original_elmo_module(), batch_to_ids(sentences)
    theirs = original.Elmo(*files, 2).eval()(ids)["elmo_representations"]
    ours = ElmoModel.from_pretrained(folder, num_output_representations=2)(ids).elmo_representations
    normed = original.Elmo(*files, 1, do_layer_norm=True).eval()(ids)["elmo_representations"]
    ours_normed = ElmoModel.from_pretrained(folder, mix_layer_norm="batch")(ids).last_hidden_state
    second = original.Elmo(*files, 1, scalar_mix_parameters=[-9e10, 1, -9e10]).eval()(ids)["elmo_representations"]
    ours_second = ElmoModel.from_pretrained(folder, layer_combination=1)(ids).last_hidden_state
    plain = ElmoModel.from_pretrained(folder)(ids).last_hidden_state
    return {
        "batch_to_ids(sentences)": difference(ids, original.batch_to_ids(sentences)),
        'elmo(ids)["elmo_representations"]': difference(ours, theirs),
        "Elmo(..., do_layer_norm=True)": difference([ours_normed], normed),
        "Elmo(..., scalar_mix_parameters=[-9e10, 1, -9e10])": difference([ours_second], second),
        "ElmoTokenEmbedder(options, weights)": difference([plain], [original_token_embedder()(*files).eval()(ids)]),
    }


def measure_flair(place: Path) -> Figures:
    folder, sentence = converted_fixtures(place), fixture_sentences()[0]
    _, after_hello = layers_of(folder, [["hello"]])
    (layers,), _ = layers_of(folder, [sentence], state=after_hello)
    ours = {"all": np.concatenate(list(layers), axis=1), "top": layers[-1], "average": layers.mean(axis=0)}
    return {
        f'ELMoEmbeddings(embedding_mode="{mode}")': difference(
            [ours[mode]], [original_flair_vectors(OPTIONS, WEIGHTS, mode, sentence)]
        )
        for mode in ours
    }


def converted_fixtures(place: Path) -> Path:
    folder = place / "elmo"
    if not folder.exists():
        convert_allennlp(OPTIONS, WEIGHTS, folder)
    return folder


# --- ELMoForManyLangs, beside ours -----------------------------------------------------------------------------------


def measure_manylangs(place: Path) -> Figures:
    source, sentences = write_source(place / "manylangs-source"), korean_sentences(50)
    folder = convert_manylangs(source, place / "manylangs").folder
    ours, _ = layers_of(folder, sentences)
    of_layer = {-2: ours, -1: [layers.mean(axis=0) for layers in ours]}
    of_layer |= {number: [layers[number] for layers in ours] for number in range(3)}
    return {
        f"sents2elmo(sentences, output_layer={number})": difference(
            of_layer[number], original_embedder(source, len(sentences)).sents2elmo(sentences, output_layer=number)
        )
        for number in of_layer
    }


# --- simple_elmo -----------------------------------------------------------------------------------------------------

SIMPLE_ELMO = (
    WITH_SIMPLE_ELMO
    + """
import json
import numpy as np
from simple_elmo import ElmoModel

source, sentences, batch_size, output = sys.argv[1:]
sentences = json.load(open(sentences))
model = ElmoModel()
model.load(source, max_batch_size=int(batch_size))
found = {layers: model.get_elmo_vectors(sentences, layers=layers) for layers in ("all", "average", "top")}
found["cold"] = model.get_elmo_vectors(sentences, warmup=False, layers="all")
of_one_length = [words[:4] for words in sentences if len(words) >= 4]
found["mean"] = model.get_elmo_vector_average(of_one_length)
np.savez(output, **found)
"""
)


def measure_simple_elmo(place: Path) -> Figures:
    folder, sentences, batch_size = converted_fixtures(place), fixture_sentences(), 7
    source = place / "simple_elmo"
    source.mkdir()
    (source / "options.json").write_bytes(OPTIONS.read_bytes())
    (source / "model.hdf5").write_bytes(WEIGHTS.read_bytes())
    (place / "sentences.json").write_text(json.dumps(sentences))
    run_original(SIMPLE_ELMO, source, place / "sentences.json", str(batch_size), place / "simple_elmo.npz")
    theirs = np.load(place / "simple_elmo.npz")

    def warm(texts: list[list[str]]) -> list[np.ndarray]:
        _, state = layers_of(folder, texts[:batch_size])
        return layers_of(folder, texts, batch_size, state)[0]

    def theirs_of(name: str) -> list[np.ndarray]:
        return [vectors[..., : len(words), :] for vectors, words in zip(theirs[name], sentences, strict=True)]

    ours = warm(sentences)
    of_one_length = warm([words[:4] for words in sentences if len(words) >= 4])
    means = [unit(layers.mean(axis=(0, 1))) for layers in of_one_length]
    return {
        'get_elmo_vectors(sentences, layers="all")': difference(ours, theirs_of("all")),
        'get_elmo_vectors(sentences, layers="average")': difference(
            [layers.mean(axis=0) for layers in ours], theirs_of("average")
        ),
        'get_elmo_vectors(sentences, layers="top")': difference([layers[-1] for layers in ours], theirs_of("top")),
        'get_elmo_vectors(sentences, warmup=False, layers="all")': difference(
            layers_of(folder, sentences, batch_size)[0], theirs_of("cold")
        ),
        "get_elmo_vector_average(sentences)": difference(means, theirs["mean"]),
    }


# --- bilm-tf: vectors ------------------------------------------------------------------------------------------------

BILM_TF = (
    WITH_BILM_TF
    + """
import json
import numpy as np

options, weights, vocabulary, sentences, embeddings, output = sys.argv[1:]
sentences = json.load(open(sentences))
ids = tf.placeholder("int32", shape=(None, None, 50))
ops = bilm.BidirectionalLanguageModel(options, weights)(ids)
wanted = {
    "layers": ops["lm_embeddings"],
    "mixed": bilm.weight_layers("input", ops, l2_coef=0.0)["weighted_op"],
    "top": bilm.weight_layers("top", ops, use_top_only=True)["weighted_op"],
}
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    found = session.run(wanted, {ids: bilm.Batcher(vocabulary, 50).batch_sentences(sentences)})

tf.reset_default_graph()
bilm.dump_token_embeddings(vocabulary, options, weights, embeddings)
tf.reset_default_graph()
ids = tf.placeholder("int32", shape=(None, None))
model = bilm.BidirectionalLanguageModel(
    options, weights, use_character_inputs=False, embedding_weight_file=embeddings
)
ops = model(ids)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    batch = bilm.TokenBatcher(vocabulary).batch_sentences(sentences)
    found["words"] = session.run(ops["lm_embeddings"], {ids: batch})
np.savez(output, **found)
"""
)


def measure_bilm_tf(place: Path) -> Figures:
    vocabulary = place / "vocab.txt"
    words = VOCABULARY.read_text(encoding="utf-8").split()
    vocabulary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    known = [[word for word in words_of_one if word in set(words)] for words_of_one in fixture_sentences()]
    sentences = [one for one in known if one]
    (place / "known.json").write_text(json.dumps(sentences))
    embeddings = place / "embeddings.hdf5"
    run_original(BILM_TF, OPTIONS, WEIGHTS, vocabulary, place / "known.json", embeddings, place / "bilm_tf.npz")
    theirs = np.load(place / "bilm_tf.npz")
    folder = converted_fixtures(place)
    convert_allennlp(OPTIONS, WEIGHTS, place / "of-words", vocabulary=vocabulary, token_embeddings=embeddings)

    def theirs_of(name: str) -> list[np.ndarray]:
        return [vectors[..., : len(words), :] for vectors, words in zip(theirs[name], sentences, strict=True)]

    ours, _ = layers_of(folder, sentences)
    alone, _ = layers_of(folder, [[word] for word in words])
    with h5py.File(embeddings) as file:
        rows = file["embedding"][...]
    return {
        'ops["lm_embeddings"]': difference(ours, theirs_of("layers")),
        'weight_layers("input", ops)': difference([layers.mean(axis=0) for layers in ours], theirs_of("mixed")),
        'weight_layers("input", ops, use_top_only=True)': difference(
            [layers[-1] for layers in ours], theirs_of("top")
        ),
        "dump_token_embeddings(...)": difference([layers[0, 0, : rows.shape[1]] for layers in alone], rows),
        "BidirectionalLanguageModel(..., use_character_inputs=False)": difference(
            layers_of(place / "of-words", sentences)[0], theirs_of("words")
        ),
    }


# --- bilm-tf: language models ----------------------------------------------------------------------------------------

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat", ".", ",", "dog", "été", "Seoul"]
TRAINING = {
    "bidirectional": True,
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "n_epochs": 1,
    "n_train_tokens": 600,
    "batch_size": 4,
    "n_tokens_vocab": len(WORDS),
    "unroll_steps": 5,
    "n_negative_samples_batch": 6,
}

# Trains as bin/train_elmo.py, measures as bin/run_test.py, dumps as bin/dump_weights.py, and takes the scores that
# the loss is computed from out of the graph.
BILM_TF_TRAINING = (
    WITH_BILM_TF
    + """
import json, random
import numpy as np

place, text, vocabulary, options = sys.argv[1:]
tf.set_random_seed(0)
random.seed(0)
width = 50 if "char_cnn" in json.loads(options) else None
vocabulary = bilm.training.load_vocab(vocabulary, width)
data = bilm.data.BidirectionalLMDataset(text, vocabulary, test=False, shuffle_on_load=True)
bilm.training.train(json.loads(options), data, 1, place, place)

options, checkpoint = bilm.training.load_options_latest_checkpoint(place)
found = {}
tested = text if width else os.path.join(os.path.dirname(text), "first.txt")
for batch_size in (1, 3) if width else (1,):
    tf.reset_default_graph()
    data = bilm.data.BidirectionalLMDataset(tested, vocabulary, test=True)
    found[f"perplexity{batch_size}"] = bilm.training.test(options, checkpoint, data, batch_size)
    again = bilm.data.BidirectionalLMDataset(tested, vocabulary, test=True)
    found[f"predictions{batch_size}"] = batch_size * sum(1 for _ in again.iter_batches(batch_size, 1))

tf.reset_default_graph()
line = open(text, encoding="utf-8").readline()
ids = vocabulary.encode(line)
with tf.Session() as session:
    with tf.variable_scope("lm"):
        model = bilm.training.LanguageModel(options | {"batch_size": 1, "unroll_steps": len(ids)}, False)
        tf.train.Saver().restore(session, checkpoint)
    if width:
        characters = vocabulary.encode_chars(line)
        inputs = {model.tokens_characters: [characters], model.tokens_characters_reverse: [characters[::-1]]}
    else:
        inputs = {model.token_ids: [ids], model.token_ids_reverse: [ids[::-1]]}
    kind = "SparseSoftmaxCrossEntropyWithLogits"
    scores = [one.inputs[0] for one in session.graph.get_operations() if one.type == kind]
    found["forward"], found["backward"] = session.run(scores, inputs)

tf.reset_default_graph()
bilm.training.dump_weights(place, os.path.join(place, "weights.hdf5"))
if width:
    sys.modules["tensorflow"] = tensorflow
    from simple_elmo import ElmoModel

    tf.reset_default_graph()
    model = ElmoModel()
    model.load(place, max_batch_size=1, full=True)
    (substitutes,) = model.get_elmo_substitutes([line], topn=vocabulary.size, nodelimiters=False)
    found["substitutes"] = [word["forward"]["candidates"] for word in substitutes]
    found["substitute_scores"] = [word["forward"]["logp"] for word in substitutes]
np.savez(os.path.join(place, "found.npz"), **found)
"""
)


def measure_language_models(place: Path) -> Figures:
    generator = random.Random(0)
    lines = [generator.choices([*WORDS[3:], "zebra"], k=generator.randint(1, 12)) for _ in range(60)]
    (place / "text.txt").write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")
    (place / "first.txt").write_text(f"{' '.join(lines[0])}\n", encoding="utf-8")
    (place / "lm-vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    figures = {}
    for kind, characters in (("characters", True), ("words", False)):
        options = elmo_options(characters=characters) | TRAINING
        if characters:
            options["char_cnn"]["n_characters"] = 261
        figures |= {
            f"{name}, model of {kind}": value
            for name, value in measure_training(place / f"training-{kind}", place, options).items()
        }
    return figures


@torch.inference_mode()
def measure_training(source: Path, place: Path, options: dict) -> Figures:
    """A short training by bilm-tf, converted with its softmax."""
    text, vocabulary = place / "text.txt", place / "lm-vocab.txt"
    source.mkdir()
    (source / "vocab.txt").write_bytes(vocabulary.read_bytes())  # where simple_elmo looks for it
    run_original(BILM_TF_TRAINING, source, text, vocabulary, json.dumps(options))
    theirs = np.load(source / "found.npz")
    folder = convert_bilm_tf(source, vocabulary, source / "converted").folder
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    first = text.read_text(encoding="utf-8").splitlines()[0].split()
    inputs = tokenizer([first], is_split_into_words=True, return_tensors="pt")
    outputs = model(**inputs, output_logits=True)
    logits = [outputs.forward_logits[0], outputs.backward_logits[0].flip(0)]  # the original's is in its own order
    batch_sizes = (1, 3) if "char_cnn" in options else (1,)
    figures = {
        "scores (logits) of all words, both directions": difference(logits, [theirs["forward"], theirs["backward"]]),
        "perplexity by bin/run_test.py and by hf-elmo perplexity": difference(
            [perplexity(model, tokenizer, text, rows, int(theirs[f"predictions{rows}"])) for rows in batch_sizes],
            [theirs[f"perplexity{rows}"] for rows in batch_sizes],
        ),
    }
    if "char_cnn" in options:
        dumped = source / "for-inference.json"
        options["char_cnn"]["n_characters"] = 262
        dumped.write_text(json.dumps(options))
        convert_allennlp(dumped, source / "weights.hdf5", source / "dumped")
        figures["vectors of the checkpoint and of the file by bin/dump_weights.py"] = difference(
            layers_of(source / "dumped", [first])[0], layers_of(folder, [first])[0]
        )
    return figures


def perplexity(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, text: Path, rows: int, predictions: int) -> float:
    """Of a stream for models of characters; ours reads no stream of words, so for them that of the first sentence."""
    if model.config.word_input == "words":
        text, rows, mode = text.with_name("first.txt"), 1, "sentences"
    else:
        mode = "stream"
    return evaluate_perplexity(
        model, tokenizer, str(text), mode=mode, rows=rows, steps=1, max_words=predictions, show_progress=False
    ).both


# --- The figures -----------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[Path], Figures]] = {
    "AllenNLP": measure_allennlp,
    "flair": measure_flair,
    "ELMoForManyLangs": measure_manylangs,
    "simple_elmo": measure_simple_elmo,
    "bilm-tf": measure_bilm_tf,
    "bilm-tf's language models": measure_language_models,
}


def rounded(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def with_figures(text: str, figures: dict[str, Figures]) -> str:
    """The document with the figures in the last cells of the tables' rows, which are found by their first cells."""
    for rows in figures.values():
        for name, value in rows.items():
            cells = [re.escape(name).join(quotes) for quotes in (("`", "`"), ("", ""))]
            row = re.compile(rf"^(\| (?:{'|'.join(cells)}) \|(?:.*\|)?)[^|\n]*\|$", re.MULTILINE)
            text, count = row.subn(rf"\g<1> {rounded(value)} |", text)
            if count != 1:
                raise ValueError(f"{DOCUMENT.name} has {count} rows for {name!r} instead of one.")
    return text


def main() -> None:
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        figures = {program: measure(Path(temporary)) for program, measure in PROGRAMS.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    content = {"command": COMMAND, "figures": figures}
    RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    DOCUMENT.write_text(with_figures(DOCUMENT.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
