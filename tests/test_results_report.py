"""RESULTS.md: written from the results files, and in agreement with them."""

import json
import re
from pathlib import Path

import pytest

from hf_elmo.hub import sha256_of
from hf_elmo.scripts.evidence_parts import TASKS, parts
from hf_elmo.scripts.results_report import RESULTS, Difference, main, report
from hf_elmo.shipped_model import ELMO_MINI

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


def trained(run, mean, deviation=0.002, weights=((0.2, 0.5, 0.3),)):
    """What `scripts/evidence.py` keeps of a task."""
    without = run.endswith("without")
    layer_weights = None if without else [list(row) for row in weights]
    command = f"hf-elmo finetune tag{'' if without else ' --elmo elmo-mini'} --output {run}"
    return {
        "command": command,
        "task": "tag",
        "dev": "eng.testa: 3 sentences, 5 words, 3 labels",
        "metric": "f1",
        "summary": {"f1": score(mean, deviation)},
        "seeds": {"1": {"layer_weights": layer_weights}, "2": {"layer_weights": layer_weights}},
        "evidence": {**identity(run), "commands": [command]},
    }


def identity(run):
    model = None if re.search("without|random", run) else "a1"
    return {"run": run, "commands": [f"hf-elmo pretrain {run}"], "model_sha256": model, "quick": False}


def write_part(folder, part, means, **options):
    """The files of a part; runs that are not named are in the middle."""
    for run in parts()[part]:
        write(folder, run, trained(run, means.get(run, 0.91), **options))


def write(folder, name, content):
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


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
    write(results, "pos/probe", {**pos(), "evidence": identity("pos/probe")})
    write(results, "wsd/probe", {**wsd(), "evidence": identity("wsd/probe")})
    write(results, "test-perplexity", PERPLEXITY)
    means = {"without": 0.9, "elmo": 0.9251, "random": 0.905}
    for task in TASKS:
        write_part(results, task, {f"{task}/{system}": mean for system, mean in means.items()})
    task_means = {"pos-tag/without": 0.9, "pos-tag/elmo": 0.9251}
    means_of_layers = {**task_means, "layers/last": 0.92, "layers/lambda-1": 0.925}
    write_part(results, "layers", means_of_layers)
    write_part(results, "output", task_means)
    weights = ((0.2, 0.5, 0.3), (0.4, 0.35, 0.25))
    write(results, "output/both", trained("output/both", 0.92, weights=weights))
    shares = {f"sizes/{share}-without": 0.7 + share / 500 for share in (1, 2, 5, 10, 20, 50)}
    shares |= {name.replace("without", "elmo"): mean + 0.021 for name, mean in shares.items()}
    for name, mean in shares.items():
        write(results, name, trained(name, mean))
    write_domain(results)
    (results / "pos" / "pos.png").write_bytes(b"")
    (results / "ner" / "ner.png").write_bytes(b"")
    return results


def write_domain(results, after=(50.0, 52.0, 54.0)):
    text = {"text": ["domain/news-heldout.txt"], "command": "hf-elmo perplexity elmo-mini news-heldout.txt"}
    write(results, "domain/before", {**PERPLEXITY, **text, "evidence": identity("domain/before")})
    for seed, both in enumerate(after, 1):
        run = f"domain/after-{seed}"
        write(results, run, {**PERPLEXITY, **text, "both": both, "evidence": identity(run)})


def run(folder, *more):
    output = folder.parents[1] / "RESULTS.md"
    return main(["--results", str(folder), "--output", str(output), *more]), output


def test_the_report_of_this_repository_agrees_with_its_files():
    output = ROOT / "RESULTS.md"
    text = output.read_text(encoding="utf-8")
    assert text == report(ROOT / RESULTS, output), "run: python scripts/results_report.py"
    titles = re.findall("^## (.*)", text, re.MULTILINE)
    assert len(titles) == len(parts()), f"a part of the evidence is missing: {titles}"


def test_the_results_are_of_the_model_in_the_package():
    """A model that is replaced has to be measured again."""
    known = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / RESULTS).glob("*/*.json")]
    measured = {content["evidence"]["model_sha256"] for content in known} - {None}
    assert measured <= {sha256_of(ELMO_MINI / "model.safetensors")}, "run: python scripts/evidence.py --data FOLDER"


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")
MEASURED = ("How well it predicts words", "Results")  # sections of the card with figures
SOURCES = ("results/pretraining/mini", RESULTS, "hf_elmo/mini/config.json")


