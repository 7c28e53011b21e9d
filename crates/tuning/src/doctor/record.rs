// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record of the settings that `--fix` changed. It is on the disk before the first change, so that
//! `--undo` works whatever happens in between.
//!
//! Each network namespace has its own file, since most settings belong to one: `doctor-host.json` for that of
//! process 1, `doctor-netns-INODE.json` for others.

use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Record of the changes, with the old values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Version of this format.
    pub(super) version: u32,
    /// Boot identifier at the time of writing.
    pub(super) boot: String,
    /// Whether `--fix` completed. If not, a value may be the old or the new one.
    pub(super) finished: bool,
    /// Changes in the order in which they were made.
    pub(super) changes: Vec<Change>,
    /// File for the next boot, if one was written.
    pub(super) persisted: Option<Persisted>,
}

/// Change of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) key: String,
    /// Value before the first `--fix` that is not undone.
    pub(super) before: String,
    /// Value after the last `--fix`.
    pub(super) after: String,
}

/// File under /etc/sysctl.d.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Persisted {
    pub(super) file: PathBuf,
    /// Contents before, if the file existed.
    pub(super) before: Option<String>,
    pub(super) after: String,
}

impl Record {
    /// Creates a record without changes.
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            boot: this_boot(),
            finished: false,
            changes: Vec::new(),
            persisted: None,
        }
    }
}

const VERSION: u32 = 1;

/// Returns the kernel's identifier of the present boot.
pub(super) fn this_boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Directory of the records. While it is open, no other process changes them.
pub(super) struct Store {
    directory: PathBuf,
    name: String,
    /// Lock on the directory itself, so that no lock file stays behind.
    #[expect(dead_code, reason = "held only for its lifetime")]
    lock: File,
}

/// Creates the directory if necessary, and locks it. It is removed with its last record.
fn lock_directory(directory: &Path) -> Result<File> {
    loop {
        fs::create_dir_all(directory).map_err(|error| write_error(directory, error))?;
        let lock = match File::open(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .context("another longhaul doctor is changing settings")?;
        // The previous owner of the lock may have removed it.
        if inode(directory) == Some(lock.metadata()?.ino()) {
            return Ok(lock);
        }
    }
}

fn write_error(place: &Path, error: io::Error) -> anyhow::Error {
    let place = place.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Refusal::unsupported(format!(
                "cannot write {place}, where doctor records what it changes ({error}): run it as the machine's root, or name \
             another directory by XDG_STATE_HOME"
            ))
        }
        _ => anyhow::Error::new(error).context(format!("cannot write {place}")),
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The directory stays if it has records: it is not empty then.
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Store {
    /// Opens `$XDG_STATE_HOME/longhaul`, or /var/lib/longhaul.
    pub(super) fn open() -> Result<Self> {
        let home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = home.filter(|path| path.is_absolute());
        Self::at(home.unwrap_or("/var/lib".into()).join("longhaul"))
    }

    fn at(directory: PathBuf) -> Result<Self> {
        Ok(Self {
            lock: lock_directory(&directory)?,
            directory,
            name: name_of_this_namespace()?,
        })
    }

    /// Reads this namespace's record.
    pub(super) fn load(&self) -> Result<Option<Record>> {
        self.read(&self.name)
    }

    /// Reads the record in a file of [`Self::other_namespaces`].
    pub(super) fn read(&self, name: &str) -> Result<Option<Record>> {
        let file = self.directory.join(name);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a record of doctor", file.display()))?;
        anyhow::ensure!(
            record.version == VERSION,
            "{} is of version {}, this program supports {VERSION}",
            file.display(),
            record.version
        );
        Ok(Some(record))
    }

    /// Replaces this namespace's record; when this returns, it is on the disk.
    pub(super) fn save(&self, record: &Record) -> Result<()> {
        let file = self.directory.join(&self.name);
        write_atomically(&file, &serde_json::to_string_pretty(record)?)
            .map_err(|error| write_error(&file, error))
    }

    /// Deletes this namespace's record.
    pub(super) fn remove(&self) -> Result<()> {
        self.delete(&self.name)
    }

    /// Deletes a record of [`Self::other_namespaces`].
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.directory.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Lists the records of other namespaces: file name and the namespace's inode.
    pub(super) fn other_namespaces(&self) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let inode = name
                .strip_prefix(NETNS_PREFIX)
                .and_then(|rest| rest.strip_suffix(".json")?.parse().ok());
            found.extend(inode.filter(|_| name != self.name).map(|n| (name, n)));
        }
        Ok(found)
    }

    /// Returns the path of this namespace's record.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

const NETNS_PREFIX: &str = "doctor-netns-";

fn name_of_this_namespace() -> Result<String> {
    let mine = inode("/proc/self/ns/net").context("cannot name this network namespace")?;
    Ok(match inode("/proc/1/ns/net") {
        Some(first) if first == mine => "doctor-host.json".to_owned(),
        _ => format!("{NETNS_PREFIX}{mine}.json"),
    })
}

/// Returns the inode of a namespace's file, which identifies the namespace.
pub(super) fn inode(file: impl AsRef<Path>) -> Option<u64> {
    Some(fs::metadata(file).ok()?.ino())
}

/// Replaces a file atomically: after a power failure it is the old or the new one.
pub(super) fn write_atomically(file: &Path, text: &str) -> std::io::Result<()> {
    let part = file.with_extension("part");
    let mut handle = File::create(&part)?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()?;
    fs::rename(&part, file)?;
    let directory = file.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_loads_and_removes_a_record() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().join("longhaul")).unwrap();
        assert_eq!(store.load().unwrap(), None);
        let record = Record {
            changes: vec![Change {
                key: "fs.nr_open".to_owned(),
                before: "1".to_owned(),
                after: "2".to_owned(),
            }],
            ..Record::new()
        };
        store.save(&record).unwrap();
        assert_eq!(store.load().unwrap(), Some(record));
        store.remove().unwrap();
        store.remove().unwrap();
        assert_eq!(store.load().unwrap(), None);
    }

    #[test]
    fn store_is_exclusive() {
        let directory = tempfile::tempdir().unwrap();
        let at = || Store::at(directory.path().to_owned());
        let first = at().unwrap();
        assert!(at().is_err());
        drop(first);
        assert!(at().is_ok());
    }

    #[test]
    fn removes_directory_without_records() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("longhaul");
        drop(Store::at(own.clone()).unwrap());
        assert!(!own.exists());
        let store = Store::at(own.clone()).unwrap();
        store.save(&Record::new()).unwrap();
        drop(store);
        let left = fs::read_dir(&own)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        assert_eq!(left.count(), 1, "the record alone");
    }

    #[test]
    fn refuses_invalid_records() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().to_owned()).unwrap();
        for text in ["{", "{\"version\": 2}"] {
            fs::write(store.path(), text).unwrap();
            assert!(store.load().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_records_of_other_namespaces() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().to_owned()).unwrap();
        for name in [
            "doctor-netns-7.json",
            "doctor-netns-x.json",
            "doctor-host.json",
        ] {
            fs::write(directory.path().join(name), "{}").unwrap();
        }
        let others = store.other_namespaces().unwrap();
        assert_eq!(others, [("doctor-netns-7.json".to_owned(), 7)]);
    }
}
