// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where PostgreSQL's programs are.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The newest server's folder: Debian keeps each version in one of its own, beside PATH.
///
/// # Panics
/// If there is none.
pub(crate) fn folder() -> PathBuf {
    let mut folders: Vec<PathBuf> = versions("/usr/lib/postgresql", "bin");
    let path = env::var_os("PATH").unwrap_or_default();
    folders.extend(env::split_paths(&path));
    folders.extend(["/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let found = folders.into_iter().find(|folder| has_all(folder));
    found.expect("PostgreSQL's server (initdb, postgres, psql) is missing: run scripts/setup")
}

fn has_all(folder: &Path) -> bool {
    let is_there = |program: &&str| folder.join(program).exists();
    ["initdb", "postgres", "psql"].iter().all(is_there)
}

/// The newest first.
fn versions(parent: &str, inner: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join(inner)))
        })
        .collect();
    found.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, path)| path).collect()
}
