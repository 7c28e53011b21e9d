// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory beyond which nothing is touched.
//!
//! Every name below it is resolved from its descriptor, by the kernel, without following a
//! symbolic link: whatever names arrive, and whatever others do to the directories meanwhile. What
//! this cannot prevent: a directory that somebody moves out of the tree with `rename` while we
//! hold it open stays the directory it is, and what we were about to make in it arrives there.

use crate::{
    part::PartError,
    path::{BadPath, RelPath},
    piece::BadLabel,
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, Access, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat},
    io::Errno,
};
use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    mem::MaybeUninit,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Directories that a root holds open for the next name in them: as many descriptors, and their
/// paths.
pub const OPEN_DIRS_MAX: usize = 32;

/// Where new directories and files begin: nobody else's until their metadata is set.
const PRIVATE_DIR: Mode = Mode::RWXU;

/// No symbolic link is followed, nothing blocks, no child process inherits it, no terminal becomes
/// ours.
const SAFE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);

/// A descriptor that only names a directory: it needs no right to read it.
const NAMES_DIR: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Something that could not be done to something in a tree.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {}", shown(path.as_ref()), says(*errno))]
    System {
        /// What it was done to; none is the top.
        path: Option<RelPath>,
        /// What was being done, as an infinitive.
        doing: &'static str,
        /// The system's answer.
        errno: Errno,
    },
    /// A name that cannot be copied.
    #[error(transparent)]
    Name(#[from] BadPath),
    /// A piece of a file cannot be read.
    #[error("{path}: {why}")]
    Piece {
        /// Our own of it that something is wrong with.
        path: RelPath,
        /// What.
        why: BadLabel,
    },
    /// A piece cannot be removed.
    #[error("{}{error}", path.parent().map_or_else(String::new, |dir| format!("{dir}/")))]
    Part {
        /// Its file.
        path: RelPath,
        /// Why not; names the file without its directory.
        error: Box<PartError>,
    },
    /// We refuse.
    #[error("{path}: {why}")]
    Refused {
        /// What it was about.
        path: RelPath,
        /// Why.
        why: Refusal,
    },
}

/// Why we do not do what we could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would go where the link points.
    #[error("a symbolic link is in the way of a directory, and is not followed; remove it first")]
    SymlinkForDirectory,
    /// Its content would be lost.
    #[error("a directory is in the way; remove or move it first")]
    DirectoryInTheWay,
    /// The machine may need it.
    #[error("a device is in the way; remove or move it first")]
    DeviceInTheWay,
    /// Something else is lost.
    #[error("something that is no directory is in the way of one; remove or move it first")]
    NoDirectoryInTheWay,
    /// Parts and journals of running copies are called so.
    #[error("names that begin with .longhaul- are kept for the copy's own files")]
    OwnName,
    /// Files of /proc are so: their length is known only when they are read.
    #[error(
        "it has data, and says that its length is 0; write what it says into a file, and copy that"
    )]
    NoLength,
    /// A hard link cannot be one to a directory.
    #[error("the file that it is to be a hard link to is a directory")]
    LinkToDirectory,
}

impl Failure {
    /// The system's answer, if it was the system.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            Self::Piece {
                why: BadLabel::System(errno),
                ..
            } => Some(*errno),
            _ => None,
        }
    }

    /// What it was about; none is the top, or what has no name that could be copied.
    #[must_use]
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::System { path, .. } => path.as_ref(),
            Self::Piece { path, .. } | Self::Part { path, .. } | Self::Refused { path, .. } => {
                Some(path)
            }
            Self::Name(_) => None,
        }
    }

    /// Whether there is nothing of that name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// Says what `doing` failed at `path`.
    pub(crate) fn at(path: Option<&RelPath>, doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System {
            path: path.cloned(),
            doing,
            errno,
        }
    }
}

fn shown(path: Option<&RelPath>) -> String {
    path.map_or_else(|| ".".into(), RelPath::to_string)
}

/// The system's own words for these two lead nowhere.
fn says(errno: Errno) -> String {
    match errno {
        Errno::LOOP => "a symbolic link is in the way, and is not followed".into(),
        Errno::NOTDIR => "something in the way is no directory".into(),
        _ => errno.to_string(),
    }
}

