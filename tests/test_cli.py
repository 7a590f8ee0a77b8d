"""The command hf-elmo: help, results, and one line for every mistake."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_runs import run
from originals import elmo_options, write_random_weights

import hf_elmo_cli
from hf_elmo import ElmoModel, __version__, cli, load_mini
from hf_elmo.cli import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def files(tmp_path):
    options, weights = write_random_weights(tmp_path / "source", elmo_options())
    return ["--options", str(options), "--weights", str(weights)]


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"hf-elmo {__version__}\n", "")


def test_help_lists_the_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for words in COMMANDS:
        assert words.split()[0] in out
    code, out, _ = run(capsys, "convert", "--help")
    assert code == 0
    assert "allennlp" in out


def test_every_command_has_a_section_and_a_line(capsys):
    assert set(cli.sections()) == set(cli.SECTIONS), "put the new command into a section of hf_elmo/cli.py"
    _, out, _ = run(capsys, "--help")
    for title, lines in cli.sections().items():
        assert f"\n{title}:\n" in out
        for name, line in lines.items():
            assert re.search(rf"^  {name} +{re.escape(line)}$", out, re.MULTILINE), name
            assert len(line) < 80


def test_a_kind_that_does_not_exist_before_a_source(capsys):
    code, _, err = run(capsys, "convert", "manylang", "161.zip", "--output", "elmo")
    assert code == 2
    kinds = "allennlp, aligned, allennlp-archive, manylangs, bilm-tf"
    assert err.endswith(f"convert has no kind 'manylang' (did you mean 'manylangs'?); there are {kinds}\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["finetun"], "there is no command 'finetun' (did you mean 'finetune'?); 'hf-elmo --help' lists all of them"),
        (["xyz"], "there is no command 'xyz'; 'hf-elmo --help' lists all of them"),
        (["finetune", "tga"], "finetune has no kind 'tga' (did you mean 'tag'?); there are tag, classify"),
    ],
)
def test_a_command_that_does_not_exist(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err == f"usage: hf-elmo [-h] [--version] command ...\nhf-elmo: error: {message}\n"


@pytest.mark.parametrize("argv", [["--help"], ["--version"], [], ["nonsense"], ["finetune", "--help"]])
def test_help_and_version_do_not_wait_for_torch(argv):
    """By the program that is installed, hf_elmo_cli."""
    program = "import sys, hf_elmo_cli\ntry:\n    hf_elmo_cli.main(sys.argv[1:])\nfinally:\n    print(*sys.modules)"
    child = subprocess.run([sys.executable, "-c", program, *argv], cwd=ROOT, capture_output=True, text=True)
    assert child.returncode == (0 if "--help" in argv or "--version" in argv else 2)
    imported = child.stdout.splitlines()[-1].split()
    assert "hf_elmo_cli.cli" in imported
    assert not {"torch", "transformers", "hf_elmo"} & set(imported)


def test_a_command_is_run_by_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        hf_elmo_cli.main(["vocab", "--help"])
    assert capsys.readouterr().out.startswith("usage: hf-elmo vocab")


@pytest.mark.parametrize(
    "command",
    [
        "perplexity {} text.txt",
        "score {} Text.",
        "coverage {} text.txt",
        "embed text.txt --model {} --output vectors.npz",
        "finetune tag --train text.txt --dev text.txt --output tagger --elmo {}",
        "finetune classify --train text.tsv --dev text.tsv --output classifier --elmo {}",
        "pretrain --init_from {} --text text.txt --output run --quiet",
        "layers {}",
        "shrink {} --output half",
        "export allennlp {} --output exported",
        "export onnx {} --output exported",
    ],
)
def test_a_model_that_is_not_there(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Text .\n")
    (tmp_path / "text.tsv").write_text("text\tlabel\nText .\tgood\n")
    code, _, err = run(capsys, *shlex.split(command.format("nowhere")))
    assert code == 1
    assert err.splitlines()[-1].startswith(
        "hf-elmo: error: nowhere is no model folder: there is no such folder. Give one"
    )


def test_the_model_of_the_package_has_a_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("The bank lent money .\n")
    for command in (
        "perplexity elmo-mini text.txt --quiet",
        "coverage elmo-mini text.txt --quiet",
        "embed text.txt --model elmo-mini --output vectors.npz --quiet",
        "shrink elmo-mini --output half --quiet",
    ):
        assert run(capsys, *command.split())[0] == 0, command


def test_a_language_model_is_exported_without_its_softmax(capsys, tmp_path):
    code, _, err = run(capsys, "export", "allennlp", "elmo-mini", "--output", tmp_path / "exported", "--quiet")
    assert code == 0
    assert err == "hf-elmo: warning: The softmax is left out: the format has no place for it.\n"
    assert run(capsys, "convert", tmp_path / "exported", "--output", tmp_path / "model", "--quiet")[0] == 0
    (ours, tokenizer), theirs = load_mini(), ElmoModel.from_pretrained(tmp_path / "model").eval()
    batch = tokenizer("The bank lent money.", return_tensors="pt")
    torch.testing.assert_close(theirs(**batch).last_hidden_state, ours(**batch).last_hidden_state)


def test_only_the_command_that_is_asked_for_is_imported(monkeypatch, capsys):
    monkeypatch.setitem(cli.COMMANDS, "broken", ("no_such_module:NOTHING", "never imported"))
    assert run(capsys, "--help")[0] == 0
    assert run(capsys, "convert", "allennlp", "--help")[0] == 0
    code, _, err = run(capsys, "broken")
    assert (code, err) == (1, "hf-elmo: error: No module named 'no_such_module'\n")


@pytest.mark.parametrize("words", COMMANDS)
def test_help_of_a_command_has_examples_that_parse(capsys, words):
    code, out, _ = run(capsys, *words.split(), "--help")
    assert code == 0
    examples = out.split("examples:\n")[1].replace("\\\n", " ").strip().splitlines()
    for example in examples:
        program, *argv = shlex.split(example)
        if program == "accelerate":  # launch, its own options, and the module of the command
            argv = [*words.split(), *argv[argv.index("hf_elmo.scripts.pretrain_elmo") + 1 :]]
        else:
            assert program == "hf-elmo"
        cli.parse(argv)


def test_options_may_be_spelled_with_hyphens_or_underscores():
    for option in ("--min-count", "--min_count"):
        assert cli.parse(["vocab", "text", "--output", "vocab.txt", option, "7"]).min_count == 7
        assert cli.parse(["vocab", "text", "--output", "vocab.txt", f"{option}=8"]).min_count == 8
    for option in ("--no-keep_documents", "--no-keep-documents", "--no_keep_documents"):
        assert cli.parse(["pretrain", option]).keep_documents is False
    assert cli.parse(["pretrain", "--name", "--keep_documents"[2:]]).name == "keep_documents"


def test_convert_is_a_command_and_a_group():
    assert cli.parse(["convert", "allennlp", "source", "--output", "out"]).source == Path("source")
    for argv in (["convert", "source", "--output", "allennlp"], ["convert", "--output", "allennlp", "source"]):
        arguments = cli.parse(argv)
        assert (arguments.source, arguments.output) == (Path("source"), Path("allennlp"))
    assert cli.parse(["convert", "./allennlp", "--output", "out"]).source == Path("allennlp")


def test_missing_package_of_a_command_is_named(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "hf_elmo.scripts.pretrain_elmo", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    code, _, err = run(capsys, "pretrain", "--help")
    assert (code, err) == (
        1,
        'hf-elmo: error: This command needs accelerate, which is not installed: pip install "hf-elmo[train]"\n',
    )


def test_missing_package_of_training_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_elmo.scripts.finetune.is_accelerate_available", lambda: False)
    (tmp_path / "a.conll").write_text("A O\n")
    files = ["--train", tmp_path / "a.conll", "--dev", tmp_path / "a.conll"]
    code, _, err = run(capsys, "finetune", "tag", *files, "--elmo", "elmo-mini", "--output", tmp_path / "tagger")
    assert code == 1
    assert err.splitlines()[-1] == (
        'hf-elmo: error: Training needs accelerate, which is not installed: pip install "hf-elmo[train]"'
    )
    assert not (tmp_path / "tagger").exists()


def test_convert_and_export(capsys, files, tmp_path):
    code, out, err = run(capsys, "convert", "allennlp", *files, "--output", tmp_path / "model")
    assert code == 0
    assert out.startswith("parity: max |difference| ")
    assert out.endswith(f" weights converted: {tmp_path / 'model'}\n")
    assert [line for line in err.splitlines() if line.startswith("hf-elmo:")] == [
        f"hf-elmo: reading {files[1]}",
        f"hf-elmo: reading {files[3]}",
        "hf-elmo: writing the model",
        "hf-elmo: verifying it against the source",
    ]
    code, out, _ = run(capsys, "export", "allennlp", tmp_path / "model", "--output", tmp_path / "back")
    assert code == 0
    assert out.endswith(f"weights exported: {tmp_path / 'back/options.json'} and {tmp_path / 'back/weights.hdf5'}\n")


def test_quiet_prints_the_result_only(capsys, files, tmp_path):
    code, out, err = run(capsys, "convert", "allennlp", *files, "--output", tmp_path / "model", "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 2


def test_warnings_of_an_export_are_lines(capsys, tmp_path):
    options, weights = write_random_weights(tmp_path / "source", elmo_options(skip=False))
    arguments = ["--options", options, "--weights", weights, "--output", tmp_path / "model", "--quiet"]
    assert run(capsys, "convert", "allennlp", *arguments)[0] == 0
    arguments = [tmp_path / "model", "--output", tmp_path / "back", "--quiet"]
    code, _, err = run(capsys, "export", "allennlp", *arguments)
    assert code == 0
    assert err == ("hf-elmo: warning: AllenNLP refuses models without skip connections; bilm-tf reads this one.\n")


def test_card_options(capsys, files, tmp_path):
    arguments = [*files, "--output", tmp_path / "model", "--quiet", "--license", "mit", "--language", "en"]
    assert run(capsys, "convert", "allennlp", *arguments, "--language", "ko")[0] == 0
    assert (
        (tmp_path / "model" / "README.md")
        .read_text()
        .startswith("---\nlanguage:\n- en\n- ko\nlibrary_name: transformers\nlicense: mit\n")
    )


def mistakes(files, folder):
    output = ["--output", folder / "model"]
    nowhere = folder / "nowhere"
    full = folder / "source"
    return [
        (["--options", nowhere, "--weights", files[3], *output], f"There is no file {nowhere}."),
        (["--options", files[1], "--weights", nowhere, *output], f"There is no file {nowhere}."),
        (["--options", files[3], "--weights", files[3], *output], f"{files[3]} is not valid JSON"),
        (["--options", files[1], "--weights", files[1], *output], f"{files[1]} has "),
        ([*files, "--output", full], f"{full} exists and is not empty."),
        ([*files, *output, "--license", "My Licence"], "The licence 'My Licence' is not spelled as on the Hub"),
        ([*files, *output, "--language", "Klingon"], "The language 'Klingon' is not a code"),
        ([*files, *output, "--vocab", nowhere], str(nowhere)),
    ]


@pytest.mark.parametrize("number", range(8))
def test_mistakes_are_one_line(capsys, files, tmp_path, number):
    arguments, message = mistakes(files, tmp_path)[number]
    code, out, err = run(capsys, "convert", "allennlp", *arguments, "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("hf-elmo: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_debug_shows_where_a_mistake_was_found(capsys, files, tmp_path):
    arguments = ["--options", tmp_path / "nowhere", *files[2:], "--output", tmp_path / "model"]
    code, _, err = run(capsys, "convert", "allennlp", *arguments, "--debug")
    assert code == 1
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("hf-elmo: error: There is no file")


@pytest.mark.parametrize("argv", [[], ["convert"], ["nonsense"], ["convert", "nonsense"], ["convert", "allennlp"]])
def test_wrong_usage_exits_with_2(capsys, argv):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("usage: hf-elmo")


def test_missing_extra_is_named(capsys, files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    code, _, err = run(capsys, "convert", "allennlp", *files, "--output", tmp_path / "model", "--quiet")
    assert code == 1
    assert 'pip install "hf-elmo[convert]"' in err


def test_interruption_is_not_a_traceback(capsys, files, tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_elmo.conversion.command.convert_allennlp", interrupt)
    code, _, err = run(capsys, "convert", "allennlp", *files, "--output", tmp_path / "model")
    assert (code, err) == (130, "hf-elmo: interrupted\n")


def test_package_runs_as_a_module():
    child = subprocess.run([sys.executable, "-m", "hf_elmo", "--version"], capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, f"hf-elmo {__version__}\n")
