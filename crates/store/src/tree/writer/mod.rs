// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes trees at the destination. A pure function first decides about each [`Entry`], from the
//! entry and the existing one of that name. Then the decision is carried out, except in a dry run.
//!
//! File data is written elsewhere: a file that is [`Decision::Transfer`] is transferred beside its
//! path and renamed. All other entries are created here. An existing entry other than a directory
//! is replaced in one step, as cp and rsync do. A directory is never replaced and replaces nothing.
//! A device is only replaced by a device.

mod decision;

pub use decision::{Decision, Existing, Options, decide, inspect};

use crate::{
    entry::{Entry, Kind},
    metadata::{ApplyOutcome, Metadata, SkippedField},
    path::RelPath,
    root::{Failure, Root},
};
use decision::owner_only_difference;
use rustix::{
    fs::{self, Access, FileType},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
};

/// Maximum number of attempts to replace an entry while other copies replace the same one.
const REPLACE_TRIES: u32 = 16;

/// Outcome for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The entry matched.
    Unchanged,
    /// Created, replaced or corrected; in a dry run, it would have been.
    Changed,
    /// The existing file is newer and was kept.
    KeptNewer,
    /// The data of the file is to be compared. If it differs, call
    /// [`TreeWriter::make_parent_writable`] and transfer it, else call
    /// [`TreeWriter::correct_metadata`].
    Compare,
    /// The data of the file is to be transferred.
    Transfer,
}

/// Writes a tree below a root.
///
/// Directories are writable until the end, and get their metadata then. So it is kept until then:
/// some 150 bytes for each directory, and the attributes.
#[derive(Debug)]
pub struct TreeWriter<'a> {
    root: &'a Root,
    options: Options,
    dirs: BTreeMap<RelPath, Metadata>,
    /// In a dry run: directories that would have been created. Their contents are not looked up.
    dry_run_dirs: BTreeSet<RelPath>,
    top: Option<Metadata>,
    /// Directory in which an entry was last created.
    writable_dir: Option<Option<RelPath>>,
}

impl<'a> TreeWriter<'a> {
    /// Writer for a tree below `root`.
    #[must_use]
    pub fn new(root: &'a Root, options: Options) -> Self {
        Self {
            root,
            options,
            dirs: BTreeMap::new(),
            dry_run_dirs: BTreeSet::new(),
            top: None,
            writable_dir: None,
        }
    }

