# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files to copy: created from a seed, dropped from the page cache before a run, compared after it."""
import dataclasses, hashlib, os, pathlib, random, subprocess

CHUNK = 1 << 20
# The file that longhaul itself leaves at a target.
MANIFEST = ".longhaul-manifest"


@dataclasses.dataclass
class Job:
    """A directory whose contents are copied into another, with the SHA-256 of each file."""
    name: str
    root: pathlib.Path
    bytes: int
    files: int
    digests: dict

    def entries(self):
        return sorted(self.root.iterdir())

    def paths(self):
        """Paths of the files, relative to the directory."""
        return list(self.digests)


def file_sizes(name, quick, large, long):
    """Returns (path, bytes) of each file of a job."""
    if name in ("large", "long", "short"):
        size = {"large": large, "long": long, "short": 64_000_000}[name]
        return [(f"{name}.bin", size // (20 if quick else 1))]
    if name == "small":
        return [(f"{n // 1000}/{n:05}.dat", 20_000) for n in range(500 if quick else 10_000)]
    if name == "tree":
        return list(source_tree(random.Random(7), 400 if quick else 8_000))
    raise KeyError(name)


def source_tree(generator, files):
    """Sizes as in a checkout of sources: most files have some KB, some hundreds; 12 files in a directory, up to six levels."""
    directories = [""]
    for n in range(files):
        if n % 12 == 0:
            parent = generator.choice([path for path in directories[-200:] if path.count("/") < 6] or [""])
            directories.append(f"{parent}module{n // 12}/")
        yield f"{directories[-1]}file{n}.c", max(1, int(generator.lognormvariate(8.3, 1.4)))


def create(name, parent, quick, large, long):
    """Creates the files of a job, of random bytes, so that no tool gains by compression."""
    root, digests, total = parent / name, {}, 0
    for number, (path, size) in enumerate(file_sizes(name, quick, large, long)):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        digests[path] = write_random(file, size, random.Random(f"{name}-{number}"))
        total += size
    sync(root)
    return Job(name, root, total, len(digests), digests)


def write_random(file, size, generator):
    """Writes random bytes and returns their SHA-256."""
    digest = hashlib.sha256()
    with open(file, "wb") as out:
        for begin in range(0, size, CHUNK):
            block = generator.randbytes(min(CHUNK, size - begin))
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def sync(directory):
    """Syncs the file system of a directory."""
    subprocess.run(["sync", "-f", directory], check=True)


def drop_from_page_cache(job):
    """Drops the data of a job from the page cache. Names and inodes stay."""
    for path in job.paths():
        descriptor = os.open(job.root / path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def differences(job, target):
    """Returns the missing and differing files at the target, and the files that the source does not have."""
    files = {str(file.relative_to(target)): file for file in target.rglob("*") if file.is_file()}
    files.pop(MANIFEST, None)
    wrong = [f"missing: {path}" for path in job.digests.keys() - files.keys()]
    wrong += [f"differs: {path}" for path in job.digests.keys() & files.keys() if file_digest(files[path]) != job.digests[path]]
    return sorted(wrong), sorted(files.keys() - job.digests.keys())


def file_digest(file):
    result = hashlib.sha256()
    with open(file, "rb") as data:
        while block := data.read(CHUNK):
            result.update(block)
    return result.hexdigest()
