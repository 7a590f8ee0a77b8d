"""Runs a command of hf-elmo in this process, for tests."""

from hf_elmo.cli import main


def run(capsys, *argv):
    """Exit code, standard output and standard error."""
    try:
        code = main([str(argument) for argument in argv])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err
