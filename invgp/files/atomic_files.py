"""Atomic writing of files: a file is replaced by a complete new one, or stays unchanged.

New files are written in a staging directory beside their target, synchronised with the disk, and renamed. A command
that is killed leaves its staging directory behind; the next one that writes the same file removes it. The process that
uses a staging directory holds a lock in it, which the system releases when the process ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from uuid import uuid4

from invgp.errors import WriteError
from invgp.operating_system import NO_SPACE, PROBE_BYTES

LONGEST_LABEL = 180  # bytes; for a longer file name, the staging directory has its digest as name
READER_SECONDS = 5.0  # for a process to open a pipe that we write to
LOCK, FILES, PROBE = "lock", "files", "probe"
NO_DIRECTORY_SYNC = (errno.EINVAL, errno.ENOTSUP)  # on some network file systems
NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK)


@contextmanager
def atomic_file(what: str, path: str | Path) -> Iterator[Path]:
    """Provide a path to write to; this file replaces that at `path` when the block ends without an error.

    Parameters
    ----------
    what : str
        Name of the content for error messages, such as ``the report``.
    path : str or Path
        File to replace, or to create with its parent directories. A link is followed. A pipe or a device gets the bytes
        when they are complete.

    Yields
    ------
    Path
        File of the same name in a staging directory.

    Raises
    ------
    WriteError
        The file could not be written; an earlier file at `path` is unchanged.
    """
    with staging_directory(what, path) as directory:
        yield directory / Path(path).name


@contextmanager
def staging_directory(what: str, path: str | Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Provide an empty directory; its files move to the directory of `path` when the block ends without an error.

    For files that belong together, and for libraries that choose the names of their files. All files are on the disk
    before the first one is renamed.

    Parameters
    ----------
    what, path
        As in `atomic_file`.
    overwrite : bool
        Whether files may be replaced; otherwise an existing file is an error.

    Yields
    ------
    Path
        The directory.

    Raises
    ------
    WriteError
        A file could not be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place = TemporaryDirectory() if _is_special(path) else _locked_directory(_resolve_link(path))
        with place as name:
            files = Path(name) / FILES
            files.mkdir()
            try:
                yield files
                _move_all(what, files, path.parent, overwrite=overwrite)
            except OSError as error:  # looked into here: what is staged may be what fills the disk
                raise _write_error(what, path, error, files) from error
    except OSError as error:
        raise _write_error(what, path, error, None) from error


@contextmanager
def library_errors() -> Iterator[None]:
    """Turn what the netCDF library raises when it cannot write, for a full disk a `RuntimeError`, into `OSError`."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(str(error)) from error


def _write_error(what: str, path: Path, error: OSError, directory: Path | None) -> WriteError:
    """Return the error with its cause; some libraries report a full disk as another error."""
    if directory is not None and error.errno not in NO_SPACE:
        for file in (directory / PROBE, *directory.iterdir()):
            try:
                with file.open("ab", buffering=0) as probe:
                    probe.write(bytes(PROBE_BYTES))
                    os.fsync(probe.fileno())
            except OSError as found:
                error = found
                break
    return WriteError(f"{what} could not be written to {str(path)!r}: {error.strerror or error}")


def _is_special(path: Path) -> bool:
    """Return whether a path is not for a regular file: a pipe, a device, an open descriptor."""
    parent = os.path.realpath(path.parent)
    if parent in ("/dev", "/dev/fd") or parent.startswith("/proc/"):  # descriptors: /dev/fd on macOS, or below /proc
        return True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _resolve_link(path: Path) -> Path:
    """Return the target of a link."""
    return Path(os.path.realpath(path))


@contextmanager
def _locked_directory(target: Path) -> Iterator[Path]:
    """Provide a new directory beside a file, which no other process removes while this one is running."""
    _remove_leftovers(target)
    lock = None
    while lock is None:  # another process may take the directory for a leftover before the lock is held
        directory = target.with_name(f"{_prefix(target)}{uuid4().hex}.part")
        directory.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = _acquire_lock(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _remove_leftovers(target: Path) -> None:
    """Remove the staging directories of processes that were killed."""
    ours = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{32}\.part")
    for entry in os.scandir(target.parent):
        if ours.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError):  # another process removes it too, or it is another user's
                lock = _acquire_lock(Path(entry.path), must_hold=True)
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def _acquire_lock(directory: Path, *, must_hold: bool = False) -> int | None:
    """Return the open lock file of a staging directory; None if another process has the lock.

    Some file systems have no locks. A new directory is then used without one, and leftovers stay: with `must_hold`,
    this is an error.
    """
    path = directory / LOCK
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.path.samestat(os.fstat(lock), path.stat())
    except (BlockingIOError, FileNotFoundError):
        held = False
    except OSError:
        held = True
        if must_hold:
            os.close(lock)
            raise
    if held:
        return lock
    os.close(lock)
    return None


def _prefix(target: Path) -> str:
    """Return the start of the names of the staging directories of a file."""
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= LONGEST_LABEL else sha256(name).hexdigest()}."


def _move_all(what: str, files: Path, directory: Path, *, overwrite: bool) -> None:
    """Move files to a directory after all of them are on the disk."""
    staged = sorted(files.iterdir())
    for file in staged:
        if overwrite:
            _copy_permissions(directory / file.name, file)
        _synchronise(file)
    for file in staged:
        target = directory / file.name
        if _is_special(target):
            with file.open("rb") as source, _open_special(target) as sink:
                shutil.copyfileobj(source, sink)
        elif overwrite:
            _replace(what, file, _resolve_link(target))
        else:
            _create(file, target)


def _open_special(path: Path) -> BinaryIO:
    """Open a pipe or a device. A named pipe must have a reader within `READER_SECONDS`."""
    deadline = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(path.stat().st_mode):
                raise
            if time.monotonic() > deadline:
                raise OSError(errno.ENXIO, "it is a pipe, and no process reads from it") from error
            time.sleep(0.02)
        else:
            os.set_blocking(descriptor, True)  # a reader may be slow
            return os.fdopen(descriptor, "wb")


def _copy_permissions(old: Path, new: Path) -> None:
    """Give a new file the permissions, and as far as possible the owner, of the file that it replaces."""
    try:
        was = old.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(was.st_mode):
        return
    if not os.access(old, os.W_OK):  # write-protected: a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with suppress(PermissionError):
        os.chown(new, was.st_uid, was.st_gid)
    new.chmod(stat.S_IMODE(was.st_mode))


def _replace(what: str, file: Path, target: Path) -> None:
    try:
        os.replace(file, target)  # noqa: PTH105 - the atomic one, by name
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with atomic_file(what, target) as part:  # a link led to another disk
            shutil.copyfile(file, part)
    _synchronise(target.parent)


def _create(file: Path, target: Path) -> None:
    """Move a file to a name that must not exist: unlike a rename, a new link never replaces a file."""
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        target.open("xb").close()  # claims the name
        try:
            os.replace(file, target)  # noqa: PTH105
        except OSError:
            target.unlink()
            raise
    _synchronise(target.parent)


def _synchronise(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (error.errno in NO_DIRECTORY_SYNC and path.is_dir()):
            raise
    finally:
        os.close(descriptor)
