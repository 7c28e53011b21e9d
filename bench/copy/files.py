# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files to copy: created from a seed, dropped from the page cache before a copy, compared after it."""
import os, pathlib, random, subprocess

CHUNK = 1 << 20
# The file that longhaul itself leaves at a target.
MANIFEST = ".longhaul-manifest"


class Job:
    """A directory whose contents are copied into another."""

    def __init__(self, name, scale, parent):
        self.root = root = parent / f"{name}-{scale:g}"
        sizes = list(file_sizes(name, scale))
        self.bytes, self.paths = sum(size for _, size in sizes), [path for path, _ in sizes]
        # Made once for all copies.
        marker = parent / f"{root.name}.complete"
        if marker.exists():
            return
        for number, (path, size) in enumerate(sizes):
            write_random(root / path, size, random.Random(f"{name}-{number}"))
        sync(root)
        marker.touch()

    def entries(self):
        return sorted(self.root.iterdir())

    def drop_from_page_cache(self):
        """Drops the data from the page cache. Names and inodes stay."""
        for path in self.paths:
            descriptor = os.open(self.root / path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def differences(self, target):
        """Describes how a copy differs; an empty text if it does not."""
        done = subprocess.run(["diff", "-rq", "-x", MANIFEST, self.root, target], capture_output=True, text=True)
        return done.stdout + done.stderr


def file_sizes(name, scale):
    """Yields (path, bytes) of each file of a job, at this share of its full size."""
    sizes = {"long": 8_000_000_000, "large": 2_000_000_000}
    if name in sizes:
        yield f"{name}.bin", int(sizes[name] * scale)
    elif name == "small":
        yield from ((f"{n // 1000}/{n:05}.dat", 20_000) for n in range(int(10_000 * scale)))
    else:
        yield from source_tree(random.Random(7), int(8_000 * scale))


def source_tree(generator, files):
    """Sizes as in a checkout of sources: most files have some KB, some hundreds; 12 files in a directory, up to six levels."""
    directories = [""]
    for n in range(files):
        if n % 12 == 0:
            parent = generator.choice([path for path in directories[-200:] if path.count("/") < 6] or [""])
            directories.append(f"{parent}module{n // 12}/")
        yield f"{directories[-1]}file{n}.c", max(1, int(generator.lognormvariate(8.3, 1.4)))


def write_random(file, size, generator):
    """Writes random bytes, so that no tool gains by compression."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as out:
        for begin in range(0, size, CHUNK):
            out.write(generator.randbytes(min(CHUNK, size - begin)))


def sync(directory: pathlib.Path):
    """Syncs the file system of a directory."""
    subprocess.run(["sync", "-f", directory], check=True)