def test_every_figure_of_the_card_comes_from_a_results_file():
    card = (ELMO_MINI / "README.md").read_text(encoding="utf-8")
    front, _, body = card.removeprefix("---").partition("\n---\n")
    sections = {text.partition("\n")[0]: text for text in body.split("\n## ")}
    texts = [*re.findall(r"value: (\S+)", front), *(sections.get(name, "") for name in MEASURED)]
    figures = {figure for text in texts for figure in NUMBER.findall(re.sub("```.*?```", "", text, flags=re.DOTALL))}
    assert len(figures) > 5
    known = known_numbers()
    unknown = [figure for figure in sorted(figures) if not is_known(figure, known)]
    assert not unknown, f"no file of {', '.join(map(str, SOURCES))} has the figures {unknown}"
    assert not is_known("168.65", {168.643}), "this test has to be able to fail"
    assert is_known("168.64", {168.643})
    assert is_known("4.33", {0.0433})


def known_numbers():
    """All numbers in the files that a card may quote, those within texts, too."""
    places = [ROOT / place for place in SOURCES]
    files = [file for place in places for file in ([place] if place.is_file() else place.glob("**/*.json*"))]
    found = [
        number for file in files for number in re.findall(r"\d[\d,]*(?:\.\d+)?", file.read_text(encoding="utf-8"))
    ]
    return {float(number.replace(",", "")) for number in found if number.strip(",")}


def is_known(figure, known):
    """Whether a number, or a share in percent, is rounded to the figure; one below a number is one without padding."""
    digits = len(figure.partition(".")[2])
    plain = figure.replace(",", "")
    return any(f"{factor * value - less:.{digits}f}" == plain for value in known for factor, less in FACTORS)


FACTORS = ((1, 0), (100, 0), (1, 1))


