// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees at the destination: what an [`Entry`] asks for is decided first, which is a pure function
//! of the entry and of what is there, and then done, or with a dry run not.
//!
//! Data of files is another's: a file that is [`Decision::Wanted`] is transferred beside its place
//! and renamed. All else is made here. What is in the way of something other than a directory is
//! replaced as cp and rsync do, in one step; a directory is never replaced, nor by one, and a device by
//! nothing but a device.

mod decision;

pub use decision::{Decision, Options, There, decide, look};

use crate::{
    entry::{Entry, Kind},
    metadata::{Applied, LeftOut, Metadata},
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

/// Times that something is replaced at the most, while other copies replace the same.
const REPLACE_TRIES: u32 = 16;

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// As it was.
    Unchanged,
    /// Made, replaced or put right; or it would have been, with a dry run.
    Changed,
    /// A file that is newer here: left alone.
    Newer,
    /// A file whose data is to be compared, and then either transferred (after
    /// [`Placer::make_room`]) or [`Placer::settle`]d.
    Compare,
    /// A file whose data is to be transferred.
    Wanted,
}

/// Makes a tree below a root.
///
/// Directories are open to us while they are filled and get their metadata at the end, so it keeps
/// theirs: some 150 bytes a directory and its attributes.
#[derive(Debug)]
pub struct Placer<'a> {
    root: &'a Root,
    options: Options,
    dirs: BTreeMap<RelPath, Metadata>,
    /// With a dry run: directories that would have been made, so that what is in them is not
    /// looked for.
    imagined: BTreeSet<RelPath>,
    top: Option<Metadata>,
    /// The directory that something was last made in.
    unlocked: Option<Option<RelPath>>,
}

impl<'a> Placer<'a> {
    /// For a tree below `root`.
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

    /// Puts an entry in its place, or says that its data is wanted. A directory must come before
    /// what is in it, and a hard link after the file is complete that it is another name of.
    ///
    /// # Errors
    /// It could not be done, or is refused; the others are not concerned.
    pub fn place(&mut self, entry: &Entry) -> Result<(Placed, Vec<LeftOut>), Failure> {
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

    /// Puts the metadata right of a file whose data was found to be the same: of this very one, for another copy
    /// may have given its name to another.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn settle(
        &self,
        entry: &Entry,
        file: &impl AsFd,
    ) -> Result<(Placed, Vec<LeftOut>), Failure> {
        let applied = match self.options.dry_run {
            true => Metadata::of_file(file).map(|(now, _)| Applied {
                changed: entry.metadata.differs(&now, false),
                ..Applied::default()
            }),
            false => entry.metadata.apply_to_file(file),
        };
        let failed = Failure::at(Some(&entry.path), "set the metadata of what was there");
        applied.map(placed).map_err(failed)
    }

    /// The metadata of a source whose contents are copied into the root itself.
    pub fn top(&mut self, metadata: Metadata) {
        self.top = Some(metadata);
    }

    /// Gives directories their metadata, children first, when nothing more is made in them. Says
    /// what was left out, and what went wrong.
    #[must_use]
    pub fn finish(self) -> Vec<(Option<RelPath>, Result<Applied, Failure>)> {
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

    /// Sees to it that something can be made at `path` though its directory is read-only, which it
    /// will be again at the end. Done for what is [`Placed::Wanted`]; to be called for a file that
    /// was compared and found another.
    ///
    /// # Errors
    /// The directory is gone.
    pub fn make_room(&mut self, path: &RelPath) -> Result<(), Failure> {
        let parent = path.parent();
        // Only a directory whose metadata is set at the end is opened.
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
    ) -> Result<(Placed, Vec<LeftOut>), Failure> {
        match (&entry.kind, decision) {
            (Kind::Directory, _) => self.directory(entry, decision, there),
            (_, Decision::Unchanged) => Ok((Placed::Unchanged, Vec::new())),
            (_, Decision::Same) => self.apply(&entry.path, entry).map(placed),
            (_, Decision::Make) => match self.make(entry, &entry.path) {
                // Somebody was faster.
                Err(failure) if is_disturbed(&failure) => self.replace(entry),
                made => made,
            },
            _ => self.replace(entry),
        }
    }

    /// What is made beside its place and renamed over what is there is never half there. Another copy
    /// may be about to replace the same, under the same name beside it: then again.
    fn replace(&self, entry: &Entry) -> Result<(Placed, Vec<LeftOut>), Failure> {
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
    ) -> Result<(Placed, Vec<LeftOut>), Failure> {
        match self.root.remove(beside) {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
        let made = self.make(entry, beside)?;
        self.root.rename(beside, &entry.path)?;
        // Renaming one name of a file over another of the same does nothing.
        let _ = self.root.remove(beside);
        Ok(made)
    }

    fn apply(&self, path: &RelPath, entry: &Entry) -> Result<Applied, Failure> {
        apply(self.root, path, file_type(&entry.kind), &entry.metadata)
    }

    fn make(&self, entry: &Entry, path: &RelPath) -> Result<(Placed, Vec<LeftOut>), Failure> {
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
        Ok((Placed::Changed, applied.left_out))
    }

    fn directory(
        &mut self,
        entry: &Entry,
        decision: Decision,
        there: &There,
    ) -> Result<(Placed, Vec<LeftOut>), Failure> {
        // To look at what is in it; the right to write is taken when something is made there.
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

    /// Whether it was made here: another copy into the same tree may have been faster.
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

fn placed(applied: Applied) -> (Placed, Vec<LeftOut>) {
    match applied.changed {
        true => (Placed::Changed, applied.left_out),
        false => (Placed::Unchanged, applied.left_out),
    }
}

fn concerns(applied: &Result<Applied, Failure>) -> bool {
    applied
        .as_ref()
        .map_or(true, |applied| !applied.left_out.is_empty())
}

/// Somebody may have put something else there since it was looked at or made: that is left alone.
fn apply(
    root: &Root,
    path: &RelPath,
    kind: FileType,
    metadata: &Metadata,
) -> Result<Applied, Failure> {
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

fn apply_top(root: &Root, metadata: &Metadata) -> Result<Applied, Failure> {
    let held = root.top_handle()?;
    metadata
        .apply(&held)
        .map_err(Failure::at(None, "set the metadata of"))
}

/// Something of ours was gone, was there already, or had become something else.
fn is_disturbed(failure: &Failure) -> bool {
    let errnos = [Errno::NOENT, Errno::EXIST, Errno::STALE];
    failure.errno().is_some_and(|errno| errnos.contains(&errno))
}

/// The name that `path`'s successor is made under: one of our own, of the length of a part's.
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

    /// A directory entry, decided on when nothing was there, after something else came.
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
    fn a_directory_that_another_copy_makes_meanwhile_is_as_good() {
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
    fn a_file_that_somebody_puts_there_meanwhile_stays() {
        let (temp, made) = make_directory_over(|dir| std::fs::write(dir, "a file").unwrap());
        assert_eq!(made.unwrap_err().errno(), Some(Errno::EXIST));
        assert_eq!(std::fs::read(temp.path().join("dir")).unwrap(), b"a file");
    }
}