/// A directory beyond which nothing is touched. See the module.
pub struct Root {
    top: Arc<OwnedFd>,
    /// The kernel, or what watches over our system calls, has no openat2(2).
    by_steps: AtomicBool,
    open_dirs: Mutex<VecDeque<(RelPath, Arc<OwnedFd>)>>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("top", &self.top).finish()
    }
}

/// Something in a tree, held so that it stays the same thing whatever becomes of its name.
#[derive(Debug)]
pub struct Handle {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// Why it cannot be read: nothing, or the descriptor does no more than name it. Of what is
    /// neither a file nor a directory, always the latter: opening a device may do something.
    pub(crate) unreadable: Option<Errno>,
}

impl Handle {
    /// The file or directory.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl Root {
    /// A directory that is there. Symbolic links in this one path are followed: the user wrote it.
    ///
    /// # Errors
    /// The system's, without the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let top = fs::open(
            path,
            OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH,
            Mode::empty(),
        )?;
        Ok(Self::of(top))
    }

    /// A directory that is made if it is not there, with those that it is in.
    ///
    /// # Errors
    /// The system's, without the path.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// A directory below this root as a root of its own, beyond which nothing is touched either; none is the same
    /// directory.
    ///
    /// # Errors
    /// It is none, or a symbolic link is on the way.
    pub fn below(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        let dir = self.dir(path)?;
        let top = rustix::io::fcntl_dupfd_cloexec(&dir, 0);
        top.map(Self::of)
            .map_err(Failure::at(path, "open the directory"))
    }

    /// The same, made if it is not there, with those that it is in.
    ///
    /// # Errors
    /// As [`Root::below`], or the system's.
    pub fn below_or_create(&self, path: Option<&RelPath>) -> Result<Self, Failure> {
        match path.map(|path| self.make_plain_dir(path)) {
            Some(Err(failure)) if failure.is_not_found() => {
                let around = path.and_then(RelPath::parent);
                let around = self.below_or_create(Some(&around.ok_or(failure)?))?;
                let name = path.map(|path| RelPath::parse(path.name())).transpose()?;
                around.below_or_create(name.as_ref())
            }
            Some(Err(failure)) if failure.errno() != Some(Errno::EXIST) => Err(failure),
            _ => self.below(path),
        }
    }

    /// The directory that `path` is in and its name there, or, where that is not there, the nearest one around it and what
    /// leads from there.
    ///
    /// # Errors
    /// As [`Root::below`].
    pub fn nearest(&self, path: &RelPath) -> Result<(Self, RelPath), Failure> {
        let mut around = path.parent();
        loop {
            match self.below(around.as_ref()) {
                Err(failure) if failure.is_not_found() => {
                    around = around.as_ref().and_then(RelPath::parent);
                }
                Err(failure) => return Err(failure),
                Ok(root) => {
                    let name = around.and_then(|around| path.below(&around));
                    return Ok((root, name.unwrap_or_else(|| path.clone())));
                }
            }
        }
    }

    /// Makes a directory that whoever the umask allows may use, as mkdir(1) does.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_plain_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777))
            .map_err(Failure::at(Some(path), "make the directory"))
    }

    fn of(top: OwnedFd) -> Self {
        Self {
            top: Arc::new(top),
            by_steps: AtomicBool::new(false),
            open_dirs: Mutex::default(),
        }
    }

    /// A descriptor that names a directory, for `*at` calls. It cannot be read or synced: see
    /// [`Root::open_dir`]. None is the top.
    ///
    /// # Errors
    /// It is none, or a symbolic link is on the way.
    pub fn dir(&self, path: Option<&RelPath>) -> Result<Arc<OwnedFd>, Failure> {
        let Some(path) = path else {
            return Ok(Arc::clone(&self.top));
        };
        if let Some(dir) = self.held(path) {
            return Ok(dir);
        }
        let parent = path.parent().and_then(|parent| self.held(&parent));
        let dir = match parent {
            Some(parent) => step(parent.as_fd(), path.name()),
            None => self.resolve(path, at_once),
        };
        let dir = dir.map(Arc::new);
        let dir = dir.map_err(Failure::at(Some(path), "open the directory"))?;
        self.hold(path, &dir);
        Ok(dir)
    }

    /// A directory's descriptor for listing and syncing, with an offset of its own.
    ///
    /// # Errors
    /// As [`Root::dir`], or it must not be read.
    pub fn open_dir(&self, path: Option<&RelPath>) -> Result<OwnedFd, Failure> {
        let dir = self.dir(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        quietly(|quiet| fs::openat(&dir, ".", flags | quiet, Mode::empty()))
            .map_err(Failure::at(path, "read the directory"))
    }

    /// The directory that `path` is in, and its name there.
    pub(crate) fn place<'p>(&self, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), Failure> {
        Ok((self.dir(path.parent().as_ref())?, path.name()))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the system says; a symbolic link is none.
    pub fn open_file(&self, path: &RelPath) -> Result<File, Failure> {
        let (dir, name) = self.place(path)?;
        quietly(|quiet| fs::openat(&dir, name, OFlags::RDONLY | SAFE | quiet, Mode::empty()))
            .map(File::from)
            .map_err(Failure::at(Some(path), "open"))
    }

    /// Opens or makes a file as `flags` say; symbolic links are never followed.
    ///
    /// # Errors
    /// As the system says.
    pub fn open_with(&self, path: &RelPath, flags: OFlags, mode: Mode) -> Result<File, Failure> {
        let (dir, name) = self.place(path)?;
        fs::openat(&dir, name, flags | SAFE, mode)
            .map(File::from)
            .map_err(Failure::at(Some(path), "open"))
    }

    /// What is known of the name itself, not of what it may point to.
    ///
    /// # Errors
    /// As the system says.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, Failure> {
        let (dir, name) = self.place(path)?;
        fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Failure::at(Some(path), "look at"))
    }

    /// Whether it is a directory. A symbolic link is none.
    pub fn is_dir(&self, path: &RelPath) -> bool {
        self.stat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
    }

    /// Holds what is there, for its metadata.
    pub(crate) fn handle(&self, path: &RelPath) -> Result<Handle, Failure> {
        let (dir, name) = self.place(path)?;
        handle(dir.as_fd(), name).map_err(Failure::at(Some(path), "look at"))
    }

    /// Holds the top.
    pub(crate) fn top_handle(&self) -> Result<Handle, Failure> {
        let fd = self.open_dir(None)?;
        let stat = fs::fstat(&fd).map_err(Failure::at(None, "look at"))?;
        Ok(Handle {
            fd,
            stat,
            unreadable: None,
        })
    }

    /// Sees to it that things can be made in a directory, if it is ours: a read-only one cannot be
    /// filled. It is for the caller to give it its mode again.
    pub(crate) fn unlock(&self, path: Option<&RelPath>) -> Result<(), Failure> {
        match self.may(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Ok(false) => {}
            // No mode helps there: what is to be made fails by its own name.
            Err(failure) if failure.errno() == Some(Errno::ROFS) => return Ok(()),
            may => return may.map(drop),
        }
        let held = match path {
            Some(path) => self.handle(path)?,
            None => named(self.top.as_fd(), b".").map_err(Failure::at(path, "look at"))?,
        };
        match held.kind() {
            FileType::Directory => {
                crate::metadata::unlock(&held).map_err(Failure::at(path, "unlock"))
            }
            _ => Err(Failure::at(path, "unlock")(Errno::NOTDIR)),
        }
    }

    /// Whether we have these rights to a directory.
    pub(crate) fn may(&self, path: Option<&RelPath>, rights: Access) -> Result<bool, Failure> {
        let (dir, name) = match path {
            Some(path) => self.place(path)?,
            None => (self.dir(None)?, &b"."[..]),
        };
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        match fs::accessat(&dir, name, rights, flags) {
            Ok(()) => Ok(true),
            // The call may not be known: the caller then makes sure.
            Err(Errno::ACCESS | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(Failure::at(path, "look at")(errno)),
        }
    }

    /// What is in a directory, in order; with the error that ended the list early, if one did.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn list(&self, path: Option<&RelPath>) -> Result<(Names, Option<Failure>), Failure> {
        let dir = self.open_dir(path)?;
        let (names, error) = Names::read(dir.as_fd());
        Ok((names, error.map(Failure::at(path, "read the directory"))))
    }

    /// Makes a directory that only we may use, until it gets its metadata.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mkdirat(&dir, name, PRIVATE_DIR).map_err(Failure::at(Some(path), "make the directory"))
    }

    /// Makes a symbolic link. Where it points is data: any bytes without a NUL.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::symlinkat(target, &dir, name).map_err(Failure::at(Some(path), "make the symbolic link"))
    }

    /// Gives what is called `old` a second name. A symbolic link gets one itself.
    ///
    /// # Errors
    /// As the system says.
    pub fn link(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) = (self.place(old)?, self.place(new)?);
        fs::linkat(&old_dir, old_name, &new_dir, new_name, AtFlags::empty())
            .map_err(Failure::at(Some(new), "make the hard link"))
    }

    /// Makes a fifo or a device that only we may use, until it gets its metadata.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_node(&self, path: &RelPath, kind: FileType, device: u64) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::mknodat(&dir, name, kind, Mode::RUSR | Mode::WUSR, device)
            .map_err(Failure::at(Some(path), "make the special file"))
    }

    /// Removes what is no directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        fs::unlinkat(&dir, name, AtFlags::empty()).map_err(Failure::at(Some(path), "remove"))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), Failure> {
        let (dir, name) = self.place(path)?;
        self.forget(path);
        fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)
            .map_err(Failure::at(Some(path), "remove the directory"))
    }

    /// Renames, over what is called `new` if that is no directory.
    ///
    /// # Errors
    /// As the system says.
    pub fn rename(&self, old: &RelPath, new: &RelPath) -> Result<(), Failure> {
        let ((old_dir, old_name), (new_dir, new_name)) = (self.place(old)?, self.place(new)?);
        self.forget(old);
        fs::renameat(&old_dir, old_name, &new_dir, new_name)
            .map_err(Failure::at(Some(new), "rename to"))
    }

    fn held(&self, path: &RelPath) -> Option<Arc<OwnedFd>> {
        let mut dirs = self.dirs();
        let at = dirs.iter().position(|(held, _)| held == path)?;
        let entry = dirs.remove(at)?;
        let dir = Arc::clone(&entry.1);
        dirs.push_front(entry);
        Some(dir)
    }

    fn hold(&self, path: &RelPath, dir: &Arc<OwnedFd>) {
        let mut dirs = self.dirs();
        dirs.truncate(OPEN_DIRS_MAX - 1);
        dirs.push_front((path.clone(), Arc::clone(dir)));
    }

    /// A directory that is gone must not live on under its name, nor what was in it.
    fn forget(&self, path: &RelPath) {
        let kept = |held: &RelPath| held != path && held.below(path).is_none();
        self.dirs().retain(|(held, _)| kept(held));
    }

    fn dirs(&self) -> std::sync::MutexGuard<'_, VecDeque<(RelPath, Arc<OwnedFd>)>> {
        self.open_dirs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, path: &RelPath, at_once: Resolver) -> Result<OwnedFd, Errno> {
        if self.by_steps.load(Ordering::Relaxed) {
            return walk(&self.top, path);
        }
        match at_once(&self.top, path) {
            Err(Errno::NOSYS | Errno::PERM) => {
                self.by_steps.store(true, Ordering::Relaxed);
                walk(&self.top, path)
            }
            // A path is taken by openat2(2) up to a byte short of ours.
            Err(Errno::NAMETOOLONG) => walk(&self.top, path),
            answer => answer,
        }
    }
}

