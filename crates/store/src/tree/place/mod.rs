// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes trees at the destination. A pure function first decides about each [`Entry`], from the
//! entry and the existing one of that name. Then the decision is carried out, except in a dry run.
//!
//! File data is written elsewhere: a file that is [`Decision::Wanted`] is transferred beside its
//! path and renamed. All other entries are created here. An existing entry other than a directory
//! is replaced in one step, as cp and rsync do. A directory is never replaced and replaces nothing.
//! A device is only replaced by a device.

mod decision;

pub use decision::{Decision, Options, There, decide, look};

use crate::{
    entry::{Entry, Kind},
    metadata::{ApplyOutcome, Metadata, SkippedField},
    path::RelPath,
    root::{Failure, Root},
};
use decision::barred;
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
pub enum Placed {
    /// The entry matched.
    Unchanged,
    /// Created, replaced or corrected; in a dry run, it would have been.
    Changed,
    /// The existing file is newer and was kept.
    Newer,
    /// The data of the file is to be compared. If it differs, call [`Placer::make_room`] and
    /// transfer it, else call [`Placer::settle`].
    Compare,
    /// The data of the file is to be transferred.
    Wanted,
}

/// Writes a tree below a root.
///
/// Directories are writable until the end, and get their metadata then. So it is kept until then:
/// some 150 bytes for each directory, and the attributes.
#[derive(Debug)]
pub struct Placer<'a> {
    root: &'a Root,
    options: Options,
    dirs: BTreeMap<RelPath, Metadata>,
    /// In a dry run: directories that would have been created. Their contents are not looked up.
    imagined: BTreeSet<RelPath>,
    top: Option<Metadata>,
    /// Directory in which an entry was last created.
    unlocked: Option<Option<RelPath>>,
}

impl<'a> Placer<'a> {
    /// Writer for a tree below `root`.
    #[must_use]
    pub fn new(root: &'a Root, options: Options) -> Self {
        Self {
            root,
            options,
            dirs: BTreeMap::new(),
            imagined: BTreeSet::new(),
            top: None,
            unlocked: None,
        }
    }

    /// Writes an entry, or returns that its data is wanted. A directory must come before its
    /// contents. A hard link must come after the file that it links to is complete.
    ///
    /// # Errors
    /// The operation failed or was refused. Other entries are not affected.
    pub fn place(&mut self, entry: &Entry) -> Result<(Placed, Vec<SkippedField>), Failure> {
        let there = self.look(&entry.path)?;
        let link = match &entry.kind {
            Kind::HardLink { to } => Some(self.look(to)?),
            _ => None,
        };
        let decision = decide(entry, &there, link.as_ref(), &self.options);
        if matches!(
            decision,
            Decision::Wanted | Decision::Make | Decision::Replace
        ) {
            self.make_room(&entry.path)?;
        }
        match decision {
            Decision::Refused(why) => Err(Failure::Refused {
                path: entry.path.clone(),
                why,
            }),
            Decision::Newer => Ok((Placed::Newer, Vec::new())),
            Decision::Wanted => Ok((Placed::Wanted, Vec::new())),
            Decision::Compare => Ok((Placed::Compare, Vec::new())),
            _ if self.options.dry_run => Ok((self.imagine(entry, decision), Vec::new())),
            Decision::Unchanged | Decision::Same => {
                let (placed, left_out) = self.act(entry, decision, &there)?;
                Ok((placed, barred(entry, &there).unwrap_or(left_out)))
            }
            _ => self.act(entry, decision, &there),
        }
    }

