"""A run that was killed, stopped or damaged goes on as if nothing had been, or says why not (R1, R4, R5, R7, R8)."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tiny import random_model, tiny_config
from training_runs import SENTENCES, WORDS, differences, loaded_program, result_of, write_corpus

from hf_elmo import ElmoTokenizer
from hf_elmo.checkpoints import CheckpointFolder, load_tree
from hf_elmo.modeling_elmo_pretraining import ElmoForPreTraining
from hf_elmo.training_log import TrainingLog

KILL, TERM, INT = int(signal.SIGKILL), int(signal.SIGTERM), int(signal.SIGINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def program(folder):
    with loaded_program(folder) as program:
        yield program


@pytest.fixture(scope="module")
def corpus(folder):
    return write_corpus(folder)


@pytest.fixture(scope="module")
def model_folder(folder):
    """A model to begin with, which lacks some words of the vocabulary."""
    (folder / "fewer.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS[5:20]]) + "\n")
    tokenizer = ElmoTokenizer(folder / "fewer.txt", max_characters_per_token=6)
    config = tiny_config(vocab_size=len(tokenizer), max_characters_per_token=6, cell_clip=3.0, projection_clip=3.0)
    model = random_model(config, model_class=ElmoForPreTraining)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "beginning")
    return folder / "beginning"


def at(name, count, when="before", number=KILL):
    """The change that sends the program a signal at the n-th call of a method during training."""
    return ["signal_at", number, name, when, count]


def newest_step(run):
    return CheckpointFolder(run / "checkpoints").steps()[-1]


def rows_of(run):
    return TrainingLog(run / "log.jsonl").read()


class Kind:
    """A kind of run: its settings, its uninterrupted run, and others to compare with it."""

    def __init__(self, program, settings, folder):
        self.program = program
        self.settings = settings
        self.reference = folder / "uninterrupted"
        self.sitting = program.run(self.of(self.reference))
        self.result = result_of(self.reference)

    def of(self, run, **values):
        return {**self.settings, "output": str(run), **values}

    def cut(self, run, *changes, expected=-KILL):
        """Trains with an interruption; resumes if there is something to resume."""
        sitting = self.program.start(self.of(run), resume=run.exists(), changes=list(changes))
        status = sitting.wait()
        assert status == expected, sitting.said
        return sitting

    def finish(self, run, *changes, **values):
        return self.program.run(self.of(run, **values), resume=True, changes=list(changes))

    def check(self, run):
        assert differences(result_of(run), self.result) == []


# --- R4: the same run ------------------------------------------------------------------------------------------------

STEPS = 64


@pytest.fixture(scope="module")
def long_run(program, corpus, folder):
    """Three batches a step, of which an epoch has exactly four; saved after each fourth step."""
    settings = {
        **corpus,
        "text": [str(folder / "even.txt")],
        "heldout": [str(folder / "heldout.txt")],
        "gradient_accumulation_steps": 3,
        "max_steps": STEPS,
        "eval_steps": 7,
    }
    (folder / "long").mkdir()
    return Kind(program, settings, folder / "long")


def test_the_uninterrupted_run_is_what_it_should_be(long_run):
    rows = rows_of(long_run.reference)
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(set(losses)) == STEPS
    assert [row["step"] for row in rows if "heldout" in row] == [*range(7, STEPS, 7), STEPS]
    assert long_run.sitting.saved == [*range(0, STEPS + 1, 4)]
    state = load_tree(CheckpointFolder(long_run.reference / "checkpoints").newest(), "training")
    assert state["progress"]["data"]["reader"]["sentence"] == SENTENCES  # an epoch has just been read
    assert state["progress"]["words"] == STEPS * 3 * 2 * 4
    assert all(part.abs().sum() > 0 for part in state["lstm"])


CUTS = {
    "in the first batch": (at("TrainingModel.forward", 1), 0),
    "before the last batch of a step": (at("TrainingModel.forward", 6), 0),
    "between batches of a step": (at("TrainingModel.forward", 20), 4),
    "after the last batch of a step": (at("TrainingModel.forward", 30, "after"), 8),
    "just before a save, at the edge of an epoch": (at("Run.save", 1), 0),
    "just after a save, at the edge of an epoch": (at("Run.save", 2, "after"), 8),
    "before an evaluation": (at("Run._evaluate", 1), 4),
    "after an evaluation": (at("Run._evaluate", 2, "after"), 12),
    "before a row of the log": (at("TrainingLog.add", 8), 4),
    "in a row of the log": (at("TrainingLog.add", 12, "half"), 8),
    "after the best weights are kept": (at("Run._keep_best", 1, "after"), 4),
}


@pytest.mark.promise("R4")
@pytest.mark.parametrize("cut", CUTS)
def test_the_next_50_losses_are_the_same(cut, long_run, tmp_path):
    change, step = CUTS[cut]
    long_run.cut(tmp_path / "run", change)
    assert newest_step(tmp_path / "run") == step <= STEPS - 50
    sitting = long_run.finish(tmp_path / "run")
    assert f"checkpoint-{step:09d}: step {step:,}, " in sitting.said
    long_run.check(tmp_path / "run")


@pytest.mark.parametrize("moment", ["Run._evaluate", "Run._write_final"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_end_comes_once(moment, when, long_run, tmp_path):
    shutil.copytree(long_run.reference, tmp_path / "run")
    run = tmp_path / "run"
    for path in (run / "model", run / "checkpoints" / f"checkpoint-{STEPS:09d}"):
        shutil.rmtree(path)
    long_run.cut(run, at(moment, 1, when))
    long_run.finish(run)
    long_run.check(run)
    long_run.finish(run)  # of a run that is over, nothing is left to do
    long_run.check(run)


KINDS = {
    "sentences, adam, linear": {
        "mode": "sentences",
        "optimizer": "adam",
        "schedule": "linear",
        "warmup_steps": 5,
        "max_sentence_words": 5,
    },
    "documents, a worker": {"keep_documents": True, "num_workers": 1},
    "sentences, a worker, adamw": {
        "mode": "sentences",
        "num_workers": 1,
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "schedule": "cosine",
    },
    "epochs, in order, full softmax, sgd": {
        "max_steps": None,
        "epochs": 2,
        "shuffle": False,
        "softmax": "full",
        "num_sampled": None,
        "optimizer": "sgd",
        "gradient_accumulation_steps": 2,
    },
    "rows of the log over several steps": {"log_steps": 5, "heldout": True, "eval_steps": 6},
    "early stopping": {"heldout": True, "eval_steps": 2, "early_stopping": 2, "learning_rate": 3.0},
    "softmax first": {
        "init_from": True,
        "config_overrides": None,
        "softmax_warmup_steps": 6,
        "optimizer": "adam",
        "schedule": "constant_with_warmup",
        "warmup_steps": 3,
    },
    "all of the original's loss": {"batch_size": 3, "max_gradient_norm": 0.5, "heldout": True, "eval_steps": 4},
}


@pytest.mark.promise("R4")
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_runs_go_on(kind, program, corpus, folder, model_folder, tmp_path):
    """Killed before the first save, in the middle of a step, and after a save."""
    settings = {**corpus, "max_steps": 16, **KINDS[kind]}
    if settings.get("heldout"):
        settings["heldout"] = [str(folder / "heldout.txt")]
    if settings.get("init_from"):
        settings["init_from"] = str(model_folder)
    runs = Kind(program, settings, tmp_path)
    run = tmp_path / "run"
    runs.cut(run, at("TrainingModel.forward", 3))
    assert newest_step(run) == 0
    runs.cut(run, at("TrainingModel.forward", 6, "after"))
    assert newest_step(run) == (0 if "gradient_accumulation_steps" in settings else 4)
    runs.cut(run, at("Run.save", 1, "after"))
    runs.finish(run)
    runs.check(run)


def test_workers_may_come_and_go(long_run, tmp_path):
    run = tmp_path / "run"
    long_run.cut(run, at("TrainingModel.forward", 20))
    long_run.finish(run, num_workers=1, keep_checkpoints=3)
    long_run.check(run)


# --- The comparison sees what is wrong -------------------------------------------------------------------------------

FORGOTTEN = {
    "lstm": "log.8.loss",
    "sampling": "log.8.loss",
    "dropout": "log.8.loss",
    "position": "log.8.loss",
    "row": "log.8.loss",
    "optimizer": "log.9.loss",
    "scheduler": "log.8.learning_rate",
    "log": "log",
    "last bit of a weight": "weights of model",
}


@pytest.fixture(scope="module")
def killed_run(program, corpus, folder):
    """A run with a warm-up that was killed in step 11, after step 8 was saved."""
    (folder / "killed").mkdir()
    settings = {**corpus, "max_steps": 16, "schedule": "constant_with_warmup", "warmup_steps": 20}
    runs = Kind(program, settings, folder / "killed")
    runs.cut(folder / "killed" / "run", at("TrainingModel.forward", 11))
    return runs, folder / "killed" / "run"


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_is_forgotten_is_noticed(what, killed_run, tmp_path):
    runs, killed = killed_run
    run = tmp_path / "run"
    shutil.copytree(killed, run)
    runs.finish(run, ["forget", what])
    found = differences(result_of(run), runs.result)
    assert FORGOTTEN[what] in found
    assert not any(re.match(r"log\.[0-7]\.", name) for name in found)


def test_what_is_not_forgotten_is_not_noticed(killed_run, tmp_path):
    runs, killed = killed_run
    shutil.copytree(killed, tmp_path / "run")
    runs.finish(tmp_path / "run")
    runs.check(tmp_path / "run")


# --- R1: killed at any time ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_run(program, corpus, folder):
    (folder / "short").mkdir()
    values = {"max_steps": 8, "save_steps": 2, "heldout": [str(folder / "heldout.txt")], "eval_steps": 3}
    runs = Kind(program, {**corpus, **values}, folder / "short")
    begin = time.perf_counter()
    runs.finish(runs.reference)  # what there is to do before and after the steps
    runs.seconds = time.perf_counter() - begin
    return runs


def check_killed(runs, sitting, run):
    """Whether a killed run can be resumed; if not, that is said, and there was nothing to lose."""
    checkpoints = CheckpointFolder(run / "checkpoints")
    if checkpoints.steps():
        step = int(checkpoints.newest().name[-9:])
        assert step in {*sitting.saved, *checkpoints.steps()}
        assert step >= max(sitting.saved, default=0)
        return True
    assert sitting.saved == []
    refused = runs.program.start(runs.of(run), resume=True)
    assert refused.wait() == 1
    assert re.search(r"holds no run|holds no checkpoint: the run ended before its first step", refused.said)
    return False


def kill_often(runs, folder, kills, seed):
    """Kills runs at random moments, until there were so many kills; resumes them, and compares those that ended."""
    draw = random.Random(seed)
    done = completed = 0
    longest = 2 * runs.seconds
    while done < kills or completed == 0:
        run = folder / f"run-{done}"
        resumable = True
        patience = draw.randint(1, 8)  # kills of the same run
        resume = False
        while True:
            begin = time.perf_counter()
            sitting = runs.program.start(runs.of(run), resume)
            if patience > 0 and done < kills:
                time.sleep(draw.uniform(0, longest))
                sitting.kill()
            status = sitting.wait()
            if status == 0:
                longest = 0.7 * longest + 0.3 * 1.2 * (time.perf_counter() - begin)  # as busy as the machine is
                break
            assert status == -KILL, (status, sitting.said)
            done, patience = done + 1, patience - 1
            resumable = check_killed(runs, sitting, run)
            if not resumable:
                longest *= 1.1
                break
            resume = True
        if resumable:
            runs.check(run)
            completed += 1
        shutil.rmtree(run, ignore_errors=True)  # it may have been killed before it made its folder
    return completed


KILLS, MANY_KILLS = 30, 300


@pytest.mark.promise("R1", n=KILLS)
def test_kills_at_random_moments(short_run, tmp_path):
    assert kill_often(short_run, tmp_path, kills=KILLS, seed=0) > 3


@pytest.mark.promise("R1", n=MANY_KILLS)
@pytest.mark.slow
def test_many_kills_at_random_moments(short_run, tmp_path):
    assert kill_often(short_run, tmp_path, kills=MANY_KILLS, seed=1) > 30


# --- R7: asked to leave ----------------------------------------------------------------------------------------------

MOMENTS = {
    "before the first step": (at("Run._is_over", 1, number=TERM), 1),
    "in the first batch": (at("TrainingModel.forward", 1, number=TERM), 1),
    "after a batch": (at("TrainingModel.forward", 3, "after", TERM), 3),
    "after a step": (at("Run._step", 5, "after", TERM), 5),
    "before a row of the log": (at("TrainingLog.add", 4, number=TERM), 3),
    "before an evaluation": (at("Run._evaluate", 1, number=TERM), 3),
    "after an evaluation": (at("Run._evaluate", 2, "after", TERM), 6),
    "before a save": (at("Run.save", 1, number=TERM), 3),
    "after a save": (at("Run.save", 2, "after", TERM), 5),
    "before a step that is saved anyway": (at("Run._step", 4, number=TERM), 4),
    "in the last step": (at("TrainingModel.forward", 8, number=TERM), 8),
    "Ctrl-C in a batch": (at("TrainingModel.forward", 3, number=INT), 3),
    "Ctrl-C before a save": (at("Run.save", 2, number=INT), 5),
    "Ctrl-C in an evaluation": (at("Run._keep_best", 1, number=INT), 3),
}


@pytest.mark.promise("R7")
@pytest.mark.parametrize("moment", MOMENTS)
def test_signals_end_the_run_after_the_step(moment, short_run, tmp_path):
    change, step = MOMENTS[moment]
    number = signal.Signals(change[1])
    sitting = short_run.cut(tmp_path / "run", change, expected=128 + number)
    assert sitting.saved[-1] == newest_step(tmp_path / "run") == step
    assert f"stopped by {number.name} after step {step}; go on with" in sitting.said
    assert f"--output {tmp_path / 'run'} --resume" in sitting.said
    assert not (tmp_path / "run" / "model").exists()
    short_run.finish(tmp_path / "run")
    short_run.check(tmp_path / "run")


@pytest.mark.promise("R7")
def test_signals_to_the_whole_group(short_run, tmp_path):
    """A worker gets them, too, and goes on to give the batches that the step needs."""
    change = at("TrainingModel.forward", 3, number=-TERM)
    sitting = short_run.program.start(short_run.of(tmp_path / "run", num_workers=1), changes=[change])
    assert sitting.wait() == 128 + TERM, sitting.said
    assert newest_step(tmp_path / "run") == 3
    short_run.finish(tmp_path / "run")
    short_run.check(tmp_path / "run")


def test_the_second_interrupt_does_not_wait(short_run, tmp_path):
    changes = [at("TrainingModel.forward", 3, when, INT) for when in ("before", "after")]
    sitting = short_run.cut(tmp_path / "run", *changes, expected=1)
    assert sitting.said.rstrip().endswith("KeyboardInterrupt")
    assert newest_step(tmp_path / "run") == 2
    short_run.finish(tmp_path / "run")
    short_run.check(tmp_path / "run")


@pytest.mark.slow
def test_the_command_leaves_and_goes_on(short_run, tmp_path):
    """`hf-elmo pretrain` itself, as a scheduler would start, end and restart it."""

    def command(*arguments):
        program = [sys.executable, "-m", "hf_elmo", "pretrain", "--output", str(tmp_path / "run"), *arguments]
        return subprocess.Popen(program, stderr=subprocess.PIPE, text=True)

    (tmp_path / "run.json").write_text(json.dumps({**short_run.of(tmp_path / "run"), "max_steps": 100_000}))
    process = command("--config", str(tmp_path / "run.json"))
    while not (tmp_path / "run" / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert "stopped by SIGTERM after step " in process.communicate()[1]
    assert process.returncode == 143
    step = newest_step(tmp_path / "run")
    assert step == rows_of(tmp_path / "run")[-1]["step"]
    process = command("--resume", "--max_steps", str(step + 1))
    assert f": step {step:,}, " in process.communicate()[1]
    assert process.returncode == 0
    assert newest_step(tmp_path / "run") == step + 1


# --- R5: damaged checkpoints -----------------------------------------------------------------------------------------


def damage(checkpoint):
    file = checkpoint / "training.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(folder, before):
    """The names of files that are not as before."""
    after = contents(folder)
    return {path.name for path in {**before, **after} if before.get(path) != after.get(path)}


def refused(program, settings, resume=True):
    """What a run says that must not begin."""
    sitting = program.start(settings, resume=resume)
    assert sitting.wait() == 1, sitting.said
    return sitting.said


@pytest.mark.promise("R5")
@pytest.mark.parametrize("harm", [damage, shutil.rmtree, lambda path: (path / "SHA256SUMS").unlink()])
def test_the_newest_whole_checkpoint_is_taken(harm, short_run, tmp_path):
    run = tmp_path / "run"
    short_run.cut(run, at("Run._step", 7))
    harm(run / "checkpoints" / "checkpoint-000000006")
    sitting = short_run.finish(run)
    assert "checkpoint-000000004: step 4, " in sitting.said
    assert ("checkpoint-000000006 is skipped: " in sitting.said) == (harm is not shutil.rmtree)
    short_run.check(run)


@pytest.mark.promise("R5")
def test_without_a_whole_checkpoint_nothing_begins(short_run, tmp_path):
    run = tmp_path / "run"
    short_run.cut(run, at("Run._step", 7))
    for step in (4, 6):
        damage(run / "checkpoints" / f"checkpoint-{step:09d}")
    before = contents(run)
    said = refused(short_run.program, short_run.of(run))
    assert re.search(r"No checkpoint in .*checkpoints is valid:\n  checkpoint-000000006: .* has the SHA-256", said)
    assert "is not empty" in refused(short_run.program, short_run.of(run), resume=False)
    assert changed(run, before) == {".lock"}


# --- R8, and what else is refused ------------------------------------------------------------------------------------


@pytest.mark.promise("R8")
def test_a_second_run_is_refused(short_run, tmp_path):
    run = tmp_path / "run"
    first = short_run.program.start(short_run.of(run), changes=[["wait_in_step", 5]])
    while 4 not in first.saved:
        time.sleep(0.01)
    assert f"is in use by process {first.process} on " in refused(short_run.program, short_run.of(run))
    assert "is not empty" in refused(short_run.program, short_run.of(run), resume=False)
    first.kill()
    assert first.wait() == -KILL
    short_run.finish(run)
    short_run.check(run)


@pytest.fixture(scope="module")
def stopped_run(short_run, folder):
    """A run that was killed in step 6."""
    short_run.cut(folder / "stopped", at("Run._step", 6))
    return folder / "stopped"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 3}, "The run was begun with batch_size=2, but batch_size=3 is given. Resume it with its own"),
        ({"seed": 1}, "The run was begun with seed=0, but seed=1 is given."),
        ({"dropout": 0.2}, "The run was begun with dropout=0.1, but dropout=0.2 is given."),
        ({"optimizer": "adam"}, "The run was begun with optimizer='adagrad', but optimizer='adam' is given."),
        ({"mode": "sentences"}, "The run was begun with mode='stream', but mode='sentences' is given."),
    ],
)
def test_other_settings_are_refused(values, message, short_run, stopped_run):
    before = contents(stopped_run)
    assert message in refused(short_run.program, short_run.of(stopped_run, **values))
    assert changed(stopped_run, before) == {".lock"}


def test_another_text_is_refused(short_run, folder, tmp_path):
    text = tmp_path / "text.txt"
    shutil.copy(folder / "uneven.txt", text)
    settings = short_run.of(tmp_path / "run", text=[str(text)])
    sitting = short_run.program.start(settings, changes=[at("Run._step", 5)])
    assert sitting.wait() == -KILL
    content = text.read_text()
    text.write_text(content.replace("w", "v", 1))
    assert "text.txt has changed since the state was saved: " in refused(short_run.program, settings)
    text.write_text(content)
    short_run.program.run(settings, resume=True)
    assert differences(result_of(tmp_path / "run"), short_run.result) == [
        "state.progress.data.reader.files.0.0"  # its name
    ]


def test_used_folders_are_not_begun_in(short_run, stopped_run):
    before = contents(stopped_run)
    said = refused(short_run.program, short_run.of(stopped_run), resume=False)
    assert f"{stopped_run} is not empty. Go on with the run in it (--resume), or choose another folder." in said
    assert changed(stopped_run, before) == set()


def test_there_must_be_a_run_to_resume(short_run, tmp_path):
    run = tmp_path / "run"
    for _ in range(2):
        said = refused(short_run.program, short_run.of(run))
        assert f"{run} holds no run: {run / 'settings.json'} is missing. Begin one without --resume." in said
        assert not run.exists() or not any(run.iterdir())
        run.mkdir(exist_ok=True)
    (run / "settings.json").write_text("{")
    assert f"{run / 'settings.json'} cannot be read: " in refused(short_run.program, short_run.of(run))


def test_runs_that_ended_before_they_began_are_begun_again(short_run, tmp_path):
    run = tmp_path / "run"
    settings = short_run.of(run, softmax="sampled", num_sampled=10**6)
    assert "The softmax draws num_sampled=1000000 words" in refused(short_run.program, settings, resume=False)
    assert {path.name for path in run.iterdir()} <= {"settings.json", "facts.json", "checkpoints"}
    said = refused(short_run.program, settings)
    assert "holds no checkpoint: the run ended before its first step. Begin it again, without --resume." in said
    (run / "mine.txt").touch()
    assert "is not empty" in refused(short_run.program, short_run.of(run), resume=False)
    (run / "mine.txt").unlink()
    short_run.program.run(short_run.of(run))
    short_run.check(run)


def test_runs_may_become_longer(killed_run, tmp_path):
    runs, _ = killed_run
    run = tmp_path / "run"
    runs.program.run(runs.of(run, max_steps=10))
    runs.finish(run)
    runs.check(run)
    assert json.loads((run / "settings.json").read_text())["max_steps"] == 16


def test_schedules_to_the_end_keep_their_end(program, corpus, tmp_path):
    settings = {**corpus, "output": str(tmp_path / "run"), "schedule": "linear", "max_steps": 4}
    program.run(settings)
    assert "The schedule linear goes to the end of the run" in refused(program, {**settings, "max_steps": 5})