/// Opens a directory below another.
type Resolver = fn(&OwnedFd, &RelPath) -> Result<OwnedFd, Errno>;

fn at_once(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // With O_NOFOLLOW a link at the end would be "no directory"; so it is what it is.
    let flags = NAMES_DIR.difference(OFlags::NOFOLLOW);
    fs::openat2(top, path.as_bytes(), flags, Mode::empty(), below)
}

/// The same without openat2(2): no name has a slash or dots, and none is followed.
fn walk(top: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    let mut names = path.components();
    let first = step(top.as_fd(), names.next().ok_or(Errno::NOENT)?)?;
    names.try_fold(first, |dir, name| step(dir.as_fd(), name))
}

/// O_DIRECTORY refuses a link as "no directory"; openat2(2) says more clearly what it is.
fn step(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    fs::openat(dir, name, NAMES_DIR, Mode::empty()).map_err(|errno| {
        let link = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
        if link { Errno::LOOP } else { errno }
    })
}

/// Holds what is called `name` in `dir`.
pub(crate) fn handle(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (fd, unreadable) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => match open_quietly(dir, name) {
            Ok(fd) => (fd, None),
            // It may have become a link or a device since: then it is only named.
            Err(errno @ (Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::PERM)) => {
                (open_named(dir, name)?, Some(errno))
            }
            Err(errno) => return Err(errno),
        },
        _ => (open_named(dir, name)?, Some(Errno::INVAL)),
    };
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable,
    })
}

