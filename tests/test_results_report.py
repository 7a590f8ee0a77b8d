"""RESULTS.md: written from the results files, and in agreement with them."""

import json
from pathlib import Path

import pytest

from hf_elmo.scripts.results_report import RESULTS, main, report

ROOT = Path(__file__).parents[1]


def score(mean, deviation=0.001):
    return {"mean": mean, "standard_deviation": deviation, "values": [mean]}


def pos(layers=(0.8, 0.95, 0.93)):
    return {
        "command": "hf-elmo probe pos elmo-mini",
        "model": "elmo-mini",
        "probe": "pos",
        "metric": "accuracy",
        "dev": "dev.conllu: 2 sentences, 5 words, 3 labels",
        "systems": {"model": list(map(score, layers)), "glove-6b-50d": [score(0.85)]},
        "baselines": {"most frequent tag of each word": 0.8765},
        "standard_error": 0.0005,
    }


def wsd(layers=(0.5, 0.55, 0.61)):
    return {
        **pos(),
        "command": "hf-elmo probe wsd elmo-mini",
        "probe": "wsd",
        "metric": "f1",
        "dev": "semeval2007.data.xml: 135 sentences, 455 words with a sense",
        "systems": {"model": [score(mean, None) for mean in layers]},
        "unseen": 18,
        "words": 455,
        "back_off": "first sense of WordNet",
        "standard_error": 0.0229,
    }


def finetuned(mean, weights):
    return {
        "command": "hf-elmo finetune tag --train eng.train",
        "task": "tag",
        "dev": "eng.testa: 3 sentences, 5 words, 3 labels",
        "metric": "f1",
        "summary": {"f1": score(mean, 0.002)},
        "seeds": {"1": {"layer_weights": weights}, "2": {"layer_weights": weights}},
    }


PERPLEXITY = {
    "softmax": "full",
    "text": ["corpus/test.txt"],
    "forward": 101.26,
    "backward": 88.0,
    "both": 94.4,
    "words": 275000,
    "unknown_share": 0.0312,
}


@pytest.fixture
def folder(tmp_path):
    results = tmp_path / "results" / "evidence"
    results.mkdir(parents=True)
    files = {
        "pos": pos(),
        "wsd": wsd(),
        "ner-glove": finetuned(0.9, None),
        "ner-elmo": finetuned(0.9251, [[0.2, 0.5, 0.3]]),
        "test-perplexity": PERPLEXITY,
    }
    for name, content in files.items():
        (results / f"{name}.json").write_text(json.dumps(content))
    (results / "pos.png").write_bytes(b"")
    return results


def run(folder, *more):
    output = folder.parents[1] / "RESULTS.md"
    return main(["--results", str(folder), "--output", str(output), *more]), output


def test_the_report_of_this_repository_agrees_with_its_files():
    """There is one if and only if there are files for it."""
    output, results = ROOT / "RESULTS.md", ROOT / RESULTS
    written = output.read_text(encoding="utf-8") if output.exists() else None
    expected = report(results, output) if list(results.glob("*.json")) else None
    assert written == expected, "run: python scripts/results_report.py"


def test_figures_stand_beside_those_of_the_paper(folder):
    code, output = run(folder)
    assert code == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    for line in [
        "| dev.conllu, [pos.json](results/evidence/pos.json) | layer 0 | layer 1 | layer 2 |",
        "| **elmo-mini** | 80.00 ± 0.10 | 95.00 ± 0.10 | 93.00 ± 0.10 |",
        "| glove-6b-50d | 85.00 ± 0.10 | - | - |",
        "| most frequent tag of each word | 87.65 | - | - |",
        "| paper: WSJ, accuracy (Table 6) | - | 97.3 | 96.8 |",
        "![pos](results/evidence/pos.png)",
        "hf-elmo probe pos elmo-mini",
        "| **elmo-mini** | 50.00 | 55.00 | 61.00 |",
        "| paper: all test sets, F1 (Table 5) | - | 67.4 | 69.0 |",
        "| paper: first sense of WordNet (Table 5) | 65.9 | - | - |",
        "| [ner-glove.json](results/evidence/ner-glove.json) | f1 90.00 ± 0.20 | 2 | - |",
        "| [ner-elmo.json](results/evidence/ner-elmo.json) | f1 92.51 ± 0.20 | 2 | 0.20 0.50 0.30 |",
        "paper: test F1 without ELMo 90.15, with it 92.22 ± 0.10 (Table 1)",
        "| [test-perplexity.json](results/evidence/test-perplexity.json) | test.txt | 101.3 | 88.0 | 94.4 | 275,000 "
        "| 3.12 % |",
    ]:
        assert line in lines, line
    assert any("lists 62.2 for the model of the paper and 54.5" in line for line in lines)
    assert any("18 of 455 words" in line and "± 2.3 (standard error)" in line for line in lines)
    assert "![wsd]" not in output.read_text()


def test_check_finds_a_figure_that_was_changed(folder, capsys):
    _, output = run(folder)
    assert run(folder, "--check")[0] == 0
    text = output.read_text(encoding="utf-8")
    output.write_text(text.replace("92.51", "99.99"), encoding="utf-8")
    assert run(folder, "--check")[0] == 1
    assert "is not what" in capsys.readouterr().err
    assert "99.99" in output.read_text(encoding="utf-8")
    assert run(folder)[0] == 0
    assert output.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (
            pos((0.8, 0.95, 0.93)),
            "layer 1 is 2.00 points above layer 2, the next best. The best layer is 7.35 points above the baseline",
        ),
        (
            pos((0.8, 0.95, 0.949)),
            "**Open**: layer 1 is 0.10 points above layer 2, the next best, which is within two standard deviations.",
        ),
        (pos((0.8, 0.93, 0.95)), "**Not repeated**: layer 1 is 2.00 points below layer 2."),
        (pos((0.96, 0.95, 0.93)), "**Not repeated**: layer 1 is 1.00 points below layer 0."),
        (wsd((0.5, 0.55, 0.61)), "**Repeated**: layer 2 is 6.00 points above layer 1, the next best."),
        (
            wsd((0.5, 0.55, 0.58)),
            "which is within two standard errors. The best layer is 29.65 points below the baseline",
        ),
        (wsd((0.5, 0.55, 0.58)), "**Open**: layer 2 is 3.00 points above layer 1"),
        (wsd((0.5, 0.60)), "This model has no layer 2, so the claim is not tested."),
    ],
)
def test_claims_are_judged(tmp_path, content, verdict):
    (tmp_path / "one.json").write_text(json.dumps(content))
    assert verdict in report(tmp_path, tmp_path / "RESULTS.md")


def test_files_of_other_kinds_are_refused(folder, tmp_path, capsys):
    (folder / "zzz.json").write_text("{}")
    assert run(folder)[0] == 1
    assert "zzz.json is not a file of hf-elmo probe, finetune or perplexity" in capsys.readouterr().err
    assert run(tmp_path / "nowhere")[0] == 1
    assert "has no results file" in capsys.readouterr().err
