// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the file systems that were mounted below a mirrored export are still mounted. An empty directory is left of one
//! that is not, and a mirror that deletes would delete its contents at the other site.

use super::keys::state::StateDir;
use anyhow::{Context as _, Result, bail};
use std::{collections::BTreeSet, fs, os::unix::ffi::OsStrExt as _, path::Path};

/// Longest list of mounts, in bytes. Of a longer one, those beyond it are not known.
const LEN_MAX: u64 = 256 << 10;

/// Returns an error if a file system is not mounted any more below the directory of `export`.
pub(super) fn check(state: &StateDir, export: &str, directory: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let directory = directory
        .canonicalize()
        .with_context(|| directory.display().to_string())?;
    check_table(state, export, &mounts_below(&table, &directory))
}

fn check_table(state: &StateDir, export: &str, now: &BTreeSet<&str>) -> Result<()> {
    let file = format!("mounts-{export}");
    let path = state.path(&file);
    let known = state.read(&file, LEN_MAX);
    let known = known.with_context(|| path.display().to_string())?;
    let known: BTreeSet<&str> = known.as_deref().unwrap_or_default().lines().collect();
    if let Some(missing) = known.difference(now).next() {
        bail!(
            "nothing is mirrored: no file system is mounted at {missing} any more. To mirror {export} as it is now, remove {}",
            path.display()
        );
    }
    if known == *now {
        return Ok(());
    }
    let mut text = String::new();
    for mount in now {
        text += mount;
        text.push('\n');
    }
    state.write(&file, &text, &state.lock()?)
}

/// Mount points below a directory, as proc(5) writes them: the fifth field of a line of mountinfo.
fn mounts_below<'t>(table: &'t str, directory: &Path) -> BTreeSet<&'t str> {
    let top = escape(directory);
    let below = |mount: &&str| {
        mount
            .strip_prefix(&top)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let mounts = table.lines().filter_map(|line| line.split(' ').nth(4));
    mounts.filter(below).collect()
}

/// Escapes a path as mountinfo does. Bytes that are no UTF-8 match no line.
fn escape(path: &Path) -> String {
    let path = String::from_utf8_lossy(path.as_os_str().as_bytes());
    let escaped = path.replace('\\', "\\134").replace(' ', "\\040");
    let escaped = escaped.replace('\t', "\\011").replace('\n', "\\012");
    escaped.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        21 20 8:2 / /srv/my\\040data rw - ext4 /dev/sdb rw\n\
        22 21 8:3 / /srv/my\\040data/disk rw shared:1 - ext4 /dev/sdc rw\n\
        23 20 8:4 / /srv/my\\040data2/disk rw - ext4 /dev/sdd rw\n";

    #[test]
    fn finds_mounts_below_a_directory_only() {
        let found = mounts_below(TABLE, Path::new("/srv/my data"));
        assert_eq!(found, BTreeSet::from(["/srv/my\\040data/disk"]));
        assert_eq!(mounts_below(TABLE, Path::new("/")).len(), 3 + 1);
        assert!(mounts_below(TABLE, Path::new("/home")).is_empty());
    }

    #[test]
    fn missing_mount_is_refused_until_confirmed() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(&temp.path().join("state"))).unwrap();
        drop(state.lock().unwrap());
        let check = |now: &[&str]| check_table(&state, "data", &now.iter().copied().collect());
        check(&[]).unwrap();
        check(&["/data/a", "/data/b"]).unwrap();
        check(&["/data/a", "/data/b", "/data/c"]).unwrap();
        for _ in 0..2 {
            let why = check(&["/data/a", "/data/c"]).unwrap_err().to_string();
            assert!(
                why.contains("at /data/b") && why.contains("mounts-data"),
                "{why}"
            );
        }
        check(&["/data/a", "/data/b", "/data/c"]).unwrap();
        fs::remove_file(state.path("mounts-data")).unwrap();
        check(&["/data/a"]).unwrap();
        assert!(check(&[]).is_err());
    }
}
