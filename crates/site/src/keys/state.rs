// SPDX-License-Identifier: MIT OR Apache-2.0
//! State directory of a site, with its key and its tokens. Only its owner has access. All files in it belong to that
//! owner, also those that root creates: otherwise a site of another user could not read them.

use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use rustix::fs::{FlockOperation, flock};
use std::{
    fmt,
    fs::{DirBuilder, File, Metadata},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, fchown},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// Path of the state directory.
#[derive(Debug, Clone)]
pub(crate) struct StateDir(PathBuf);

impl fmt::Display for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl StateDir {
    /// Returns the given directory, or the one of the service manager (`StateDirectory=` in systemd.exec(5)) or of
    /// the XDG Base Directory Specification.
    pub(crate) fn find(given: Option<&Path>) -> Result<Self> {
        let absolute = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let of_user = || {
            let state = absolute("XDG_STATE_HOME");
            let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
            Some(state.join("longhaul/site"))
        };
        let given = given.map(Path::to_owned);
        let path = given
            .or_else(|| absolute("STATE_DIRECTORY"))
            .or_else(of_user);
        path.map(Self).ok_or_else(|| {
            Refusal::usage(
                "no directory for the key and the tokens: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is set to an \
                 absolute path; give --state DIR",
            )
        })
    }

    /// Creates the directory if it is missing, and locks it against other processes until the lock is dropped.
    ///
    /// # Errors
    /// The directory can't be created, or other users may read it.
    pub(crate) fn lock(&self) -> Result<StateLock> {
        let display = self.0.display();
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0);
        made.map_err(|error| self.refused("create", &error))?;
        let directory = File::open(&self.0).map_err(|error| self.refused("open", &error))?;
        if directory.metadata()?.mode() & 0o077 != 0 {
            return Err(Refusal::usage(format!(
                "{display}: other users can read it, and it contains a key: chmod 700"
            )));
        }
        flock(&directory, FlockOperation::LockExclusive)?;
        Ok(StateLock(directory))
    }

    /// Reads a file of the directory; `None` if it is missing.
    ///
    /// # Errors
    /// An error of the system. At most `len_max` bytes are read.
    pub(crate) fn read(&self, name: &str, len_max: u64) -> io::Result<Option<String>> {
        let file = match File::open(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, len_max), &mut text)?;
        Ok(Some(text))
    }

    /// Writes a file atomically, readable only by its owner. It survives a power loss.
    pub(crate) fn write(&self, name: &str, text: &str, lock: &StateLock) -> Result<()> {
        let path = self.0.join(name);
        let failed = || format!("cannot write {}", path.display());
        let file = NamedTempFile::new_in(&self.0).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                self.refused("write to", &error.kind())
            }
            _ => anyhow::Error::new(error).context(failed()),
        })?;
        let mut contents = file.as_file();
        contents.write_all(text.as_bytes()).with_context(failed)?;
        lock.set_owner(contents).with_context(failed)?;
        file.as_file().sync_all().with_context(failed)?;
        file.persist(&path).with_context(failed)?;
        lock.0.sync_all().with_context(failed)
    }

    /// Opens a file of the directory to lock it, and creates it if it is missing.
    pub(crate) fn open_lock_file(&self, name: &str, lock: &StateLock) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = File::options();
        options.append(true).mode(0o600);
        match options.clone().create_new(true).open(self.path(name)) {
            Ok(file) => lock.set_owner(&file).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.open(self.path(name))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the refusal of a directory that this user can't use.
    fn refused(&self, operation: &str, reason: &dyn fmt::Display) -> anyhow::Error {
        Refusal::usage(format!(
            "cannot {operation} {self}, which holds the key and the tokens: {reason}; --state names another directory"
        ))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file, for messages.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Exclusive lock of the state directory.
#[derive(Debug)]
pub(crate) struct StateLock(File);

impl StateLock {
    /// Gives a new file of root to the owner and the group of the directory.
    ///
    /// The file must be one that this process has created. The owner of the directory could put a link to any file of
    /// root in the place of an older one.
    pub(crate) fn set_owner(&self, file: &File) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let owner = |meta: Metadata| (meta.uid(), meta.gid());
        let (uid, gid) = owner(self.0.metadata()?);
        if owner(file.metadata()?) == (uid, gid) {
            Ok(())
        } else {
            fchown(file, Some(uid), Some(gid))
        }
    }
}
