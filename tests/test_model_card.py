"""The card of a pretrained model: complete, true to what the run says, and not to be broken by names and settings."""

import dataclasses
import math
import re

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from tiny import random_model, tiny_config
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from hf_elmo import ElmoCharacters, ElmoForPreTraining, ElmoTokenizer
from hf_elmo.hub import save_hub_folder
from hf_elmo.model_card import (
    CorpusFacts,
    HeldOutFigures,
    TrainingFacts,
    converted_model_card,
    pretrained_model_card,
)
from hf_elmo.version import __version__

TRAINING = TrainingFacts(
    command="hf-elmo pretrain --text 'my corpus' --output run",
    settings={"text": ["my corpus"], "learning_rate": 0.2, "epochs": None, "shuffle": True, "output": "run"},
    steps=12345,
    epochs=2.5,
    words=31_603_200,
    seconds=12_000.0,
    hardware="2 x Some(R) CPU @ 2.20GHz",
    versions={"hf-elmo": "0.1.0", "torch": "2.13.0+cpu"},
)
CORPUS = CorpusFacts(files=3, sentences=400_000, tokens=12_641_280, unknown_share=0.01234)
HELDOUT = HeldOutFigures(
    files=["data/held out.txt"],
    mode="stream",
    forward_perplexity=123.456,
    backward_perplexity=120.5,
    perplexity=121.97,
    words=98765,
    unknown_share=0.0321,
    command="hf-elmo perplexity run/model 'data/held out.txt'",
)
HOSTILE = [
    "a|b",
    "a`b",
    "a``|`b\\|c\\",
    "x\n\n# Heading\n\n---\n",
    "\r\n| x | y |",
    "<script>alert(1)</script><!--",
    "![x](http://x) [y](z) https://x.example/_a_*b*",
    "```\nx\n```",
    "  spaces  ",
    "",
    "$name ${front_matter} $$",
    "\u2028\u202e\x00\x1b[31m\udcff",
    "&amp; &lt;",
]


def make_card(name="tiny-elmo", config=None, **changes):
    settings = {"num_parameters": 4321, "training": TRAINING, "corpus": CORPUS, "heldout": HELDOUT, **changes}
    return pretrained_model_card(name, config or tiny_config(), ElmoTokenizer(), **settings)


def front_matter_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def shown(tokens):
    return "".join(token.content if token.type in ("text", "code_inline", "text_special") else "?" for token in tokens)


def tables_of(card):
    """What a reader sees in the cells of all tables, row by row."""
    tables = []
    for token in MarkdownIt("commonmark").enable("table").parse(card.split("---\n", 2)[2]):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("th_open", "td_open"):
            inside = True
        elif token.type == "inline" and tables and inside:
            tables[-1][-1].append(shown(token.children))
            inside = False
    return tables


def headings_of(card):
    return re.findall(r"^## (.*)$", card, re.MULTILINE)


def test_the_card_says_what_the_run_says():
    card = make_card(plots=["training_loss.png"])
    assert headings_of(card) == [
        *(
            "Use",
            "Facts",
            "How it was trained",
            "How well it predicts words",
            "Curves",
            "Limits",
            "Licence",
            "Citation",
        )
    ]
    facts, training, settings, heldout = tables_of(card)
    assert facts[1] == ["Weights", "4,321"]
    assert dict(training[1:]) == {
        "Text": "3 files, 400,000 sentences, 12,641,280 words, 1.23% of the words not in the vocabulary",
        "Steps": "12,345",
        "Epochs": "2.5",
        "Words read": "31,603,200",
        "Softmax in training": "full",
        "Time": "3 h 20 min",
        "Hardware": "2 x Some(R) CPU @ 2.20GHz",
        "Software": "hf-elmo 0.1.0, torch 2.13.0+cpu",
    }
    assert dict(settings[1:]) == {
        "text": '["my corpus"]',
        "learning_rate": "0.2",
        "epochs": "null",
        "shuffle": "true",
        "output": "run",
    }
    assert dict(heldout[1:]) == {
        "the left (forward)": "123.46",
        "the right (backward)": "120.50",
        "both (geometric mean)": "121.97",
    }
    for part in (
        f"Trained with hf-elmo {__version__}.",
        f"```bash\n{TRAINING.command}\n```",
        f"```bash\n{HELDOUT.command}\n```",
        "The weights were random at the beginning.",
        "Measured on `data/held out.txt`: 98,765 words, of which 3.21% are not in the vocabulary",
        "with the full softmax over all 3 words, reading the text as one stream",
        "![training loss](training_loss.png)",
        "was not stated when they were trained",
    ):
        assert part in card
    assert "source" not in card.lower()
    assert "information needed" not in card.lower()


