"""Run a program that may not outlive its owner.

    python guard.py SIGNAL USER DIRECTORY program argument ...

The program ends with SIGNAL, then with SIGKILL, as soon as the guard's standard input closes:
also when its owner was killed and could not clean up. DIRECTORY is removed afterwards. USER and
DIRECTORY may be empty. Only the standard library is imported, so the guard starts at once.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading

GRACE_SECONDS = 10


def main(stop_signal: str, user: str, directory: str, *program: str) -> int:
    identity = {"user": user, "group": user_group(user), "extra_groups": []} if user else {}
    child = subprocess.Popen(
        program, stdin=subprocess.DEVNULL, process_group=0, cwd=directory or None, **identity
    )
    stop = signal.Signals[stop_signal]
    threading.Thread(target=stop_with_owner, args=(child, stop), daemon=True).start()
    try:
        return child.wait()
    finally:
        signal_group(child, signal.SIGKILL)
        if directory:
            shutil.rmtree(directory, ignore_errors=True)


def stop_with_owner(child: subprocess.Popen, stop: signal.Signals) -> None:
    os.read(sys.stdin.fileno(), 1)
    signal_group(child, stop)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        signal_group(child, signal.SIGKILL)


def signal_group(child: subprocess.Popen, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def user_group(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
