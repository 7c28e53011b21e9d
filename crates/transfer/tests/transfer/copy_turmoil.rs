// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree in which everything changes while it is copied: files grow, shrink, go, come back as directories, links and
//! fifos, and change places. Nothing hangs, nothing is read or written outside, and a second run copies what is there then.

use crate::copy_testbed::{
    BLOCK, Ground, finish,
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

/// What may only be read where it is.
const SECRET: &[u8] = b"what is outside is not to be copied";

/// Somebody who changes a tree.
struct Turmoil {
    top: PathBuf,
    outside: PathBuf,
    random: Xoshiro256PlusPlus,
    done: u64,
}

impl Turmoil {
    /// A tree of some directories, many small files and some of several blocks.
    fn new(ground: &Ground, seed: u64) -> Self {
        let turmoil = Self {
            top: ground.path("from"),
            outside: ground.path("outside"),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            done: 0,
        };
        fs::create_dir(&turmoil.outside).unwrap();
        fs::write(turmoil.outside.join("secret"), SECRET).unwrap();
        for directory in 0..8 {
            let directory = turmoil.top.join(format!("d{directory}"));
            fs::create_dir_all(directory.join("deep")).unwrap();
            for file in 0..30 {
                fs::write(directory.join(format!("f{file}")), bytes(file, 500 + file)).unwrap();
            }
        }
        for large in 0..4 {
            let path = turmoil.top.join(format!("d{large}/large"));
            fs::write(path, bytes(large, 2 * BLOCK + 11 + large)).unwrap();
        }
        turmoil
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    /// Some place in the tree, where there may be anything or nothing.
    fn place(&mut self) -> PathBuf {
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

    /// Does something to some place; what is impossible there is not done.
    fn change(&mut self) {
        let (place, other) = (self.place(), self.place());
        self.done += 1;
        // By a link of its own making it would get out.
        let inside = |place: &Path| {
            let around = fs::canonicalize(place.parent().unwrap());
            around.is_ok_and(|around| around.starts_with(&self.top))
        };
        if !inside(&place) || !inside(&other) {
            return;
        }
        // No two of a length: what was changed differs in more than its time.
        let length = 1000 + self.done * 3;
        let outside = match self.below(2) {
            0 => self.outside.clone(),
            _ => self.outside.join("secret"),
        };
        let _impossible = match self.below(12) {
            0 | 1 => cut(&place, length % 977),
            2 | 3 => grow(&place, length),
            4 => fs::rename(&place, &other),
            5 => clear(&place),
            6 => clear(&place).and_then(|()| fs::create_dir_all(&place)),
            7 => clear(&place).and_then(|()| symlink(outside, &place)),
            8 => clear(&place).and_then(|()| fifo(&place)),
            9 => fs::hard_link(&place, &other),
            10 => fs::create_dir(&place),
            _ => clear(&place).and_then(|()| fs::write(&place, bytes(self.done, length))),
        };
    }

    /// Until the copy ends; it had to do with so many changes.
    fn rage(&mut self, copy: &mut Child) -> u64 {
        let before = self.done;
        while copy.try_wait().unwrap().is_none() {
            self.change();
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        self.done - before
    }
}

fn is_no_file(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|meta| !meta.is_file())
}

/// Only files: whoever opens a fifo waits, and what a link points to is not ours.
fn cut(place: &Path, length: u64) -> io::Result<()> {
    match is_no_file(place) {
        true => Ok(()),
        false => File::options().write(true).open(place)?.set_len(length),
    }
}

fn grow(place: &Path, length: u64) -> io::Result<()> {
    match is_no_file(place) {
        true => Ok(()),
        false => fs::write(place, bytes(length, length)),
    }
}

fn clear(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(_) => Ok(()),
    }
}

fn fifo(place: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, place, FileType::Fifo, Mode::RUSR, 0)?)
}

/// What is a directory at one side only is not replaced, but named: it may be anybody's. Here it is removed, as the error
/// says.
fn remove_what_is_in_the_way(from: &Path, to: &Path) {
    let is_dir = |path: PathBuf| Some(fs::symlink_metadata(path).ok()?.is_dir());
    for path in tree::walk(to) {
        let (here, there) = (is_dir(from.join(&path)), is_dir(to.join(&path)));
        if here.is_some() && there.is_some() && here != there {
            clear(&to.join(&path)).unwrap();
        }
    }
}

fn holds_the_secret(top: &Path) -> bool {
    let files = tree::walk(top).into_iter().map(|path| top.join(path));
    let mut files = files.filter(|path| fs::symlink_metadata(path).unwrap().is_file());
    files.any(|path| fs::read(path).unwrap() == SECRET)
}

fn settles(seed: u64) {
    let ground = Ground::new();
    let mut turmoil = Turmoil::new(&ground, seed);
    let (from, to) = (turmoil.top.clone(), ground.path("to"));
    let outside = tree::listing(&turmoil.outside);
    let mut copy = ground.start(&["--limit", "200mbit"], &from.join(""), &to);
    let changes = turmoil.rage(&mut copy);
    let output = finish(copy);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "seed {seed}: {said}"
    );
    assert!(
        !said.contains("panicked") && changes > 100,
        "seed {seed}, {changes}: {said}"
    );
    assert!(!holds_the_secret(&to), "seed {seed}");
    remove_what_is_in_the_way(&from, &to);
    let output = finish(ground.start(&["--delete"], &from.join(""), &to));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), &said[..]),
        (Some(0), ""),
        "seed {seed}"
    );
    tree::assert_same(&from, &to, &format!("seed {seed}"));
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new(), "seed {seed}");
    assert_eq!(tree::listing(&turmoil.outside), outside, "seed {seed}");
    assert_eq!(fs::read(turmoil.outside.join("secret")).unwrap(), SECRET);
}

#[test]
fn what_changed_while_it_was_copied_is_right_after_the_next_run() {
    SEEDS.into_iter().for_each(settles);
}