def test_the_hub_finds_the_figures():
    card = make_card(license="cc-by-4.0", languages=["no", "en"])
    front_matter = front_matter_of(card)
    index = front_matter.pop("model-index")
    assert front_matter == {
        "license": "cc-by-4.0",
        "language": ["no", "en"],
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "word-embeddings"],
    }
    assert [entry["name"] for entry in index] == ["tiny-elmo"]
    data = ModelCard(card).data
    assert data.model_name == "tiny-elmo"
    assert {result.metric_name: result.metric_value for result in data.eval_results} == {
        "Perplexity from the left (forward)": 123.456,
        "Perplexity from the right (backward)": 120.5,
        "Perplexity from both (geometric mean)": 121.97,
    }
    assert {(result.dataset_name, result.metric_type) for result in data.eval_results} == {
        ("held out.txt", "perplexity")
    }
    assert "`cc-by-4.0` for the weights, as stated by whoever trained them" in card


def test_without_heldout_text_plots_and_corpus_nothing_is_said_of_them():
    card = make_card(heldout=None, corpus=None, training=dataclasses.replace(TRAINING, settings={}))
    assert headings_of(card) == ["Use", "Facts", "How it was trained", "Limits", "Licence", "Citation"]
    assert "model-index" not in front_matter_of(card)
    assert "- Nothing is known about how well it predicts text: none was held out." in card
    assert "erplexity" not in card.replace("for perplexities", "")
    assert len(tables_of(card)) == 2
    assert "Text" not in dict(tables_of(card)[1])
    assert "![" not in card
    assert "None" not in card
    assert "\n\n\n" not in card


def test_what_nobody_counted_is_left_out():
    training = tables_of(make_card(corpus=CorpusFacts(files=1, unknown_share=0.5)))[1]
    assert dict(training)["Text"] == "1 files, 50.00% of the words not in the vocabulary"
    assert "Text" not in dict(tables_of(make_card(corpus=CorpusFacts()))[1])


def test_a_model_that_was_continued_says_from_what():
    start = "from ../old: 1,000 parameters taken, 24 fresh\nsoftmax partly: ```x``` rows"
    card = make_card(training=dataclasses.replace(TRAINING, start=start))
    assert f"What it began with:\n\n````text\n{start}\n````\n" in card
    assert "random at the beginning" not in card


def test_weights_of_an_earlier_step_are_told():
    training = dict(tables_of(make_card(training=dataclasses.replace(TRAINING, weights_of_step=10_000)))[1])
    assert (training["Steps"], training["Weights of step"]) == ("12,345", "10,000")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"softmax": "full"}, "full"),
        ({"softmax": "sampled", "num_sampled": 2}, "sampled, 2 wrong words"),
        ({"softmax": "adaptive", "softmax_cutoffs": [2], "vocab_size": 9}, "adaptive, groups begin at the words 2"),
    ],
)
def test_the_softmax_of_training_and_measuring_are_told_apart(changes, says):
    card = make_card(config=tiny_config(**changes), plots=["loss.png"])
    assert dict(tables_of(card)[1])["Softmax in training"] == says
    assert ("not a likelihood" in card) == (changes["softmax"] == "sampled")
    assert ("with the adaptive softmax over all 8 words" in card) == (changes["softmax"] == "adaptive")
    assert ("with the full softmax over all 3 words" in card) == (changes["softmax"] != "adaptive")


