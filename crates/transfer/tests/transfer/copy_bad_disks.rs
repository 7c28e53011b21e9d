// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that cannot be read in places: at the source and at the target, real ones. What cannot be read is named, the
//! rest goes on, and the same command completes the copy when it can.

use crate::copy_testbed::{
    BLOCK, Ground,
    disk::Disk,
    durable::own_name,
    finish,
    tree::{self, bytes},
};
use longhaul_store::{
    blocks::Blocks,
    entry::Version,
    manifest::{MANIFEST, Manifest},
    part::{OpenOutcome, Part, SourceInfo},
    vfs::Dir,
};
use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Bytes of a disk's blocks, and of the disk.
const SECTOR: u64 = 4096;
const DISK: u64 = 64 << 20;

/// What is free on a disk, all of it before what cannot be read.
const FREE: u64 = 8 << 20;

/// An ext4 file system in a file, by a loop device in a mount namespace of its own, which goes with it. The file's end is
/// cut off, and what stood there gives EIO.
struct BadDisk {
    disk: Disk,
    image: PathBuf,
    /// What is cut off, and where.
    cut: (u64, Vec<u8>),
}

impl BadDisk {
    /// A disk with what is in `tree`, and with the file `bad` under `name`, of which what stands from `readable` on cannot
    /// be read. No room is left behind that, where something new would make it readable again.
    fn new(ground: &Ground, tree: &Path, (name, bad): (&str, &Path), readable: u64) -> Self {
        let (image, at) = (ground.path("image"), ground.path("disk"));
        fs::create_dir(&at).unwrap();
        File::create(&image).unwrap().set_len(DISK).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0", "-b", &SECTOR.to_string(), "-d"]);
        said(mkfs.arg(tree).arg(&image));
        let (room, rest) = (ground.path("room"), ground.path("rest"));
        fs::write(&room, bytes(100, FREE)).unwrap();
        let debug = |commands: &str| debugfs(&image, commands);
        debug(&format!(
            "write {} room\nwrite {} {name}",
            room.display(),
            bad.display()
        ));
        // Blocks of its extent tree need a few more.
        let free = free_sectors(&image).saturating_sub(8);
        fs::write(&rest, bytes(101, free * SECTOR)).unwrap();
        debug(&format!("write {} rest\nrm room", rest.display()));
        let sector = debug(&format!("bmap {name} {}", readable / SECTOR));
        let sector: u64 = sector.lines().last().unwrap().trim().parse().unwrap();
        let mut disk = Self {
            disk: Disk::mount(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at),
            image,
            cut: (sector * SECTOR, Vec::new()),
        };
        disk.break_it();
        disk
    }

    fn break_it(&mut self) {
        let (from, tail) = &mut self.cut;
        let file = File::options()
            .read(true)
            .write(true)
            .open(&self.image)
            .unwrap();
        tail.resize((DISK - *from) as usize, 0);
        file.read_exact_at(tail, *from).unwrap();
        file.set_len(*from).unwrap();
    }

    /// Makes all of it readable.
    fn mend(&self) {
        let (from, tail) = &self.cut;
        let file = File::options().write(true).open(&self.image).unwrap();
        assert_eq!(
            file.metadata().unwrap().len(),
            *from,
            "something was written behind"
        );
        file.write_all_at(tail, *from).unwrap();
    }

