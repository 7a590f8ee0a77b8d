"""Stops an action at every call that changes files: by SIGKILL, by a power cut, or by an error of the system.

Python's profiler sees all calls of functions written in C, however they are imported; what safetensors does is one
call. What half-written files look like, the power cut shows: it cuts all new files that were not flushed by then.
"""

import os
import shutil
import signal
import sys
import traceback
from unittest import mock

BEFORE, AFTER = "c_call", "c_return"
CALLS = set(
    "open write flush close truncate ftruncate fsync rename replace unlink remove rmdir mkdir chmod "
    "serialize_file flock".split()
)


def watch(action, strike=lambda point: None, events=(BEFORE, AFTER)):
    """Runs the action, calls `strike` with the number of each point it comes to, and returns how many there were."""
    points = 0

    def profile(frame, event, function):
        nonlocal points
        if event in events and function.__name__ in CALLS and "logging" not in frame.f_code.co_filename:
            points += 1
            strike(points - 1)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return points


def killed_at(point, action):
    """Runs the action in a forked process that gets a SIGKILL at the point; True if it came to that."""

    def strike(reached):
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return status_of_child(lambda: watch(action, strike, events=(BEFORE,))) == signal.SIGKILL


def status_of_child(action):
    """Runs the action in a forked process; 0 if all went well."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1]


def states_on_disk(folder, action, copies, power_cut):
    """Runs the action and gives copies of the folder: one for each point, as a SIGKILL or a power cut would leave it.

    The power cut loses the second half of all files that were written by the action and not flushed.
    """
    flushed = {_identity(os.stat(path)) for path in _files(folder)}
    fsync = os.fsync

    def record(descriptor):
        fsync(descriptor)
        flushed.add(_identity(os.fstat(descriptor)))

    def copy(source, target):
        shutil.copy2(source, target)
        if power_cut and _identity(os.stat(source)) not in flushed:
            os.truncate(target, os.path.getsize(target) // 2)

    with mock.patch.object(os, "fsync", record):
        points = watch(action, lambda point: shutil.copytree(folder, copies / str(point), copy_function=copy))
    return [copies / str(point) for point in range(points)]


def _files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def _identity(status):
    return status.st_ino, status.st_mtime_ns  # as it was renamed, but not as a new file that got its number