def test_the_frequency_of_words_is_for_comparison():
    card = make_card(heldout=dataclasses.replace(HELDOUT, unigram_perplexity=1742.338, mode="sentences"))
    assert tables_of(card)[3][-1] == ["the frequency of words alone, for comparison", "1,742.34"]
    assert "reading every sentence by itself" in card
    assert len(ModelCard(card).data.eval_results) == 3


def test_a_perplexity_that_is_no_number_is_not_for_the_hub():
    broken = {"forward_perplexity": math.inf, "backward_perplexity": math.nan, "perplexity": math.nan}
    card = make_card(heldout=dataclasses.replace(HELDOUT, **broken))
    assert [row[1] for row in tables_of(card)[3]] == ["perplexity", "inf", "nan", "nan"]
    assert "model-index" not in front_matter_of(card)


def escaped(text):
    """How a text is shown: signs that nobody sees as escapes, and nothing else."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_and_settings_cannot_break_the_card(hostile):
    settings = {"before": 1, hostile: hostile, "list": [hostile], "after": 2}
    training = dataclasses.replace(
        TRAINING,
        settings=settings,
        hardware=f"cpu{hostile}cpu",
        versions={hostile: "1"},
        command=hostile,
        start=hostile,
    )
    heldout = dataclasses.replace(HELDOUT, files=[f"a/{hostile}"], command=hostile)
    card = make_card(name=hostile, training=training, heldout=heldout)
    card.encode("utf-8")
    assert headings_of(card) == headings_of(make_card())
    assert set(front_matter_of(card)) == set(front_matter_of(make_card()))
    assert len(ModelCard(card).data.eval_results) == 3
    tables = tables_of(card)
    assert [len(table) for table in tables] == [len(facts) for facts in tables_of(make_card())[:2]] + [5, 4]
    assert all(len(row) == 2 for table in tables for row in table)
    _, training, settings, _ = tables
    assert dict(training)["Hardware"] == f"cpu{escaped(hostile)}cpu"
    assert settings[1] == ["before", "1"]
    assert settings[2] == [escaped(hostile).strip(), escaped(hostile).strip() or '""']
    assert settings[4] == ["after", "2"]
    assert not [token for token in MarkdownIt("commonmark").parse(card) if token.type == "html_block"]


def converted_card(tokenizer, **settings):
    config = tiny_config(vocab_size=len(tokenizer), **settings)
    return converted_model_card("name", config, tokenizer, num_parameters=7, dialect="x", sources=[], parity="")


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\nbank\n", encoding="utf-8")
    return tmp_path / "vocab.txt"


WORDS = {"word_input": "words", "word_embedding_size": 6, "project_words": False}
BOTH = {"word_input": "both", "word_embedding_size": 5}


def test_a_model_of_words_is_said_to_be_one(vocabulary):
    tokenizer = ElmoTokenizer(vocabulary)
    card = converted_card(tokenizer, **WORDS, project_cells=False, cell_size=6)
    facts = dict(tables_of(card)[0])
    assert facts["Table of words"] == "6 rows of 6, padding included"
    assert facts["LSTM cell"] == "6, not projected"
    assert facts["Clips"] == "cell 0.5, output none"
    assert not {"Characters", "Convolutions", "Highway layers"} & set(facts)
    assert "Words are looked up in a vocabulary.\n" in card
    assert "The word vocabulary has 6 entries; words outside it are all `<UNK>` to the model." in card
    assert "- Words outside the vocabulary cannot be told apart." in card
    assert not re.search("spelled|letter by letter|cut after|no unknown", card)


def test_a_model_of_both_is_said_to_be_one(vocabulary):
    tokenizer = ElmoTokenizer(vocabulary)
    card = converted_card(tokenizer, **BOTH)
    facts = dict(tables_of(card)[0])
    assert {"Table of words", "Characters", "Convolutions", "Highway layers"} < set(facts)
    assert "Words are looked up in a vocabulary and read letter by letter.\n" in card
    assert "words outside it are `<UNK>` and told apart by their characters only." in card
    assert "no unknown words" not in card


def test_a_model_of_bytes_is_said_to_be_one(vocabulary):
    card = converted_card(ElmoTokenizer(vocabulary))
    assert "Words are read letter by letter, so there are no unknown words.\n" in card
    assert "6 entries; words outside it are spelled all the same." in card
    assert "- Words are cut after 48 bytes of UTF-8." in card
    assert "<S> and </S> included" in card
    assert not re.search("code point|NFC|was split by|Table of words", card)


@pytest.mark.parametrize("segmenter", ["UDPipe", *HOSTILE])
def test_code_points_normalization_and_segmenter_are_told(vocabulary, segmenter):
    tokenizer = ElmoTokenizer(
        vocabulary, segmenter=segmenter, unicode_normalization="NFC", word_splitting="whitespace"
    )
    markers = {"begin_sentence": 3, "end_sentence": 4, "begin_word": 5, "end_word": 6, "pad_word": 7, "unknown": 8}
    tokenizer.set_characters(ElmoCharacters((*"ab", "<s>", "</s>", "<w>", "</w>", "<p>", "<u>"), **markers))
    settings = {"char_vocab_size": 9, "character_markers": [3, 4, 5, 6, 7]}
    card = converted_card(tokenizer, **BOTH, **settings)
    assert dict(tables_of(card)[0])["Characters"] == "50 a word, vectors of 4, for 2 code points"
    assert "Words are spelled with code points, of which the model knows 2; all others are one" in card
    assert "Raw text is put into the form NFC of Unicode" in card
    assert "- Words are cut after 48 code points." in card
    assert headings_of(card) == headings_of(converted_card(ElmoTokenizer(vocabulary)))
    if segmenter == "UDPipe":
        assert "The training text was split by UDPipe, which the tokenizer does not run" in card
    of_words = converted_card(tokenizer, **WORDS)
    assert "spelled with code points" not in of_words
    assert "code points" in of_words  # where they are cut


@pytest.mark.parametrize("plot", ["/tmp/x.png", "../x.png", "a/../../x.png", ""])
def test_plots_elsewhere_are_refused(plot):
    with pytest.raises(ValueError, match="is not in the folder of the card"):
        make_card(plots=[plot])


def test_names_of_plots_are_quoted():
    card = make_card(plots=["plots/a b](x)|.png"])
    assert "![a b  x  ](plots/a%20b%5D%28x%29%7C.png)" in card


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="mode='words' is not possible; choose one of stream, sentences"):
        make_card(heldout=dataclasses.replace(HELDOUT, mode="words"))
    with pytest.raises(ValueError, match="is not spelled as on the Hub"):
        make_card(license="MIT licence")
    with pytest.raises(ValueError, match="is not a code such as"):
        make_card(languages=["English"])


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.04, "0.0 s"),
        (59.44, "59.4 s"),
        (60, "1 min"),
        (3599, "1 h 0 min"),
        (86_399, "1 d 0 h"),
        (200_000, "2 d 7 h"),
    ],
)
def test_time_is_readable(seconds, says):
    assert dict(tables_of(make_card(training=dataclasses.replace(TRAINING, seconds=seconds)))[1])["Time"] == says


def test_example_of_the_card_runs(tmp_path, monkeypatch):
    """On the folder of a language model, whose softmax the example has no use for."""
    model = random_model(model_class=ElmoForPreTraining)
    folder = save_hub_folder(model, ElmoTokenizer(), tmp_path / "tiny-elmo", make_card())
    monkeypatch.chdir(tmp_path)
    example = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names = {}
    exec(example.replace(", trust_remote_code=True", ""), names)
    assert names["vectors"].shape == (2, 8, 12)
    assert len(names["layers"]) == 3
    batch = AutoTokenizer.from_pretrained(folder)("A word.", return_tensors="pt")
    torch.testing.assert_close(
        AutoModel.from_pretrained(folder)(**batch).last_hidden_state, model.elmo(**batch).last_hidden_state
    )
    assert isinstance(AutoModelForPreTraining.from_pretrained(folder), ElmoForPreTraining)