    /// The exit code, bytes that were sent, and what was said.
    fn copy(&self, ground: &Ground, from: &Path, to: &Path) -> (Option<i32>, u64, String) {
        let output = self.disk.copy(ground, from, to);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sent = done["sent_bytes"].as_u64().unwrap_or(u64::MAX);
        (output.status.code(), sent, said)
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What debugfs(8) says to some commands.
fn debugfs(image: &Path, commands: &str) -> String {
    let mut command = Command::new("debugfs");
    command.args(["-w", "-f", "-"]).arg(image);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    writeln!(to, "{commands}").unwrap();
    drop(to);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{commands}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn free_sectors(image: &Path) -> u64 {
    let stats = debugfs(image, "stats -h");
    let free = stats
        .lines()
        .find_map(|line| line.strip_prefix("Free blocks:"));
    free.unwrap().trim().parse().unwrap()
}

/// Some small files.
fn make_small(top: &Path) {
    fs::create_dir(top).unwrap();
    for number in 0..5 {
        fs::write(top.join(format!("small-{number}")), bytes(number, 1000)).unwrap();
    }
}

fn small_are_same(from: &Path, to: &Path) {
    for number in 0..5 {
        let name = format!("small-{number}");
        let same = fs::read(from.join(&name)).unwrap() == fs::read(to.join(&name)).unwrap();
        assert!(same, "{name}");
    }
}

/// Of a file on its way, all that a killed copy made durable: the part and its journal in `to`.
fn all_but_its_name(large: &Path, to: &Path) {
    let file = File::open(large).unwrap();
    let version = Version::of_file(&file).unwrap();
    let sparse = file.metadata().unwrap().blocks() * 512 < version.size;
    let dir = Dir::new(File::open(to).unwrap().as_fd()).unwrap();
    let origin = SourceInfo {
        version: (&version).into(),
        length: version.size,
        sparse,
    };
    let OpenOutcome::Fresh(part) = Part::open(&dir, b"large", &origin).unwrap() else {
        panic!("there is something already");
    };
    let (blocks, contents) = (Blocks::new(version.size), fs::read(large).unwrap());
    for (index, block) in (0..).zip(contents.chunks(BLOCK as usize)) {
        let hash = blocks.hash(index, block).unwrap();
        assert!(part.write(index, block, Some(hash)).unwrap());
    }
    part.commit().unwrap();
}

/// Root of the machine, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
fn is_root() -> bool {
    longhaul_testbed::skip::unless(
        !longhaul_testbed::skip::is_confined(),
        "root of the machine",
    )
}

#[test]
fn a_source_file_that_cannot_be_read_is_named_and_the_rest_goes_on() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let (small, large, to) = (
        ground.path("small"),
        ground.path("large"),
        ground.path("to"),
    );
    make_small(&small);
    fs::write(&large, bytes(7, 4 * BLOCK)).unwrap();
    let disk = BadDisk::new(&ground, &small, ("large", &large), 2 * BLOCK + 8192);
    let (code, _, said) = disk.copy(&ground, &disk.disk.at, &to);
    assert_eq!(code, Some(1), "{said}");
    for name in ["large", "rest"] {
        let of = |line: &&str| line.contains(&format!("{name}: ")) && line.contains("Input/output");
        assert_eq!(said.lines().filter(of).count(), 1, "{said}");
        assert!(!to.join(name).exists());
    }
    small_are_same(&small, &to);
    disk.mend();
    let (code, _, said) = disk.copy(&ground, &disk.disk.at, &to);
    assert_eq!((code, &said[..]), (Some(0), ""));
    tree::assert_same(&disk.disk.seen(), &to, "mended");
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new());
}

/// The target reads again what an earlier run wrote, before it gets its name.
#[test]
fn what_an_earlier_run_wrote_and_cannot_be_read_gets_no_name() {
    if !is_root() {
        return;
    }
    for (kind, readable, said_of_it) in [
        ("part", BLOCK + 8192, "cannot read it again"),
        ("journal", 0, "cannot read its journal"),
    ] {
        let large = |path: &Path| fs::write(path, bytes(7, 3 * BLOCK + 5)).unwrap();
        gets_no_name(large, (kind, readable), said_of_it);
    }
}

/// The blocks behind it are holes, which no disk has to read.
#[test]
fn one_block_of_an_earlier_run_that_cannot_be_read_is_enough() {
    if !is_root() {
        return;
    }
    for place in 0..4 {
        let large = |path: &Path| {
            fs::write(path, bytes(7, (place + 1) * BLOCK)).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(4 * BLOCK).unwrap();
        };
        let bad = ("part", place * BLOCK + 8192);
        gets_no_name(large, bad, "cannot read it again");
    }
}

/// Copies what an earlier run made durable of a large file, where what it left of that `kind` cannot be read from there on.
fn gets_no_name(make_large: impl Fn(&Path), (kind, readable): (&str, u64), said_of_it: &str) {
    let ground = Ground::new();
    let (from, there) = (ground.path("from"), ground.path("there"));
    make_small(&from);
    make_large(&from.join("large"));
    fs::create_dir(&there).unwrap();
    all_but_its_name(&from.join("large"), &there);
    let name = own_name(Path::new("large"), kind);
    let bad = ground.path("bad");
    fs::rename(there.join(&name), &bad).unwrap();
    let disk = BadDisk::new(&ground, &there, (&name, &bad), readable);
    let (code, _, said) = disk.copy(&ground, &from, &disk.disk.at);
    assert_eq!(code, Some(1), "{kind} from {readable}: {said}");
    let wanted = format!("longhaul: large: {said_of_it}: Input/output error");
    assert!(said.starts_with(&wanted), "{said}");
    assert!(!disk.disk.seen().join("large").exists());
    small_are_same(&from, &disk.disk.seen());
    disk.mend();
    let (code, sent, said) = disk.copy(&ground, &from, &disk.disk.at);
    assert_eq!((code, &said[..]), (Some(0), ""));
    assert_eq!(sent, 0, "all was there");
    let same =
        fs::read(from.join("large")).unwrap() == fs::read(disk.disk.seen().join("large")).unwrap();
    assert!(same);
}

/// Files are copied without a record of hashes then, and that is said, also by the exit code.
#[test]
fn a_manifest_that_cannot_be_read_is_named_and_left_as_it_is() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let (from, there, to) = (ground.path("from"), ground.path("there"), ground.path("to"));
    make_small(&from);
    fs::create_dir(&there).unwrap();
    let copied = finish(ground.start(&[], &from.join(""), &to));
    assert!(copied.status.success());
    fs::write(from.join("new"), "new").unwrap();
    let disk = BadDisk::new(&ground, &there, (MANIFEST, &to.join(MANIFEST)), 0);
    let (code, _, said) = disk.copy(&ground, &from, &disk.disk.at);
    assert_eq!(code, Some(1), "{said}");
    let wanted = "no record of hashes is kept: cannot read .longhaul-manifest: Input/output error";
    assert!(said.contains(wanted), "{said}");
    small_are_same(&from, &disk.disk.seen());
    disk.mend();
    let manifest =
        Manifest::load(&Dir::new(File::open(disk.disk.seen()).unwrap().as_fd()).unwrap());
    assert_eq!(manifest.unwrap().iter().count(), 5);
}