fn named(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let fd = open_named(dir, name)?;
    let stat = fs::fstat(&fd)?;
    Ok(Handle {
        fd,
        stat,
        unreadable: Some(Errno::INVAL),
    })
}

fn open_quietly(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    quietly(|quiet| fs::openat(dir, name, OFlags::RDONLY | SAFE | quiet, Mode::empty()))
}

fn open_named(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// Reading leaves no trace in the time of access where the system lets us: only the owner may ask.
fn quietly<T>(mut open: impl FnMut(OFlags) -> Result<T, Errno>) -> Result<T, Errno> {
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        answer => answer,
    }
}

/// A directory's names in order, packed: costs their bytes and eight each. A million names of
/// twenty bytes are 28 MB.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    spans: Vec<(u32, u8)>,
}

impl Names {
    /// Reads all names, and the error that stopped it.
    pub(crate) fn read(dir: BorrowedFd<'_>) -> (Self, Option<Errno>) {
        let mut names = Self::default();
        let error = names.fill(dir).err();
        names.sort();
        (names, error)
    }

    fn fill(&mut self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut all_fit = Ok(());
        while let Some(entry) = entries.next() {
            let pushed = match entry {
                Ok(entry) => self.push(entry.file_name().to_bytes()),
                Err(Errno::INTR) => Ok(()),
                Err(error) => return Err(error),
            };
            match pushed {
                // Some file systems count characters; those beside it are read all the same.
                Err(Errno::NAMETOOLONG) => all_fit = pushed,
                pushed => pushed?,
            }
        }
        all_fit
    }

