# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is copied: made from a seed, thrown out of the page cache before a run, compared after it."""
import dataclasses, hashlib, os, pathlib, random, subprocess

CHUNK = 1 << 20
# Of longhaul's, what belongs at a target after a copy.
OUR_RECORD = ".longhaul-manifest"


@dataclasses.dataclass
class Job:
    """A directory whose contents are copied into another."""
    name: str
    root: pathlib.Path
    bytes: int
    files: int
    digests: dict

    def entries(self):
        return sorted(self.root.iterdir())

    def paths(self):
        """Relative to the directory."""
        return list(self.digests)


def sizes(name, quick, large, long):
    """(path, bytes) of each file of a job."""
    if name in ("large", "long", "short"):
        whole = {"large": large, "long": long, "short": 64_000_000}[name]
        return [(f"{name}.bin", whole // (20 if quick else 1))]
    if name == "small":
        return [(f"{n // 1000}/{n:05}.dat", 20_000) for n in range(500 if quick else 10_000)]
    if name == "tree":
        return list(checkout(random.Random(7), 400 if quick else 8_000))
    raise KeyError(name)


def checkout(dice, files):
    """Like a checkout of sources: most files of some KB, some of hundreds, a dozen to a directory, up to six deep."""
    directories = [""]
    for n in range(files):
        if n % 12 == 0:
            parent = dice.choice([d for d in directories[-200:] if d.count("/") < 6] or [""])
            directories.append(f"{parent}module{n // 12}/")
        yield f"{directories[-1]}file{n}.c", max(1, int(dice.lognormvariate(8.3, 1.4)))


def make(name, place, quick, large, long):
    """Random bytes: nothing that compresses gains here."""
    root, digests, total = place / name, {}, 0
    for number, (path, size) in enumerate(sizes(name, quick, large, long)):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        digests[path] = fill(file, size, random.Random(f"{name}-{number}"))
        total += size
    sync(root)
    return Job(name, root, total, len(digests), digests)


def fill(file, size, dice):
    digest = hashlib.sha256()
    with open(file, "wb") as out:
        for begin in range(0, size, CHUNK):
            block = dice.randbytes(min(CHUNK, size - begin))
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def sync(directory):
    """All of the file system that it is on."""
    subprocess.run(["sync", "-f", directory], check=True)


def forget(job):
    """Its data leaves the page cache; names and inodes stay."""
    for path in job.paths():
        descriptor = os.open(job.root / path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def differences(job, target):
    """What is wrong at the target, and what is there besides; nothing if it is the copy that was asked for."""
    found = {str(file.relative_to(target)): file for file in target.rglob("*") if file.is_file()}
    found.pop(OUR_RECORD, None)
    wrong = [f"missing {path}" for path in job.digests.keys() - found.keys()]
    wrong += [f"differs: {path}" for path in job.digests.keys() & found.keys() if digest(found[path]) != job.digests[path]]
    return sorted(wrong), sorted(found.keys() - job.digests.keys())


def digest(file):
    found = hashlib.sha256()
    with open(file, "rb") as data:
        while block := data.read(CHUNK):
            found.update(block)
    return found.hexdigest()