    /// Writes an entry, or returns that its data is wanted. A directory must come before its
    /// contents. A hard link must come after the file that it links to is complete.
    ///
    /// # Errors
    /// The operation failed or was refused. Other entries are not affected.
    pub fn write(&mut self, entry: &Entry) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        let existing = self
            .existing(&entry.path)?
            .with_time_within(self.options.modify_window_s, entry.metadata.modified);
        let link = match &entry.kind {
            Kind::HardLink { to } => Some(self.existing(to)?),
            _ => None,
        };
        let decision = decide(entry, &existing, link.as_ref(), &self.options);
        if matches!(
            decision,
            Decision::Transfer | Decision::Create | Decision::Replace
        ) {
            self.make_parent_writable(&entry.path)?;
        }
        match decision {
            Decision::Refuse(refusal) => Err(Failure::Refused {
                path: entry.path.clone(),
                refusal,
            }),
            Decision::KeepNewer => Ok((WriteOutcome::KeptNewer, Vec::new())),
            Decision::Transfer => Ok((WriteOutcome::Transfer, Vec::new())),
            Decision::Compare => Ok((WriteOutcome::Compare, Vec::new())),
            _ if self.options.dry_run => Ok((self.dry_run_outcome(entry, decision), Vec::new())),
            Decision::Unchanged | Decision::SetMetadata => {
                let (result, skipped) = self.carry_out(entry, decision, &existing)?;
                Ok((
                    result,
                    owner_only_difference(entry, &existing).unwrap_or(skipped),
                ))
            }
            _ => self.carry_out(entry, decision, &existing),
        }
    }

    /// Sets the metadata of a file whose data matched. `file` is the file that was compared:
    /// another copy may have renamed another one over it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn correct_metadata(
        &self,
        entry: &Entry,
        file: &impl AsFd,
    ) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        let applied = if self.options.dry_run {
            Metadata::of_file(file).map(|(now, _)| ApplyOutcome {
                changed: entry.metadata.differs(&now, false),
                ..ApplyOutcome::default()
            })
        } else {
            entry.metadata.apply_to_file(file)
        };
        let failed = Failure::at(Some(&entry.path), "set the metadata of the existing entry");
        applied.map(outcome).map_err(failed)
    }

    /// Sets the metadata of a source whose contents are copied into the root itself.
    pub fn set_top_metadata(&mut self, metadata: Metadata) {
        self.top = Some(metadata);
    }

    /// Sets the metadata of directories, children first, when no more entries will be created.
    /// Returns the fields that were not set, and the failures.
    #[must_use]
    pub fn finish(self) -> Vec<(Option<RelPath>, Result<ApplyOutcome, Failure>)> {
        if self.options.dry_run {
            return Vec::new();
        }
        let mut done = Vec::new();
        for (path, metadata) in self.dirs.into_iter().rev() {
            let applied = apply(self.root, &path, FileType::Directory, &metadata);
            if has_problems(&applied) {
                done.push((Some(path), applied));
            }
        }
        let top = self.top.map(|metadata| apply_top(self.root, &metadata));
        done.extend(top.filter(has_problems).map(|applied| (None, applied)));
        done
    }

    /// Makes the parent directory of `path` writable if it is read-only; [`TreeWriter::finish`]
    /// restores its mode. Done already for [`WriteOutcome::Transfer`]. The caller calls it for a
    /// file whose compared data differs.
    ///
    /// # Errors
    /// The directory is gone.
    pub fn make_parent_writable(&mut self, path: &RelPath) -> Result<(), Failure> {
        let parent = path.parent();
        // Only directories whose metadata is set at the end are made writable.
        let is_ours = match &parent {
            Some(dir) => self.dirs.contains_key(dir),
            None => self.top.is_some(),
        };
        if self.options.dry_run || !is_ours || self.writable_dir.as_ref() == Some(&parent) {
            return Ok(());
        }
        self.root.make_writable(parent.as_ref())?;
        self.writable_dir = Some(parent);
        Ok(())
    }

    fn existing(&self, path: &RelPath) -> Result<Existing, Failure> {
        let imagined = path
            .parent()
            .is_some_and(|dir| self.dry_run_dirs.contains(&dir));
        if imagined {
            Ok(Existing::Missing)
        } else {
            inspect(self.root, path)
        }
    }

    fn dry_run_outcome(&mut self, entry: &Entry, decision: Decision) -> WriteOutcome {
        if decision == Decision::Create && entry.kind == Kind::Directory {
            self.dry_run_dirs.insert(entry.path.clone());
        }
        match decision {
            Decision::Unchanged => WriteOutcome::Unchanged,
            _ => WriteOutcome::Changed,
        }
    }

    fn carry_out(
        &mut self,
        entry: &Entry,
        decision: Decision,
        existing: &Existing,
    ) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        match (&entry.kind, decision) {
            (Kind::Directory, _) => self.directory(entry, decision, existing),
            (_, Decision::Unchanged) => Ok((WriteOutcome::Unchanged, Vec::new())),
            (_, Decision::SetMetadata) => self.apply(&entry.path, entry).map(outcome),
            (_, Decision::Create) => match self.make(entry, &entry.path) {
                // Another copy was faster.
                Err(failure) if is_race(&failure) => self.replace(entry),
                made => made,
            },
            _ => self.replace(entry),
        }
    }

    /// Replaces an entry: creates the new one beside it and renames it, so that it is never
    /// incomplete. Tries again if another copy uses the same temporary name to replace the same
    /// entry.
    fn replace(&self, entry: &Entry) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        let temporary = temporary_path(&entry.path)?;
        let mut replaced = self.replace_via(&temporary, entry);
        for _ in 1..REPLACE_TRIES {
            if !replaced.as_ref().is_err_and(is_race) {
                break;
            }
            replaced = self.replace_via(&temporary, entry);
        }
        replaced
    }

    fn replace_via(
        &self,
        temporary: &RelPath,
        entry: &Entry,
    ) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        match self.root.remove(temporary) {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
        let made = self.make(entry, temporary)?;
        self.root.rename(temporary, &entry.path)?;
        // Renaming a file over another name of the same file does nothing.
        let _ = self.root.remove(temporary);
        Ok(made)
    }

    fn apply(&self, path: &RelPath, entry: &Entry) -> Result<ApplyOutcome, Failure> {
        apply(self.root, path, file_type(&entry.kind), &entry.metadata)
    }

    fn make(
        &self,
        entry: &Entry,
        path: &RelPath,
    ) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        match &entry.kind {
            Kind::Symlink { target } => self.root.make_symlink(path, target)?,
            Kind::HardLink { to } => {
                self.root.link(to, path)?;
                return Ok((WriteOutcome::Changed, Vec::new()));
            }
            Kind::Fifo => self.root.make_node(path, FileType::Fifo, 0)?,
            Kind::Device { major, minor, .. } => {
                let device = fs::makedev(*major, *minor);
                self.root.make_node(path, file_type(&entry.kind), device)?;
            }
            Kind::Directory => self.root.make_dir(path)?,
            Kind::File { .. } => return Ok((WriteOutcome::Transfer, Vec::new())),
        }
        let applied = self.apply(path, entry)?;
        Ok((WriteOutcome::Changed, applied.skipped))
    }

    fn directory(
        &mut self,
        entry: &Entry,
        decision: Decision,
        existing: &Existing,
    ) -> Result<(WriteOutcome, Vec<SkippedField>), Failure> {
        // Reading suffices here. Write permission is added when an entry is created in the
        // directory.
        let seen = Access::READ_OK | Access::EXEC_OK;
        let made = *existing == Existing::Missing && self.make_directory(&entry.path)?;
        if !made && !self.root.has_access(Some(&entry.path), seen)? {
            self.root.make_writable(Some(&entry.path))?;
        }
        self.dirs.insert(entry.path.clone(), entry.metadata.clone());
        Ok(match decision {
            Decision::Unchanged => (WriteOutcome::Unchanged, Vec::new()),
            _ => (WriteOutcome::Changed, Vec::new()),
        })
    }

    /// Creates a directory. Returns false if another copy into the same tree was faster.
    fn make_directory(&self, path: &RelPath) -> Result<bool, Failure> {
        match self.root.make_dir(path) {
            Err(failure) if failure.errno() == Some(Errno::EXIST) => {
                match self.root.handle(path)?.kind() {
                    FileType::Directory => Ok(false),
                    _ => Err(failure),
                }
            }
            made => made.map(|()| true),
        }
    }
}

