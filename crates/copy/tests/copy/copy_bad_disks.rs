// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real disks with unreadable blocks, at the source and at the target. Unreadable files are named, the rest is copied, and
//! the same command completes the copy when the disk is readable again.

use crate::copy_testbed::{
    BLOCK, LoopbackTestbed,
    disk::Disk,
    durable::internal_name,
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
use longhaul_testprograms::skip;
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

/// Size of a disk's blocks, in bytes.
const SECTOR: u64 = 4096;
/// Size of a disk, in bytes.
const DISK: u64 = 64 << 20;

/// Free space on a disk, in bytes. All of it lies before the unreadable part.
const FREE: u64 = 8 << 20;

/// Ext4 file system in an image file, on a loop device in a mount namespace of its own. The end of the image is cut off,
/// so that reads there fail with EIO.
struct BadDisk {
    disk: Disk,
    image: PathBuf,
    /// Offset and bytes of the part that is cut off.
    cut: (u64, Vec<u8>),
}

impl BadDisk {
    /// Creates a disk with the contents of `tree`, and with the file `bad` under `name`, which is unreadable from the offset
    /// `readable` on. No free space is left after that, because a new file there would make the image longer again.
    fn new(
        testbed: &LoopbackTestbed,
        tree: &Path,
        (name, bad): (&str, &Path),
        readable: u64,
    ) -> Self {
        let (image, at) = (testbed.path("image"), testbed.path("disk"));
        fs::create_dir(&at).unwrap();
        File::create(&image).unwrap().set_len(DISK).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0", "-b", &SECTOR.to_string(), "-d"]);
        run_command(mkfs.arg(tree).arg(&image));
        let (room, rest) = (testbed.path("room"), testbed.path("rest"));
        fs::write(&room, bytes(100, FREE)).unwrap();
        let debug = |commands: &str| debugfs(&image, commands);
        debug(&format!(
            "write {} room\nwrite {} {name}",
            room.display(),
            bad.display()
        ));
        // The blocks of its extent tree need some space too.
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
        disk.cut_image();
        disk
    }

    fn cut_image(&mut self) {
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

    /// Restores the image, so that all of it is readable.
    fn restore(&self) {
        let (from, tail) = &self.cut;
        let file = File::options().write(true).open(&self.image).unwrap();
        assert_eq!(
            file.metadata().unwrap().len(),
            *from,
            "the disk was written beyond the cut"
        );
        file.write_all_at(tail, *from).unwrap();
    }

    /// Copies, and returns the exit code, the bytes sent, and standard error.
    fn copy(
        &self,
        testbed: &LoopbackTestbed,
        from: &Path,
        to: &Path,
    ) -> (Option<i32>, u64, String) {
        let output = self.disk.copy(testbed, from, to);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sent = done["sent_bytes"].as_u64().unwrap_or(u64::MAX);
        (output.status.code(), sent, stderr)
    }
}

fn run_command(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs commands in debugfs(8), and returns its output.
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

/// Creates some small files.
fn make_small_files(top: &Path) {
    fs::create_dir(top).unwrap();
    for number in 0..5 {
        fs::write(top.join(format!("small-{number}")), bytes(number, 1000)).unwrap();
    }
}

fn assert_small_files_same(from: &Path, to: &Path) {
    for number in 0..5 {
        let name = format!("small-{number}");
        let same = fs::read(from.join(&name)).unwrap() == fs::read(to.join(&name)).unwrap();
        assert!(same, "{name}");
    }
}

/// Creates the files that a killed copy leaves in `to` after all data is durable: the part file and its journal.
fn create_complete_part(large: &Path, to: &Path) {
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
        panic!("something is there already");
    };
    let (blocks, contents) = (Blocks::new(version.size), fs::read(large).unwrap());
    for (index, block) in (0..).zip(contents.chunks(BLOCK as usize)) {
        let hash = blocks.hash(index, block).unwrap();
        assert!(part.write(index, block, Some(hash)).unwrap());
    }
    part.commit().unwrap();
}

#[test]
fn names_unreadable_source_files_and_copies_the_rest() {
    if !skip::require_root_of_the_machine() {
        return;
    }
    let testbed = LoopbackTestbed::new();
    let (small, large, to) = (
        testbed.path("small"),
        testbed.path("large"),
        testbed.path("to"),
    );
    make_small_files(&small);
    fs::write(&large, bytes(7, 4 * BLOCK)).unwrap();
    let disk = BadDisk::new(&testbed, &small, ("large", &large), 2 * BLOCK + 8192);
    let (code, _, stderr) = disk.copy(&testbed, &disk.disk.at, &to);
    assert_eq!(code, Some(1), "{stderr}");
    for name in ["large", "rest"] {
        let reports_it =
            |line: &&str| line.contains(&format!("{name}: ")) && line.contains("Input/output");
        assert_eq!(stderr.lines().filter(reports_it).count(), 1, "{stderr}");
        assert!(!to.join(name).exists());
    }
    assert_small_files_same(&small, &to);
    disk.restore();
    let (code, _, stderr) = disk.copy(&testbed, &disk.disk.at, &to);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    tree::assert_same(&disk.disk.outside_path(), &to, "restored");
    assert_eq!(tree::remaining_internal_files(&to), Vec::<PathBuf>::new());
}

/// The target verifies the blocks of an earlier run before it renames the file to its final name.
#[test]
fn does_not_finish_files_with_unreadable_blocks_of_an_earlier_run() {
    if !skip::require_root_of_the_machine() {
        return;
    }
    for (kind, readable, reason) in [
        ("part", BLOCK + 8192, "cannot read it again"),
        ("journal", 0, "cannot read its journal"),
    ] {
        let large = |path: &Path| fs::write(path, bytes(7, 3 * BLOCK + 5)).unwrap();
        assert_not_finished(large, (kind, readable), reason);
    }
}

/// The blocks after the unreadable one are holes, which need no read.
#[test]
fn detects_a_single_unreadable_block_of_an_earlier_run() {
    if !skip::require_root_of_the_machine() {
        return;
    }
    for place in 0..4 {
        let large = |path: &Path| {
            fs::write(path, bytes(7, (place + 1) * BLOCK)).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(4 * BLOCK).unwrap();
        };
        let bad = ("part", place * BLOCK + 8192);
        assert_not_finished(large, bad, "cannot read it again");
    }
}

/// Resumes a copy of a large file, whose part file or journal (`kind`) is unreadable from the offset `readable` on.
fn assert_not_finished(make_large: impl Fn(&Path), (kind, readable): (&str, u64), reason: &str) {
    let testbed = LoopbackTestbed::new();
    let (from, there) = (testbed.path("from"), testbed.path("there"));
    make_small_files(&from);
    make_large(&from.join("large"));
    fs::create_dir(&there).unwrap();
    create_complete_part(&from.join("large"), &there);
    let name = internal_name(Path::new("large"), kind);
    let bad = testbed.path("bad");
    fs::rename(there.join(&name), &bad).unwrap();
    let disk = BadDisk::new(&testbed, &there, (&name, &bad), readable);
    let (code, _, stderr) = disk.copy(&testbed, &from, &disk.disk.at);
    assert_eq!(code, Some(1), "{kind} from {readable}: {stderr}");
    let wanted = format!("longhaul: target: large: {reason}: Input/output error");
    assert!(stderr.starts_with(&wanted), "{stderr}");
    assert!(!disk.disk.outside_path().join("large").exists());
    assert_small_files_same(&from, &disk.disk.outside_path());
    disk.restore();
    let (code, sent, stderr) = disk.copy(&testbed, &from, &disk.disk.at);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    assert_eq!(sent, 0, "all was there");
    let same = fs::read(from.join("large")).unwrap()
        == fs::read(disk.disk.outside_path().join("large")).unwrap();
    assert!(same);
}

/// The files are copied, but their hashes are not recorded. A message and the exit code say so.
#[test]
fn names_an_unreadable_manifest_and_keeps_it() {
    if !skip::require_root_of_the_machine() {
        return;
    }
    let testbed = LoopbackTestbed::new();
    let (from, there, to) = (
        testbed.path("from"),
        testbed.path("there"),
        testbed.path("to"),
    );
    make_small_files(&from);
    fs::create_dir(&there).unwrap();
    let copied = finish(testbed.start(&[], &from.join(""), &to));
    assert!(copied.status.success());
    fs::write(from.join("new"), "new").unwrap();
    let disk = BadDisk::new(&testbed, &there, (MANIFEST, &to.join(MANIFEST)), 0);
    let (code, _, stderr) = disk.copy(&testbed, &from, &disk.disk.at);
    assert_eq!(code, Some(1), "{stderr}");
    let wanted = "no record of hashes is kept: cannot read .longhaul-manifest: Input/output error";
    assert!(stderr.contains(wanted), "{stderr}");
    assert_small_files_same(&from, &disk.disk.outside_path());
    disk.restore();
    let manifest =
        Manifest::load(&Dir::new(File::open(disk.disk.outside_path()).unwrap().as_fd()).unwrap());
    assert_eq!(manifest.unwrap().iter().count(), 5);
}
