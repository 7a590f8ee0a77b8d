"""Cards of published models: made from one file of facts, up to date, and read by the Hub's own tools."""

import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load
from markdown_it import MarkdownIt
from test_model_card import headings_of, tables_of
from tiny import random_model, tiny_config

from hf_elmo import ElmoTokenizer, cli
from hf_elmo.model_card import KINDS, check_language, check_license
from hf_elmo.model_card_folder import checked_metadata
from hf_elmo.model_card_published import FolderFacts, published_model_card, published_models
from hf_elmo.scripts.published_cards import all_cards
from hf_elmo.shipped_model import ELMO_MINI

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "model_cards"
OF_ALLENNLP = ["elmo-small", "elmo-medium", "elmo-original", "elmo-original-5.5b"]
FILES = sorted(path for path in CARDS.glob("**/elmo-*.md"))


def test_cards_are_what_the_facts_say():
    cards = all_cards(CARDS)
    assert {path for path in CARDS.glob("**/*.md") if path.name != "template.md"} == set(cards)
    for path, text in cards.items():
        assert path.read_text(encoding="utf-8") == text, "run: python scripts/published_cards.py model_cards"


def test_all_variants_have_a_card():
    names = list(published_models())
    assert names[:6] == [*OF_ALLENNLP, "elmo-pubmed", "elmo-portuguese"]
    languages = [name.removeprefix("elmo-manylangs-") for name in names[6:]]
    assert len(set(languages)) == len(languages) == 44
    numbers = [published_models()[name]["files"][0]["name"] for name in names[6:]]
    assert sorted(numbers) == [f"{number}.zip" for number in range(136, 180)]
    assert published_models()["elmo-manylangs-ko"]["files"][0]["name"] == "161.zip"


@pytest.mark.parametrize("path", [*FILES, ELMO_MINI / "README.md"], ids=lambda path: path.stem)
def test_the_hub_reads_a_card(path):
    text = path.read_text(encoding="utf-8")
    metadata = metadata_load(path)
    data = checked_metadata(text, path)
    assert data.to_dict() == ModelCard(text).data.to_dict()
    assert set(metadata) >= {"license", "language", "library_name", "pipeline_tag", "tags"}
    check_license(metadata["license"])
    for language in metadata["language"]:
        check_language(language)
    assert metadata["library_name"] == "transformers"
    assert metadata["pipeline_tag"] in {kind[0] for kind in KINDS.values()}
    assert ("license_link" in metadata) == (metadata["license"] == "other")
    assert all(example["text"] for example in metadata.get("widget", []))
    assert {"Use", "Facts", "Limits", "Licence", "Citation"} <= set(headings_of(text))
    assert not re.search(r"None|information needed|TODO|\$\w", text.replace("$ ", ""))
    assert not [token for token in MarkdownIt("commonmark").parse(text) if token.type == "html_block"]


def test_figures_of_others_are_not_ours():
    for name in published_models():
        card = published_model_card(name)
        assert "model-index" not in card
        assert ("Published figures" in headings_of(card)) == (name in OF_ALLENNLP)
        if name in OF_ALLENNLP:
            assert "Published at <https://allennlp.org/elmo>, not measured with this folder." in card


def test_only_a_known_checksum_is_named():
    card = published_model_card("elmo-small")
    assert "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229" in card
    assert "it was not checked against the file" in card
    others = [published_model_card(name) for name in published_models() if name != "elmo-small"]
    assert not any(re.search("[0-9a-f]{64}", other) for other in others)


def test_sizes_that_are_not_known_are_left_out():
    card = published_model_card("elmo-portuguese")
    assert "Its sizes are not known here" in card
    assert "LSTM cell" not in card
    facts = dict(tables_of(published_model_card("elmo-medium"))[0])
    assert (facts["LSTM cell"], facts["Vector of a word"]) == (
        "2048, projected to 256",
        "512 (256 for each direction)",
    )
    assert dict(tables_of(published_model_card("elmo-manylangs-fi"))[0])["Table of words"].startswith("vectors of 100")


@pytest.mark.parametrize("name", ["elmo-small", "elmo-portuguese", "elmo-manylangs-ko"])
def test_commands_of_a_card_are_commands(name):
    block = published_model_card(name).split("```bash\n")[1].split("```")[0].replace("\\\n", " ")
    install, *commands = block.strip().splitlines()
    assert install == 'pip install "hf-elmo[convert]"'
    convert, card = (cli.parse(command.split()[1:]) for command in commands)
    assert str(convert.output) == card.folder == card.published == name
    assert convert.language == published_models()[name]["languages"]


def test_a_folder_fills_its_card():
    config, known = published_models()["elmo-small"], "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5"
    checksum = config["files"][1]["sha256"]
    small = random_model().config.small()
    facts = FolderFacts(small, ElmoTokenizer(), 13_593_300, "Checked: yes.", {known: checksum})
    card = published_model_card("elmo-small", name="my-elmo", folder=facts)
    assert "# my-elmo\n" in card
    assert dict(tables_of(card)[0])["Weights"] == "13,593,300"
    assert "the file that was converted has it." in card
    assert "What was converted:\n\nChecked: yes." in card
    assert "Convert it" not in headings_of(card)
    other = FolderFacts(small, ElmoTokenizer(), 1, "", {known: "0" * 64})
    assert "so it is not the same file" in published_model_card("elmo-small", folder=other)
    wrong = FolderFacts(tiny_config(), ElmoTokenizer(), 1)
    with pytest.raises(ValueError, match="not elmo-small: its projection_size is 6, but that of the published model"):
        published_model_card("elmo-small", folder=wrong)
    assert "LSTM cell" in published_model_card("elmo-portuguese", folder=wrong)


def test_other_names_are_refused():
    with pytest.raises(ValueError, match=r"no published model 'large': choose one of elmo-small, .*elmo-manylangs-ko"):
        published_model_card("large")
