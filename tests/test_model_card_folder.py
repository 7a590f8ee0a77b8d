"""hf-elmo card: the card of a folder is kept, and gets figures from results files that can be trusted."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import run
from huggingface_hub import ModelCard
from test_model_card import HOSTILE, headings_of, make_card, tables_of
from tiny import random_model, tiny_config

from hf_elmo import ElmoForPreTraining, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoTokenizer
from hf_elmo.hub import save_hub_folder, verify_checksums
from hf_elmo.model_card_folder import card_of_folder, sections_of, write_card
from hf_elmo.model_card_results import read_results

ROOT = Path(__file__).parents[1]
LABELS = ["O", "B-PER", "I-PER"]
COMMAND = "hf-elmo finetune tag --train a --dev b.conll --elmo models/tiny-elmo --output ner"
SCORES = {"mean": 0.9, "standard_deviation": 0.01, "values": [0.9]}
TASK = {
    "command": COMMAND,
    "task": "tag",
    "train": "a: 3 sentences",
    "dev": "b.conll: 2 sentences",
    "metric": "f1",
    "summary": {"f1": SCORES, "loss": {"mean": 1.0}},
    "seeds": {"1": {}, "2": {}},
}
PERPLEXITY = {
    "model": "runs/tiny-elmo",
    "text": ["data/held out.txt"],
    "rows": 32,
    "steps": 20,
    "max_words": 100,
    "mode": "sentences",
    "forward": 12.5,
    "backward": 11.25,
    "both": 11.9,
    "words": 1234,
    "unknown_share": 0.05,
}
PROBE = {
    "command": "hf-elmo probe pos tiny-elmo --train a --dev b",
    "model": "tiny-elmo",
    "probe": "pos",
    "metric": "accuracy",
    "dev": "b.conllu: 2 sentences",
    "baselines": {},
    "systems": {"model": [{"mean": 0.5, "standard_deviation": None}, SCORES]},
}
PAIRS = {
    "command": "hf-elmo pairs tiny-elmo blimp.jsonl --json pairs.json",
    "model": "tiny-elmo",
    "pairs": 1000,
    "all_words_known": {},
    "forward": {"accuracy": 0.5},
    "backward": {"accuracy": 0.6},
    "combined": {"accuracy": 0.7},
}


@pytest.fixture
def folder(tmp_path):
    """Of a language model with a card."""
    model = random_model(model_class=ElmoForPreTraining)
    return save_hub_folder(model, ElmoTokenizer(), tmp_path / "tiny-elmo", make_card())


@pytest.fixture
def results(tmp_path):
    def write(content, name="results.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def save_head(folder, model_class=ElmoForTokenClassification):
    config = tiny_config(num_labels=3, id2label=dict(enumerate(LABELS)), label2id={"O": 0})
    random_model(config, model_class=model_class).save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)
    return folder


def test_figures_are_put_into_the_card(capsys, folder, results):
    before = (folder / "README.md").read_text(encoding="utf-8")
    files = [results(content, f"{number}.json") for number, content in enumerate((PERPLEXITY, PROBE, PAIRS, TASK))]
    code, out, _ = run(capsys, "card", folder, "--results", *files, "--overwrite")
    assert (code, out) == (0, f"card: {folder / 'README.md'}, licence unknown, 12 figures for the Hub\n")
    card = (folder / "README.md").read_text(encoding="utf-8")
    verify_checksums(folder)
    assert headings_of(card) == [*headings_of(before)[:-3], "Results", *headings_of(before)[-3:]]
    share = "(5.00% of 1,234 words unknown)"
    assert [row[1:] for row in tables_of(card)[-1][1:]] == [
        ["held out.txt", "Perplexity from the left, sentences", f"12.50 {share}"],
        ["held out.txt", "Perplexity from the right, sentences", f"11.25 {share}"],
        [
            "held out.txt",
            "Perplexity from both sides (geometric mean), sentences",
            f"11.90 {share}",
        ],
        ["b.conllu", "Accuracy of layer 0", "50.00"],
        ["b.conllu", "Accuracy of layer 1", "90.00 ± 1.00"],
        ["blimp.jsonl", "Accuracy, forward", "50.00 (1,000 pairs)"],
        ["blimp.jsonl", "Accuracy, backward", "60.00 (1,000 pairs)"],
        ["blimp.jsonl", "Accuracy, combined", "70.00 (1,000 pairs)"],
        ["b.conll", "F1", "90.00 ± 1.00 (2 seeds)"],
    ]
    command = "hf-elmo perplexity FOLDER 'held out.txt' --mode sentences --rows 32 --steps 20 --max-words 100"
    for part in (command, PROBE["command"], PAIRS["command"], COMMAND):
        assert f"```bash\n{part}\n```" in card
    found = {result.metric_name: result.metric_value for result in ModelCard(card).data.eval_results}
    assert (found["F1"], found["Accuracy of layer 1"], found["Accuracy, combined"]) == (0.9, 0.9, 0.7)
    assert found["Perplexity from both (geometric mean)"] == 121.97  # that of the card before


def test_perplexities_of_states_are_put_into_the_card(folder):
    states = read_results(ROOT / "results" / "states" / "states.json")
    states = replace(states, model="tiny-elmo")
    card = card_of_folder(folder, [states])
    rows = tables_of(card)[-1][1:]
    assert [row[2] for row in rows] == [
        f"Perplexity of {text} from both sides (geometric mean), {state} state"
        for text in ("test.txt", "lm1b-heldout-dev.txt")
        for state in ("zero", "warm", "carry")
    ]
    assert re.fullmatch(r"\d+\.\d\d \(\d+\.\d\d% of [\d,]+ words unknown\)", rows[0][3])
    assert f"```bash\n{states.command}\n```" in card
    assert [result.metric_value for result in ModelCard(card).data.eval_results][3:] == [
        figure.value for figure in states.figures
    ]


def test_what_is_measured_again_is_there_once(folder, results):
    for value in (0.5, 0.75):
        content = {**TASK, "summary": {"f1": {**SCORES, "mean": value}}}
        card = card_of_folder(folder, [read_results(results(content))])
        write_card(card, folder / "README.md", overwrite=True)
    assert card.count("## Results\n") == 1
    assert "50.00" not in tables_of(card)[-1][1]
    assert [result.metric_value for result in ModelCard(card).data.eval_results][3:] == [0.75]
    assert card_of_folder(folder) == card


def test_licence_and_languages_are_changed_everywhere(capsys, folder):
    code, _, _ = run(capsys, "card", folder, "--license", "mit", "--language", "ko", "--overwrite")
    assert code == 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (ModelCard(card).data.license, ModelCard(card).data.language) == ("mit", ["ko"])
    assert card.split("## Licence\n\n")[1].startswith("`mit` for the weights")
    assert "was not stated" not in card
    assert headings_of(card) == headings_of(make_card())


@pytest.mark.parametrize(
    ("model_class", "tag"),
    [(ElmoForTokenClassification, "token-classification"), (ElmoForSequenceClassification, "text-classification")],
)
def test_a_head_without_a_card_gets_one(tmp_path, results, model_class, tag, monkeypatch):
    folder = save_head(tmp_path / "ner", model_class)
    task = {**TASK, "task": "tag" if tag == "token-classification" else "classify", "command": "hf-elmo finetune x"}
    card = card_of_folder(folder, [read_results(results(task))], license="mit", languages=["en"])
    data = ModelCard(card).data
    assert (data.pipeline_tag, data.license, data.language) == (tag, "mit", ["en"])
    assert headings_of(card) == ["Use", "Facts", "Labels", "Results", "Limits", "Licence", "Citation"]
    assert "3: `O`, `B-PER`, `I-PER`." in card
    weights = sum(parameter.numel() for parameter in model_class.from_pretrained(folder).parameters())
    assert dict(tables_of(card)[0])["Weights"] == f"{weights:,}"
    monkeypatch.chdir(tmp_path)
    example = card.split("```python\n")[1].split("```")[0].replace(", trust_remote_code=True", "")
    exec(example, {})


def test_a_plain_folder_gets_a_card_of_what_it_is(tmp_path):
    random_model().save_pretrained(tmp_path / "plain")
    ElmoTokenizer().save_pretrained(tmp_path / "plain")
    card = card_of_folder(tmp_path / "plain")
    assert headings_of(card) == ["Use", "Facts", "Limits", "Licence", "Citation"]
    assert "- The folder does not say on which text the model was trained." in card
    assert "\n\n\n" not in card
    assert "model-index" not in card
    assert "\n# plain\n" in card


def test_the_model_of_a_run_is_called_like_the_run(tmp_path):
    save_head(tmp_path / "ner" / "model", ElmoForTokenClassification)
    card = card_of_folder(tmp_path / "ner" / "model")
    assert "\n# ner\n" in card
    assert 'model="ner"' in card


def test_a_converted_folder_keeps_its_source(folder):
    origin = (
        "## Where it comes from\n\nConverted.\n\n| file | SHA-256 |\n|---|---|\n| `elmo_pt_weights.hdf5` | `{}` |\n\n"
    )
    text = (
        (folder / "README.md").read_text(encoding="utf-8").replace("## Limits", origin.format("a" * 64) + "## Limits")
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    for _ in range(2):
        card = card_of_folder(folder, published="elmo-portuguese")
        assert card.count("Converted.\n\n| file | SHA-256 |") == 1
        assert card.count("What was converted:") == 1
        assert "a" * 64 in card
        (folder / "README.md").write_text(card, encoding="utf-8")
    assert ModelCard(card).data.language == ["pt"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_results_cannot_break_the_card(folder, results, hostile):
    content = {**TASK, "dev": f"{hostile}:", "command": f"{COMMAND} {hostile!r}"}
    card = card_of_folder(folder, [read_results(results(content))])
    card.encode("utf-8")
    plain = card_of_folder(folder, [read_results(results(TASK))])
    assert headings_of(card) == headings_of(plain)
    assert [len(table) for table in tables_of(card)] == [len(table) for table in tables_of(plain)]
    assert all(len(row) == 4 for row in tables_of(card)[-1])
    assert len(ModelCard(card).data.eval_results) == 4


def test_headings_in_code_are_not_headings():
    text = "a\n## b\n````\n## c\n```\n## d\n````\n## e\n~~~x\n## f\n~~~\n## g"
    assert [part.splitlines()[0] for part in sections_of(text)] == ["a", "## b", "## e", "## g"]
    assert "".join(sections_of(text)) == text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "must hold one JSON object"),
        ({"speed": 3}, "is not a results file that a card can show. Those are what hf-elmo finetune, hf-elmo perp"),
        ({**TASK, "task": "sing"}, "looks like a results file, but lacks or garbles 'sing'"),
        ({**TASK, "summary": {"f1": {}}}, "lacks or garbles 'mean'"),
        ({**TASK, "summary": {"f1": {"mean": "high"}}}, "looks like a results file, but lacks or garbles "),
        ({**PROBE, "command": 7}, "lacks or garbles the command"),
        ({**PERPLEXITY, "both": float("nan")}, "is not valid JSON"),
        (json.dumps(PERPLEXITY).replace("11.9", "1e999"), "Perplexity from both sides .* inf, which is no number"),
        ("[" * 100_000, "nested too deeply"),
        ({**PERPLEXITY, "model": "another"}, "figures of the model 'another', but this card is for 'tiny-elmo'"),
        (
            {**TASK, "command": "hf-elmo finetune tag --crf"},
            "has figures of a task without ELMo, but this card",
        ),
    ],
)
def test_other_files_are_refused(capsys, folder, results, content, says):
    path = results(content)
    code, out, err = run(capsys, "card", folder, "--results", path, "--overwrite")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert re.search(says, err)
    verify_checksums(folder)


def test_mistakes_are_one_line(capsys, folder, tmp_path):
    broken = tmp_path / "broken"
    save_head(broken)
    (broken / "README.md").write_text("---\nlicense: [\n---\n", encoding="utf-8")
    for arguments, says in (
        ([folder], "exists. Give another --output, or --overwrite"),
        ([tmp_path / "nowhere"], "there is no such folder"),
        ([folder, "--overwrite", "--results", tmp_path / "no.json"], "There is no file"),
        ([folder, "--overwrite", "--license", "My Licence"], "is not spelled as on the Hub"),
        ([folder, "--overwrite", "--language", "Klingon"], "is not a code"),
        ([folder, "--overwrite", "--published", "elmo-small"], "The folder is not elmo-small"),
        (
            [folder, "--overwrite", "--published", "elmo-small", "--license", "mit"],
            "leave --license and",
        ),
        ([broken, "--overwrite"], "The metadata at the top of"),
    ):
        code, out, err = run(capsys, "card", *arguments)
        assert (code, out) == (1, "")
        assert err.startswith("hf-elmo: error: ")
        assert says in err
    verify_checksums(folder)


def test_results_of_the_repository_can_be_shown():
    names = {read_results(path).dataset for path in (ROOT / "results" / "evidence").glob("*/*.json")}
    assert names >= {"eng.testa", "en_ewt-ud-dev.conllu", "semeval2007.data.xml", "news-heldout.txt"}