def test_figures_stand_beside_those_of_the_paper(folder):
    code, output = run(folder)
    assert code == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    for line in [
        "| dev.conllu, [probe.json](results/evidence/pos/probe.json) | layer 0 | layer 1 | layer 2 |",
        "| **elmo-mini** | 80.00 ± 0.10 | 95.00 ± 0.10 | 93.00 ± 0.10 |",
        "| glove-6b-50d | 85.00 ± 0.10 | - | - |",
        "| most frequent tag of each word | 87.65 | - | - |",
        "| paper: WSJ, accuracy (Table 6) | - | 97.3 | 96.8 |",
        "![pos](results/evidence/pos/pos.png)",
        "hf-elmo probe pos elmo-mini",
        "| **elmo-mini** | 50.00 | 55.00 | 61.00 |",
        "| paper: all test sets, F1 (Table 5) | - | 67.4 | 69.0 |",
        "| paper: first sense of WordNet (Table 5) | 65.9 | - | - |",
        "| eng.testa | f1 | over the first | weights of the layers, first seed |",
        "| without ELMo | 90.00 ± 0.20 | - | - |",
        "| elmo-mini | 92.51 ± 0.20 | +2.51 (+12.6 deviations) | 0.20 0.50 0.30 |",
        "| random weights | 90.50 ± 0.20 | +0.50 (+2.5 deviations) | 0.20 0.50 0.30 |",
        "The paper has test F1 90.15 without ELMo and 92.22 ± 0.10 with it (Table 1).",
        "![ner](results/evidence/ner/ner.png)",
        "**Repeated**: with elmo-mini it is 2.51 points above (12.6 standard deviations) the same system without "
        "ELMo, and 2.01 points above (10.1 standard deviations) random weights.",
        "- [ner/elmo.json](results/evidence/ner/elmo.json): `hf-elmo finetune tag --elmo elmo-mini --output ner/elmo`",
        "| here | 90.00 ± 0.20 | 92.00 ± 0.20 | 91.00 ± 0.20 | 92.50 ± 0.20 | 92.51 ± 0.20 |",
        "| paper: SNLI, accuracy | 88.1 | 89.1 | - | 89.3 | 89.5 |",
        "**Repeated**: the learned mix of all layers (lambda 0.001) is 0.51 points above (2.5 standard "
        "deviations) the last layer.",
        "**Open**: it is 0.01 points above (0.0 standard deviations) the mix with lambda 1, which keeps the weights "
        "nearly equal.",
        "| paper: SRL, F1 | - | 84.7 | 84.3 | 80.9 |",
        "| 10 % | 72.00 ± 0.20 | 74.10 ± 0.20 | +2.10 (+10.5 deviations) |",
        "| parts of speech, output of two | 0.400 | 0.350 | 0.250 |",
        "| before | 101.26 | 88.00 | 94.40 |",
        "| after | 101.26 ± 0.00 | 88.00 ± 0.00 | 52.00 ± 2.00 |",
        "**Repeated**: after an epoch of this domain, the perplexity is 55.1 % of what it was.",
        "| Named entities (Table 1) | repeated |",
        "| All layers or the last one (Table 2) | repeated, open |",
        "The weights that were measured have the sha256 `a1`.",
        "| [test-perplexity.json](results/evidence/test-perplexity.json) | test.txt | 101.3 | 88.0 | 94.4 | 275,000 "
        "| 3.12 % |",
    ]:
        assert line in lines, line
    assert any("lists 62.2 for the model of the paper and 54.5" in line for line in lines)
    assert any("1 % with ELMo is worth 20 %, 2 % with ELMo is worth 20 %" in line for line in lines)
    assert any("50 % with ELMo is worth 100 % without it." in line for line in lines)
    assert any("18 of 455 words" in line and "± 2.3 (standard error)" in line for line in lines)
    assert "![wsd]" not in output.read_text()
    assert output.read_text(encoding="utf-8").count("## ") == 11


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
        (
            {**pos(), "systems": {**pos()["systems"], "random weights": [score(0.5), score(0.6)]}},
            "7.35 points above the baseline 'most frequent tag of each word', and 35.00 points above the best one of",
        ),
        (wsd((0.5, 0.60)), "This model has no layer 2, so the claim is not tested."),
    ],
)
def test_claims_are_judged(tmp_path, content, verdict):
    (tmp_path / "one.json").write_text(json.dumps(content))
    assert verdict in report(tmp_path, tmp_path / "RESULTS.md")


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ((0.9, 0.92, 0.919), "**In part**: with elmo-mini it is 2.00 points above (10.0 standard deviations)"),
        ((0.9, 0.92, 0.919), "So much of the gain comes from the shape alone"),
        ((0.9, 0.903, 0.9), "**Open**: with elmo-mini it is 0.30 points above (1.5 standard deviations)"),
        ((0.9, 0.89, 0.9), "**Not repeated**: with elmo-mini it is 1.00 points below (5.0 standard deviations)"),
    ],
)
def test_tasks_are_judged(tmp_path, means, verdict):
    systems = zip(("without", "elmo", "random"), means, strict=True)
    write_part(tmp_path, "ner", {f"ner/{system}": mean for system, mean in systems})
    assert verdict in report(tmp_path, tmp_path / "RESULTS.md")


def test_differences_in_standard_deviations():
    difference = Difference.of(score(0.93, 0.01), score(0.9, 0.002))
    assert difference.points == pytest.approx(3)
    assert difference.deviations == pytest.approx(3)
    assert difference.is_clear
    alone = Difference.of(score(0.93, None), score(0.9, None))
    assert alone.is_open
    assert "unknown standard deviations" in str(alone)


def test_results_that_do_not_belong_together_are_refused(folder, capsys):
    content = json.loads((folder / "ner/elmo.json").read_text())
    content["evidence"]["model_sha256"] = "b2"
    write(folder, "ner/elmo", content)
    assert run(folder)[0] == 1
    assert "are of different models. Run scripts/evidence.py again" in capsys.readouterr().err
    (folder / "ner/elmo.json").unlink()
    assert run(folder)[0] == 1
    assert "part ner is not complete. Run scripts/evidence.py --only ner." in capsys.readouterr().err


def test_a_perplexity_that_rises_is_not_repeated(folder):
    write_domain(folder, after=(120.0, 121.0, 122.0))
    assert "**Not repeated**: after an epoch of this domain, the perplexity is 128.2 %" in run(folder)[1].read_text()


def test_files_of_other_kinds_are_refused(folder, tmp_path, capsys):
    (folder / "zzz.json").write_text("{}")
    assert run(folder)[0] == 1
    assert (
        "zzz.json is not a file of scripts/evidence.py, hf-elmo probe or hf-elmo perplexity" in capsys.readouterr().err
    )
    assert run(tmp_path / "nowhere")[0] == 1
    assert "has no results file" in capsys.readouterr().err