fn outcome(applied: ApplyOutcome) -> (WriteOutcome, Vec<SkippedField>) {
    if applied.changed {
        (WriteOutcome::Changed, applied.skipped)
    } else {
        (WriteOutcome::Unchanged, applied.skipped)
    }
}

fn has_problems(applied: &Result<ApplyOutcome, Failure>) -> bool {
    applied
        .as_ref()
        .map_or(true, |applied| !applied.skipped.is_empty())
}

/// Sets the metadata of an entry, unless its type has changed: another program may have replaced it
/// since it was read or created.
fn apply(
    root: &Root,
    path: &RelPath,
    kind: FileType,
    metadata: &Metadata,
) -> Result<ApplyOutcome, Failure> {
    let failed = Failure::at(Some(path), "set the metadata of the existing entry");
    let handle = root.handle(path)?;
    if handle.kind() != kind {
        return Err(failed(Errno::STALE));
    }
    metadata.apply(&handle).map_err(failed)
}

fn file_type(kind: &Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File { .. } | Kind::HardLink { .. } => FileType::RegularFile,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Device { block: true, .. } => FileType::BlockDevice,
        Kind::Device { block: false, .. } => FileType::CharacterDevice,
    }
}

fn apply_top(root: &Root, metadata: &Metadata) -> Result<ApplyOutcome, Failure> {
    let handle = root.top_handle()?;
    metadata
        .apply(&handle)
        .map_err(Failure::at(None, "set the metadata of"))
}

/// Whether a temporary entry was gone, existed already, or had been replaced.
fn is_race(failure: &Failure) -> bool {
    let errnos = [Errno::NOENT, Errno::EXIST, Errno::STALE];
    failure.errno().is_some_and(|errno| errnos.contains(&errno))
}

/// Temporary name for the successor of `path`: an internal name, as long as a part's.
fn temporary_path(path: &RelPath) -> Result<RelPath, Failure> {
    let hash = blake3::hash(path.name()).to_hex();
    let name = format!(".longhaul-{}.new", &hash[..32]);
    Ok(match path.parent() {
        Some(dir) => dir.join(name.as_bytes())?,
        None => RelPath::parse(name.as_bytes())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use tempfile::TempDir;

    /// Creates a directory that was missing when it was decided on, after something else was
    /// created there.
    fn make_directory_over(
        create: impl FnOnce(&std::path::Path),
    ) -> (TempDir, Result<WriteOutcome, Failure>) {
        let temp = TempDir::new().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let metadata = Metadata::of(&root.top_handle().unwrap()).0;
        let entry = Entry {
            path: RelPath::parse(b"dir").unwrap(),
            kind: Kind::Directory,
            metadata,
        };
        create(&temp.path().join("dir"));
        let mut writer = TreeWriter::new(&root, Options::default());
        let made = writer.carry_out(&entry, Decision::Create, &Existing::Missing);
        assert!(writer.finish().is_empty());
        (temp, made.map(|(result, _)| result))
    }

    #[test]
    fn accepts_a_directory_created_meanwhile() {
        let (temp, made) = make_directory_over(|dir| {
            std::fs::create_dir(dir).unwrap();
            fs::chmodat(CWD, dir, fs::Mode::empty(), fs::AtFlags::empty()).unwrap();
        });
        assert_eq!(made.unwrap(), WriteOutcome::Changed);
        let modes =
            ["dir", ""].map(|path| temp.path().join(path).metadata().unwrap().permissions());
        assert_eq!(modes[0], modes[1]);
    }

    #[test]
    fn keeps_a_file_created_meanwhile() {
        let (temp, made) = make_directory_over(|dir| std::fs::write(dir, "a file").unwrap());
        assert_eq!(made.unwrap_err().errno(), Some(Errno::EXIST));
        assert_eq!(std::fs::read(temp.path().join("dir")).unwrap(), b"a file");
    }
}