    /// A directory of 4 GiB of names is more than can be held.
    fn push(&mut self, name: &[u8]) -> Result<(), Errno> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        let start = u32::try_from(self.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
        let len = u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        self.bytes.extend_from_slice(name);
        self.spans.push((start, len));
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |&(start, len): &(u32, u8)| &bytes[start as usize..][..usize::from(len)];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    }

    /// The name at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let &(start, len) = self.spans.get(index)?;
        Some(&self.bytes[start as usize..][..usize::from(len)])
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        let found = self.spans.binary_search_by(|&(start, len)| {
            let there = &self.bytes[start as usize..][..usize::from(len)];
            there.cmp(name)
        });
        found.is_ok()
    }

    /// All names, bytewise.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.spans.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, sync::atomic::AtomicU32, thread};
    use tempfile::TempDir;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    /// A root with `in/` and `outside/` beside each other.
    fn tree() -> (TempDir, Root) {
        let temp = TempDir::new().unwrap();
        std::fs::create_dir(temp.path().join("in")).unwrap();
        std::fs::create_dir(temp.path().join("outside")).unwrap();
        std::fs::write(temp.path().join("outside/secret"), "secret").unwrap();
        let root = Root::open(&temp.path().join("in")).unwrap();
        (temp, root)
    }

    /// Each test that is about resolving runs with openat2(2) and without.
    fn both_ways(test: impl Fn(&TempDir, &Root)) {
        for by_steps in [false, true] {
            let (temp, root) = tree();
            root.by_steps.store(by_steps, Ordering::Relaxed);
            test(&temp, &root);
            assert_eq!(root.by_steps.load(Ordering::Relaxed), by_steps);
            let left = std::fs::read_dir(temp.path().join("outside"))
                .unwrap()
                .count();
            assert_eq!(left, 1, "nothing came or went outside");
        }
    }

    #[test]
    fn a_link_at_any_position_is_refused() {
        both_ways(|temp, root| {
            root.make_dir(&path("a")).unwrap();
            let outside = temp.path().join("outside");
            for link in ["in/l", "in/a/l"] {
                symlink(&outside, temp.path().join(link)).unwrap();
            }
            symlink("a", temp.path().join("in/within")).unwrap();
            for bad in ["l/x", "a/l/x", "l/secret", "l/x/y", "within/x"] {
                let error = root.make_dir(&path(bad)).unwrap_err();
                assert_eq!(error.errno(), Some(Errno::LOOP), "{bad}: {error}");
                let opened = root.open_file(&path(bad)).unwrap_err();
                assert_eq!(opened.errno(), Some(Errno::LOOP), "{bad}");
                assert!(root.remove(&path(bad)).is_err());
                assert!(root.stat(&path(bad)).is_err());
                assert!(root.rename(&path("a"), &path(bad)).is_err());
                assert!(root.make_symlink(&path(bad), b"t").is_err());
                assert!(root.make_node(&path(bad), FileType::Fifo, 0).is_err());
            }
            assert!(root.list(Some(&path("l"))).is_err());
            assert_eq!(
                root.open_file(&path("l")).unwrap_err().errno(),
                Some(Errno::LOOP)
            );
            let made = root.open_with(&path("l"), OFlags::CREATE | OFlags::WRONLY, PRIVATE_DIR);
            assert_eq!(made.unwrap_err().errno(), Some(Errno::LOOP));
        });
    }

    #[test]
    fn operations_do_what_they_say() {
        both_ways(|temp, root| {
            root.make_dir(&path("d")).unwrap();
            root.make_dir(&path("d/e")).unwrap();
            std::fs::write(temp.path().join("in/d/e/file"), "data").unwrap();
            root.link(&path("d/e/file"), &path("again")).unwrap();
            root.rename(&path("again"), &path("d/moved")).unwrap();
            root.make_symlink(&path("d/link"), b"/nowhere\xff").unwrap();
            root.make_node(&path("d/fifo"), FileType::Fifo, 0).unwrap();
            assert_eq!(
                io::read_to_string(root.open_file(&path("d/moved")).unwrap()).unwrap(),
                "data"
            );
            let (names, error) = root.list(Some(&path("d"))).unwrap();
            assert!(error.is_none());
            let names: Vec<_> = names.iter().collect();
            assert_eq!(names, [&b"e"[..], b"fifo", b"link", b"moved"]);
            root.remove(&path("d/e/file")).unwrap();
            root.remove_dir(&path("d/e")).unwrap();
            assert!(root.stat(&path("d/e")).unwrap_err().is_not_found());
        });
    }

    #[test]
    fn a_directory_that_was_removed_and_made_again_is_the_new_one() {
        both_ways(|_, root| {
            root.make_dir(&path("d")).unwrap();
            for _ in 0..2 {
                root.make_dir(&path("d/e")).unwrap();
                root.make_dir(&path("d/e/f")).unwrap();
                root.remove_dir(&path("d/e/f")).unwrap();
                root.remove_dir(&path("d/e")).unwrap();
            }
            root.make_dir(&path("d/e")).unwrap();
            root.make_dir(&path("d/e/f")).unwrap();
            root.rename(&path("d"), &path("g")).unwrap();
            assert!(root.stat(&path("d/e/f")).unwrap_err().is_not_found());
            assert!(root.stat(&path("g/e/f")).is_ok());
        });
    }

    #[test]
    fn without_openat2_it_walks() {
        let refusals: [Resolver; 2] = [|_, _| Err(Errno::NOSYS), |_, _| Err(Errno::PERM)];
        for refuse in refusals {
            let (_temp, root) = tree();
            root.make_dir(&path("d")).unwrap();
            assert!(root.resolve(&path("d"), refuse).is_ok());
            assert!(root.by_steps.load(Ordering::Relaxed), "not asked again");
        }
        let (_temp, root) = tree();
        let missing = root.resolve(&path("d"), |_, _| Err(Errno::NOENT));
        assert_eq!(missing.unwrap_err(), Errno::NOENT);
        assert!(!root.by_steps.load(Ordering::Relaxed));
    }

    #[test]
    fn holds_few_directories_open() {
        both_ways(|_, root| {
            for number in 0..OPEN_DIRS_MAX * 2 {
                root.make_dir(&path(&format!("d{number}"))).unwrap();
                root.make_dir(&path(&format!("d{number}/e"))).unwrap();
            }
            assert_eq!(root.dirs().len(), OPEN_DIRS_MAX);
        });
    }

    #[test]
    fn the_longest_path_can_be_used() {
        let (_temp, root) = tree();
        let longest = path(&format!("{}aa", "a/".repeat(2047)));
        let mut dirs = vec![longest.clone()];
        while let Some(parent) = dirs[dirs.len() - 1].parent() {
            dirs.push(parent);
        }
        dirs.iter()
            .rev()
            .for_each(|dir| root.make_dir(dir).unwrap());
        assert!(root.dir(Some(&longest)).is_ok());
        dirs.iter().for_each(|dir| root.remove_dir(dir).unwrap());
    }

    /// Somebody exchanges a directory for a link to another and back, as fast as can be.
    #[test]
    fn a_directory_swapped_for_a_link_leads_nowhere_else() {
        both_ways(|temp, root| {
            root.make_dir(&path("d")).unwrap();
            symlink(temp.path().join("outside"), temp.path().join("in/l")).unwrap();
            let (top, stop, swaps) = (
                temp.path().join("in"),
                AtomicBool::new(false),
                AtomicU32::new(0),
            );
            thread::scope(|scope| {
                scope.spawn(|| swap_until(&top, &stop, &swaps));
                while swaps.load(Ordering::Relaxed) < 200 {
                    try_everything_in_d(root);
                    root.dirs().clear();
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }

    fn swap_until(top: &Path, stop: &AtomicBool, swaps: &AtomicU32) {
        let exchange = fs::RenameFlags::EXCHANGE;
        while !stop.load(Ordering::Relaxed) {
            fs::renameat_with(fs::CWD, top.join("d"), fs::CWD, top.join("l"), exchange).unwrap();
            swaps.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        }
    }

    fn try_everything_in_d(root: &Root) {
        let write = OFlags::CREATE | OFlags::WRONLY;
        let _ = root.open_with(&path("d/new"), write, PRIVATE_DIR);
        let _ = root.make_dir(&path("d/dir"));
        let _ = root.make_symlink(&path("d/sym"), b"x");
        let _ = root.remove(&path("d/secret"));
        let _ = root.rename(&path("d/new"), &path("d/secret"));
        let read = root.open_file(&path("d/secret")).map(io::read_to_string);
        assert!(read.is_err() || read.is_ok_and(|text| text.unwrap().is_empty()));
    }

    #[test]
    fn a_root_is_made_with_the_directories_around_it() {
        let temp = TempDir::new().unwrap();
        Root::open_or_create(&temp.path().join("new")).unwrap();
        Root::open_or_create(&temp.path().join("new")).unwrap();
        Root::open_or_create(&temp.path().join("a/b/c")).unwrap();
        assert!(temp.path().join("a/b/c").is_dir());
        assert!(Root::open(&temp.path().join("none")).is_err());
        std::fs::write(temp.path().join("file"), "").unwrap();
        assert!(Root::open_or_create(&temp.path().join("file")).is_err());
    }

    #[test]
    fn a_root_below_a_root_is_reached_without_links_and_holds_as_well() {
        both_ways(|temp, root| {
            symlink(temp.path().join("outside"), temp.path().join("in/l")).unwrap();
            symlink("..", temp.path().join("in/up")).unwrap();
            for link in ["l", "up", "l/secret"] {
                assert!(root.below(Some(&path(link))).is_err(), "{link}");
                assert!(root.below_or_create(Some(&path(link))).is_err(), "{link}");
            }
            let below = root.below_or_create(Some(&path("d"))).unwrap();
            root.below_or_create(Some(&path("new/a/b"))).unwrap();
            assert!(temp.path().join("in/new/a/b").is_dir());
            assert!(root.below_or_create(Some(&path("l/a/b"))).is_err());
            let (near, rest) = root.nearest(&path("new/c/d/e")).unwrap();
            assert_eq!(rest, path("c/d/e"));
            assert!(near.is_dir(&path("a")) && !near.is_dir(&path("c")));
            assert!(root.nearest(&path("l/a")).is_err());
            symlink("../l", temp.path().join("in/d/l")).unwrap();
            assert!(below.open_file(&path("l/secret")).is_err());
            below.make_dir(&path("e")).unwrap();
            let same = root.below(None).unwrap().below(Some(&path("d/e")));
            assert!(same.is_ok());
        });
    }

    #[test]
    fn errors_say_what_and_where() {
        let (_temp, root) = tree();
        let error = root.open_file(&path("no\x1b")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no\\u{1b}: cannot open: No such file or directory (os error 2)"
        );
    }
}