    /// Sets the metadata of a file whose data matched. `file` is the file that was compared:
    /// another copy may have renamed another one over it.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn settle(
        &self,
        entry: &Entry,
        file: &impl AsFd,
    ) -> Result<(Placed, Vec<SkippedField>), Failure> {
        let applied = match self.options.dry_run {
            true => Metadata::of_file(file).map(|(now, _)| ApplyOutcome {
                changed: entry.metadata.differs(&now, false),
                ..ApplyOutcome::default()
            }),
            false => entry.metadata.apply_to_file(file),
        };
        let failed = Failure::at(Some(&entry.path), "set the metadata of what was there");
        applied.map(placed).map_err(failed)
    }

    /// Sets the metadata of a source whose contents are copied into the root itself.
    pub fn top(&mut self, metadata: Metadata) {
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
            if concerns(&applied) {
                done.push((Some(path), applied));
            }
        }
        let top = self.top.map(|metadata| apply_top(self.root, &metadata));
        done.extend(top.filter(concerns).map(|applied| (None, applied)));
        done
    }

    /// Makes the parent directory of `path` writable if it is read-only; [`Placer::finish`]
    /// restores its mode. Done already for [`Placed::Wanted`]. The caller calls it for a file whose
    /// compared data differs.
    ///
    /// # Errors
    /// The directory is gone.
    pub fn make_room(&mut self, path: &RelPath) -> Result<(), Failure> {
        let parent = path.parent();
        // Only directories whose metadata is set at the end are made writable.
        let ours = match &parent {
            Some(dir) => self.dirs.contains_key(dir),
            None => self.top.is_some(),
        };
        if self.options.dry_run || !ours || self.unlocked.as_ref() == Some(&parent) {
            return Ok(());
        }
        self.root.unlock(parent.as_ref())?;
        self.unlocked = Some(parent);
        Ok(())
    }

    fn look(&self, path: &RelPath) -> Result<There, Failure> {
        let imagined = path
            .parent()
            .is_some_and(|dir| self.imagined.contains(&dir));
        match imagined {
            true => Ok(There::Nothing),
            false => look(self.root, path),
        }
    }

    fn imagine(&mut self, entry: &Entry, decision: Decision) -> Placed {
        if decision == Decision::Make && entry.kind == Kind::Directory {
            self.imagined.insert(entry.path.clone());
        }
        match decision {
            Decision::Unchanged => Placed::Unchanged,
            _ => Placed::Changed,
        }
    }

    fn act(
        &mut self,
        entry: &Entry,
        decision: Decision,
        there: &There,
    ) -> Result<(Placed, Vec<SkippedField>), Failure> {
        match (&entry.kind, decision) {
            (Kind::Directory, _) => self.directory(entry, decision, there),
            (_, Decision::Unchanged) => Ok((Placed::Unchanged, Vec::new())),
            (_, Decision::Same) => self.apply(&entry.path, entry).map(placed),
            (_, Decision::Make) => match self.make(entry, &entry.path) {
                // Another copy was faster.
                Err(failure) if is_disturbed(&failure) => self.replace(entry),
                made => made,
            },
            _ => self.replace(entry),
        }
    }

    /// Replaces an entry: creates the new one beside it and renames it, so that it is never
    /// incomplete. Tries again if another copy uses the same temporary name to replace the same
    /// entry.
    fn replace(&self, entry: &Entry) -> Result<(Placed, Vec<SkippedField>), Failure> {
        let beside = beside(&entry.path)?;
        let mut replaced = self.replace_by(&beside, entry);
        for _ in 1..REPLACE_TRIES {
            if !replaced.as_ref().is_err_and(is_disturbed) {
                break;
            }
            replaced = self.replace_by(&beside, entry);
        }
        replaced
    }

    fn replace_by(
        &self,
        beside: &RelPath,
        entry: &Entry,
    ) -> Result<(Placed, Vec<SkippedField>), Failure> {
        match self.root.remove(beside) {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
        let made = self.make(entry, beside)?;
        self.root.rename(beside, &entry.path)?;
        // Renaming a file over another name of the same file does nothing.
        let _ = self.root.remove(beside);
        Ok(made)
    }

    fn apply(&self, path: &RelPath, entry: &Entry) -> Result<ApplyOutcome, Failure> {
        apply(self.root, path, file_type(&entry.kind), &entry.metadata)
    }

    fn make(&self, entry: &Entry, path: &RelPath) -> Result<(Placed, Vec<SkippedField>), Failure> {
        match &entry.kind {
            Kind::Symlink { target } => self.root.make_symlink(path, target)?,
            Kind::HardLink { to } => {
                self.root.link(to, path)?;
                return Ok((Placed::Changed, Vec::new()));
            }
            Kind::Fifo => self.root.make_node(path, FileType::Fifo, 0)?,
            Kind::Device { major, minor, .. } => {
                let device = fs::makedev(*major, *minor);
                self.root.make_node(path, file_type(&entry.kind), device)?;
            }
            Kind::Directory => self.root.make_dir(path)?,
            Kind::File { .. } => return Ok((Placed::Wanted, Vec::new())),
        }
        let applied = self.apply(path, entry)?;
        Ok((Placed::Changed, applied.skipped))
    }

    fn directory(
        &mut self,
        entry: &Entry,
        decision: Decision,
        there: &There,
    ) -> Result<(Placed, Vec<SkippedField>), Failure> {
        // Reading suffices here. Write permission is added when an entry is created in the
        // directory.
        let seen = Access::READ_OK | Access::EXEC_OK;
        let made = *there == There::Nothing && self.make_directory(&entry.path)?;
        if !made && !self.root.may(Some(&entry.path), seen)? {
            self.root.unlock(Some(&entry.path))?;
        }
        self.dirs.insert(entry.path.clone(), entry.metadata.clone());
        Ok(match decision {
            Decision::Unchanged => (Placed::Unchanged, Vec::new()),
            _ => (Placed::Changed, Vec::new()),
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

fn placed(applied: ApplyOutcome) -> (Placed, Vec<SkippedField>) {
    match applied.changed {
        true => (Placed::Changed, applied.skipped),
        false => (Placed::Unchanged, applied.skipped),
    }
}

fn concerns(applied: &Result<ApplyOutcome, Failure>) -> bool {
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
    let failed = Failure::at(Some(path), "set the metadata of what was there");
    let held = root.handle(path)?;
    if held.kind() != kind {
        return Err(failed(Errno::STALE));
    }
    metadata.apply(&held).map_err(failed)
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
    let held = root.top_handle()?;
    metadata
        .apply(&held)
        .map_err(Failure::at(None, "set the metadata of"))
}

/// Whether a temporary entry was gone, existed already, or had been replaced.
fn is_disturbed(failure: &Failure) -> bool {
    let errnos = [Errno::NOENT, Errno::EXIST, Errno::STALE];
    failure.errno().is_some_and(|errno| errnos.contains(&errno))
}

/// Temporary name for the successor of `path`: an internal name, as long as a part's.
fn beside(path: &RelPath) -> Result<RelPath, Failure> {
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
        come: impl FnOnce(&std::path::Path),
    ) -> (TempDir, Result<Placed, Failure>) {
        let temp = TempDir::new().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let metadata = Metadata::of(&root.top_handle().unwrap()).0;
        let entry = Entry {
            path: RelPath::parse(b"dir").unwrap(),
            kind: Kind::Directory,
            metadata,
        };
        come(&temp.path().join("dir"));
        let mut placer = Placer::new(&root, Options::default());
        let made = placer.act(&entry, Decision::Make, &There::Nothing);
        assert!(placer.finish().is_empty());
        (temp, made.map(|(placed, _)| placed))
    }

    #[test]
    fn accepts_a_directory_created_meanwhile() {
        let (temp, made) = make_directory_over(|dir| {
            std::fs::create_dir(dir).unwrap();
            fs::chmodat(CWD, dir, fs::Mode::empty(), fs::AtFlags::empty()).unwrap();
        });
        assert_eq!(made.unwrap(), Placed::Changed);
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
