# SPDX-License-Identifier: MIT OR Apache-2.0
"""Passes a directory through as file systems of other kinds show it, until it is unmounted.

    mounted.py DIRECTORY MOUNTPOINT [QUIRK...]

Quirks: fold (names ignore case), nfd (names are stored decomposed), no-links (no hard links),
two-seconds (times in steps of two seconds, as FAT has them), layers (no directory can be renamed, as on overlayfs, nor what is
called "other layer"). Extended attributes are not supported.
Inode numbers are FUSE's own: one for each name, and others after each mount.
"""
import errno
import os
import sys
import unicodedata

from fusepy import FUSE, FuseOSError, Operations

TOP, MOUNTPOINT, QUIRKS = sys.argv[1], sys.argv[2], set(sys.argv[3:])


def key(name):
    name = unicodedata.normalize("NFD", name) if "nfd" in QUIRKS else name
    return name.casefold() if "fold" in QUIRKS else name


def stored(path):
    """Returns the real path of an entry, or the one that it would get."""
    at = TOP
    for name in filter(None, path.split("/")):
        name = unicodedata.normalize("NFD", name) if "nfd" in QUIRKS else name
        if not os.path.lexists(os.path.join(at, name)) and os.path.isdir(at):
            name = next((other for other in os.listdir(at) if key(other) == key(name)), name)
        at = os.path.join(at, name)
    return at


class Mounted(Operations):
    def getattr(self, path, fh=None):
        found = os.lstat(stored(path))
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_mtime", "st_atime", "st_ctime")
        attributes = {name: getattr(found, name) for name in names}
        for name in ("st_mtime", "st_atime", "st_ctime"):
            attributes[name] = getattr(found, f"{name}_ns")
        return attributes

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(stored(path))]

    def readlink(self, path):
        return os.readlink(stored(path))

    def mkdir(self, path, mode):
        os.mkdir(stored(path), mode)

    def rmdir(self, path):
        os.rmdir(stored(path))

    def unlink(self, path):
        os.unlink(stored(path))

    def symlink(self, path, to):
        os.symlink(to, stored(path))

    def link(self, path, old):
        if "no-links" in QUIRKS:
            raise FuseOSError(errno.EPERM)
        os.link(stored(old), stored(path))

    def rename(self, old, new):
        source, target = stored(old), stored(new)
        if "layers" in QUIRKS and (os.path.isdir(source) or os.path.basename(source) == "other layer"):
            raise OSError(errno.EXDEV, "")
        wanted = os.path.join(os.path.dirname(target), stored_name(new))
        if source != target and os.path.lexists(target):
            os.replace(source, target)
        else:
            os.rename(source, wanted)

    def chmod(self, path, mode):
        os.chmod(stored(path), mode)

    def chown(self, path, uid, gid):
        os.chown(stored(path), uid, gid, follow_symlinks=False)

    def utimens(self, path, times=None):
        if times and "two-seconds" in QUIRKS:
            times = tuple(time - time % 2_000_000_000 for time in times)
        os.utime(stored(path), ns=times, follow_symlinks=False)

    def truncate(self, path, length, fh=None):
        os.truncate(stored(path), length)

    def create(self, path, mode, info=None):
        return os.open(stored(path), os.O_RDWR | os.O_CREAT, mode)

    def open(self, path, flags):
        return os.open(stored(path), flags & ~(os.O_EXCL | os.O_CREAT))

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def fsync(self, path, datasync, fh):
        os.fsync(fh)

    def release(self, path, fh):
        os.close(fh)

    def statfs(self, path):
        found = os.statvfs(TOP)
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_namemax")
        return {name: getattr(found, name) for name in names}


def stored_name(path):
    name = os.path.basename(path)
    return unicodedata.normalize("NFD", name) if "nfd" in QUIRKS else name


Mounted.use_ns = True
FUSE(Mounted(), MOUNTPOINT, foreground=True, nothreads=True, allow_other=os.getuid() == 0, default_permissions=True)
