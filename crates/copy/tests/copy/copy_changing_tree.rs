// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of a tree that changes all the time: files grow, shrink, disappear, become directories, links or fifos, and are
//! renamed. Nothing hangs, nothing is read or written outside the tree, and a second run copies the final state.

use crate::copy_testbed::{
    BLOCK, LoopbackTestbed, finish,
    tree::{self, bytes},
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Child,
};

const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// Contents of a file outside the tree, which must not be copied.
const SECRET: &[u8] = b"what is outside is not to be copied";

/// Random changes of a tree.
struct RandomChanges {
    top: PathBuf,
    outside: PathBuf,
    random: Xoshiro256PlusPlus,
    done: u64,
}

impl RandomChanges {
    /// Creates a tree of some directories, many small files and some files of several blocks.
    fn new(testbed: &LoopbackTestbed, seed: u64) -> Self {
        let changes = Self {
            top: testbed.path("from"),
            outside: testbed.path("outside"),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            done: 0,
        };
        fs::create_dir(&changes.outside).unwrap();
        fs::write(changes.outside.join("secret"), SECRET).unwrap();
        for directory in 0..8 {
            let directory = changes.top.join(format!("d{directory}"));
            fs::create_dir_all(directory.join("deep")).unwrap();
            for file in 0..30 {
                fs::write(directory.join(format!("f{file}")), bytes(file, 500 + file)).unwrap();
            }
        }
        for large in 0..4 {
            let path = changes.top.join(format!("d{large}/large"));
            fs::write(path, bytes(large, 2 * BLOCK + 11 + large)).unwrap();
        }
        changes
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    /// Returns a random path in the tree, which may or may not exist.
    fn random_path(&mut self) -> PathBuf {
        let number = self.below(8);
        let directory = self.top.join(format!("d{number}"));
        match self.below(40) {
            0 => directory,
            1 => directory.join("deep"),
            2 => directory.join("large"),
            3..7 => directory.join(format!("deep/n{}", self.below(8))),
            _ => directory.join(format!("f{}", self.below(34))),
        }
    }

    /// Makes a random change at a random path. An impossible change has no effect.
    fn change(&mut self) {
        let (random_path, other) = (self.random_path(), self.random_path());
        self.done += 1;
        // A symbolic link of an earlier change could lead outside the tree.
        let inside = |random_path: &Path| {
            let around = fs::canonicalize(random_path.parent().unwrap());
            around.is_ok_and(|around| around.starts_with(&self.top))
        };
        if !inside(&random_path) || !inside(&other) {
            return;
        }
        // All lengths differ, so that each changed file differs in more than its time.
        let length = 1000 + self.done * 3;
        let outside = match self.below(2) {
            0 => self.outside.clone(),
            _ => self.outside.join("secret"),
        };
        let _impossible = match self.below(12) {
            0 | 1 => cut(&random_path, length % 977),
            2 | 3 => grow(&random_path, length),
            4 => fs::rename(&random_path, &other),
            5 => clear(&random_path),
            6 => clear(&random_path).and_then(|()| fs::create_dir_all(&random_path)),
            7 => clear(&random_path).and_then(|()| symlink(outside, &random_path)),
            8 => clear(&random_path).and_then(|()| fifo(&random_path)),
            9 => fs::hard_link(&random_path, &other),
            10 => fs::create_dir(&random_path),
            _ => {
                clear(&random_path).and_then(|()| fs::write(&random_path, bytes(self.done, length)))
            }
        };
    }

    /// Makes changes until the copy ends, and returns their number.
    fn change_until_end(&mut self, copy: &mut Child) -> u64 {
        let before = self.done;
        while copy.try_wait().unwrap().is_none() {
            self.change();
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        self.done - before
    }
}

fn is_no_file(random_path: &Path) -> bool {
    fs::symlink_metadata(random_path).is_ok_and(|meta| !meta.is_file())
}

/// Truncates regular files only: opening a fifo would block, and a link may point outside the tree.
fn cut(random_path: &Path, length: u64) -> io::Result<()> {
    if is_no_file(random_path) {
        Ok(())
    } else {
        File::options()
            .write(true)
            .open(random_path)?
            .set_len(length)
    }
}

fn grow(random_path: &Path, length: u64) -> io::Result<()> {
    if is_no_file(random_path) {
        Ok(())
    } else {
        fs::write(random_path, bytes(length, length))
    }
}

fn clear(random_path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(random_path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(random_path),
        Ok(_) => fs::remove_file(random_path),
        Err(_) => Ok(()),
    }
}

fn fifo(random_path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, random_path, FileType::Fifo, Mode::RUSR, 0)?)
}

/// Removes entries that are a directory on one side only. A copy does not replace these, and its error message says to
/// remove them.
fn remove_conflicting_entries(from: &Path, to: &Path) {
    let is_dir = |path: PathBuf| Some(fs::symlink_metadata(path).ok()?.is_dir());
    for path in tree::walk(to) {
        let (here, there) = (is_dir(from.join(&path)), is_dir(to.join(&path)));
        if here.is_some() && there.is_some() && here != there {
            clear(&to.join(&path)).unwrap();
        }
    }
}

fn has_the_secret(top: &Path) -> bool {
    let files = tree::walk(top).into_iter().map(|path| top.join(path));
    let mut files = files.filter(|path| fs::symlink_metadata(path).unwrap().is_file());
    files.any(|path| fs::read(path).unwrap() == SECRET)
}

fn assert_second_run_completes(seed: u64) {
    let testbed = LoopbackTestbed::new();
    let mut random_changes = RandomChanges::new(&testbed, seed);
    let (from, to) = (random_changes.top.clone(), testbed.path("to"));
    let outside = tree::listing(&random_changes.outside);
    let mut copy = testbed.start(&["--limit", "200mbit"], &from.join(""), &to);
    let changes = random_changes.change_until_end(&mut copy);
    let output = finish(copy);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        matches!(output.status.code(), Some(0 | 1 | 24)),
        "seed {seed}: {stderr}"
    );
    assert!(
        !stderr.contains("panicked") && changes > 100,
        "seed {seed}, {changes}: {stderr}"
    );
    assert!(!has_the_secret(&to), "seed {seed}");
    remove_conflicting_entries(&from, &to);
    let output = finish(testbed.start(&["--delete", "--max-delete", "100%"], &from.join(""), &to));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), &stderr[..]),
        (Some(0), ""),
        "seed {seed}"
    );
    tree::assert_same(&from, &to, &format!("seed {seed}"));
    assert_eq!(
        tree::remaining_internal_files(&to),
        Vec::<PathBuf>::new(),
        "seed {seed}"
    );
    assert_eq!(
        tree::listing(&random_changes.outside),
        outside,
        "seed {seed}"
    );
    assert_eq!(
        fs::read(random_changes.outside.join("secret")).unwrap(),
        SECRET
    );
}

#[test]
fn second_run_completes_a_copy_of_a_changing_tree() {
    SEEDS.into_iter().for_each(assert_second_run_completes);
}
