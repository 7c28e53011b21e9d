// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a target's invariants over its committed corpus, without a fuzzer.

use std::{fs, path::Path};

/// Checks every file of `fuzz/corpus/TARGET`. The file at fault is the last one named.
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let corpus = crates.with_file_name("fuzz").join("corpus").join(target);
    let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(Result::unwrap).collect();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for file in files {
        eprintln!("{}", file.path().display());
        check(&fs::read(file.path()).unwrap());
    }
}
