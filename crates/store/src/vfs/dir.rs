// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directory of the real file system, and the files in it that are not trusted.

use super::{Directory, OpenError, OpenMode, UntrustedFile};
use crate::metadata::acl;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// Permissions that a file takes over from its directory.
const READ_AND_WRITE: Mode = Mode::from_bits_retain(0o666);

/// Directory of the real file system. Clones share one descriptor.
#[derive(Debug, Clone)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    id: (u64, u64),
}

impl Dir {
    /// Duplicates a descriptor of the directory.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        let id = identity(&rustix::fs::fstat(&own)?);
        Ok(Self {
            fd: Arc::new(own),
            id,
        })
    }

    fn stat(&self, name: &[u8]) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Tries once to open a file; `None` if another process changed the name meanwhile. Checks the
    /// file type before opening, because opening a device or a fifo has effects, and again
    /// afterwards, because the file may have been replaced.
    fn try_open(
        &self,
        name: &[u8],
        open_mode: OpenMode,
    ) -> Result<Option<Option<File>>, OpenError> {
        let flags = match (self.stat(name)?, open_mode) {
            (Some(stat), _) => {
                self.check_trusted(&stat, open_mode)?;
                open_flags(open_mode)
            }
            (None, OpenMode::Read | OpenMode::Shared | OpenMode::Exclusive) => {
                return Ok(Some(None));
            }
            (None, OpenMode::CreateExclusive | OpenMode::CreateAndWait) => {
                open_flags(open_mode) | OFlags::CREATE | OFlags::EXCL
            }
        };
        let created = flags.contains(OFlags::CREATE) && open_mode == OpenMode::CreateAndWait;
        match self.openat(name, flags) {
            Ok(file) => {
                if created {
                    self.share_with_dir_writers(&file)?;
                }
                Ok(self.lock_and_check(name, file, open_mode)?.map(Some))
            }
            // No file can be created in a directory that was removed, however often it is tried.
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Err(Errno::NOENT.into()),
            Err(Errno::NOENT | Errno::EXIST) => Ok(None),
            Err(Errno::LOOP) => Err(OpenError::Untrusted(UntrustedFile::Symlink)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn openat(&self, name: &[u8], flags: OFlags) -> Result<File, Errno> {
        let safe_flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || rustix::fs::openat(&*self.fd, name, flags | safe_flags, mode);
        retry_on_intr(open).map(File::from)
    }

    /// Locks a file and returns it, unless it lost its name before it was locked: the last holder
    /// may have renamed or removed it.
    fn lock_and_check(
        &self,
        name: &[u8],
        file: File,
        open_mode: OpenMode,
    ) -> Result<Option<File>, OpenError> {
        lock(&file, open_mode)?;
        if !self.refers_to(name, &file)? {
            return Ok(None);
        }
        self.check_trusted(&rustix::fs::fstat(&file)?, open_mode)?;
        Ok(Some(file))
    }

    /// Gives a file that was just created to all users who may write in this directory. Permissions
    /// that the file system does not allow stay as they are.
    fn share_with_dir_writers(&self, file: &File) -> Result<(), Errno> {
        let dir = rustix::fs::fstat(&*self.fd)?;
        if is_sticky_and_world_writable(&dir) {
            return Ok(());
        }
        let root = rustix::process::geteuid().is_root();
        let owner = root.then_some(Uid::from_raw(dir.st_uid));
        let group = Gid::from_raw(dir.st_gid);
        let chowned = rustix::fs::fchown(file, owner, Some(group));
        let mode = Mode::from_raw_mode(dir.st_mode) & READ_AND_WRITE;
        // A group other than the directory's gets the permissions of all others.
        let others_as_group = Mode::from_raw_mode((mode & Mode::RWXO).as_raw_mode() << 3);
        let mode = match chowned {
            Ok(()) => mode,
            Err(_) => (mode - Mode::RWXG) | others_as_group,
        };
        let _ = rustix::fs::fchmod(file, mode | Mode::RUSR | Mode::WUSR);
        acl::copy_to_file(&self.fd, file, chowned.is_ok());
        Ok(())
    }

    fn check_trusted(&self, stat: &Stat, open_mode: OpenMode) -> Result<(), OpenError> {
        match check_type_and_owner(stat, open_mode) {
            Err(OpenError::Untrusted(UntrustedFile::Owner))
                if open_mode == OpenMode::CreateAndWait =>
            {
                let dir = rustix::fs::fstat(&*self.fd)?;
                if owner_could_replace(stat.st_uid, &dir) {
                    Ok(())
                } else {
                    Err(OpenError::Untrusted(UntrustedFile::Owner))
                }
            }
            other => other,
        }
    }
}

impl Directory for Dir {
    type File = File;

    fn open(&self, name: &[u8], open_mode: OpenMode) -> Result<Option<File>, OpenError> {
        loop {
            if let Some(opened) = self.try_open(name, open_mode)? {
                return Ok(opened);
            }
        }
    }

    fn remove_unless_locked(&self, name: &[u8]) -> Result<(), OpenError> {
        let Some(stat) = self.stat(name)? else {
            return Ok(());
        };
        check_type_and_owner(&stat, OpenMode::Read)?;
        // Locking needs write permission on some file systems, and read permission on others.
        let opened = match self.openat(name, OFlags::RDWR) {
            Err(Errno::ACCESS) => self.openat(name, OFlags::RDONLY),
            opened => opened,
        };
        let file = match opened {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        lock(&file, OpenMode::Exclusive)?;
        if self.refers_to(name, &file)? {
            Ok(self.remove(name)?)
        } else {
            Err(OpenError::Busy)
        }
    }

    fn refers_to(&self, name: &[u8], file: &File) -> io::Result<bool> {
        let open = identity(&rustix::fs::fstat(file)?);
        Ok(self.stat(name)?.is_some_and(|stat| identity(&stat) == open))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.fd, from, &*self.fd, to)?)
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(self.fd.as_fd()) {
            Err(Errno::BADF) => sync_file_system(self.fd.as_fd()),
            synced => Ok(synced?),
        }
    }

    fn id(&self) -> (u64, u64) {
        self.id
    }
}

/// Syncs the file system of a directory. If this user may not open the directory for reading, a file without a name in it
/// stands for it.
///
/// # Errors
/// As syncfs(2), or such a file can't be made.
pub fn sync_file_system(dir: BorrowedFd<'_>) -> io::Result<()> {
    let synced = rustix::fs::syncfs(dir).or_else(|error| {
        if error != Errno::BADF {
            return Err(error);
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::syncfs(&file)
    });
    Ok(synced?)
}

fn open_flags(open_mode: OpenMode) -> OFlags {
    match open_mode {
        OpenMode::Read => OFlags::RDONLY,
        OpenMode::Shared
        | OpenMode::Exclusive
        | OpenMode::CreateExclusive
        | OpenMode::CreateAndWait => OFlags::RDWR,
    }
}

fn lock(file: &File, open_mode: OpenMode) -> Result<(), OpenError> {
    let operation = match open_mode {
        OpenMode::Read => return Ok(()),
        OpenMode::Shared => FlockOperation::NonBlockingLockShared,
        OpenMode::Exclusive | OpenMode::CreateExclusive => FlockOperation::NonBlockingLockExclusive,
        OpenMode::CreateAndWait => FlockOperation::LockExclusive,
    };
    match retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::Busy),
        locked => Ok(locked?),
    }
}

fn check_type_and_owner(stat: &Stat, open_mode: OpenMode) -> Result<(), OpenError> {
    let writes = open_mode != OpenMode::Read;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(OpenError::Untrusted(UntrustedFile::Symlink)),
        FileType::RegularFile if writes => Ok(check_owned(stat).map_err(OpenError::Untrusted)?),
        FileType::RegularFile => Ok(()),
        _ => Err(OpenError::Untrusted(UntrustedFile::NotRegular)),
    }
}

/// Whether the owner of a file can replace a file in this directory anyway: the owner owns the
/// directory too, or others may write in it.
fn owner_could_replace(owner: u32, dir: &Stat) -> bool {
    let others = Mode::WGRP | Mode::WOTH;
    let writable_by_others = Mode::from_raw_mode(dir.st_mode).intersects(others);
    owner == dir.st_uid || writable_by_others && !is_sticky_and_world_writable(dir)
}

/// Whether all users may write in the directory, but not change the files of others, as in /tmp.
fn is_sticky_and_world_writable(dir: &Stat) -> bool {
    Mode::from_raw_mode(dir.st_mode).contains(Mode::WOTH | Mode::SVTX)
}

/// Checks that no other user can have created the file or can change it.
pub(crate) fn check_owned(stat: &Stat) -> Result<(), UntrustedFile> {
    if stat.st_nlink != 1 {
        return Err(UntrustedFile::HardLinks);
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(UntrustedFile::Owner);
    }
    Ok(())
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::{super::FileOps, *};
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
    };

    fn dir(path: &Path) -> Dir {
        Dir::new(File::open(path).unwrap().as_fd()).unwrap()
    }

    fn refusal(dir: &Dir, name: &[u8]) -> UntrustedFile {
        match dir.open(name, OpenMode::CreateExclusive) {
            Err(OpenError::Untrusted(refusal)) => refusal,
            opened => panic!("{opened:?}"),
        }
    }

    #[test]
    fn refuses_untrusted_files_and_leaves_them_untouched() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, path) = (dir(temp.path()), |name: &str| temp.path().join(name));
        fs::write(path("precious"), "precious").unwrap();
        symlink("precious", path("symlink")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        fs::hard_link(path("precious"), path("linked")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        rustix::fs::mknodat(&*dir.fd, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(refusal(&dir, b"symlink"), UntrustedFile::Symlink);
        assert_eq!(refusal(&dir, b"dangling"), UntrustedFile::Symlink);
        assert_eq!(refusal(&dir, b"linked"), UntrustedFile::HardLinks);
        assert_eq!(refusal(&dir, b"directory"), UntrustedFile::NotRegular);
        assert_eq!(refusal(&dir, b"fifo"), UntrustedFile::NotRegular);
        assert_eq!(fs::read(path("precious")).unwrap(), b"precious");
        assert!(!path("nowhere").exists());
    }

    #[test]
    fn exclusive_lock_excludes_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        assert!(dir.open(b"a", OpenMode::Exclusive).unwrap().is_none());
        let first = dir.open(b"a", OpenMode::CreateExclusive).unwrap();
        for open_mode in [OpenMode::Exclusive, OpenMode::CreateExclusive] {
            assert!(matches!(dir.open(b"a", open_mode), Err(OpenError::Busy)));
        }
        assert!(dir.open(b"a", OpenMode::Read).unwrap().is_some());
        drop(first);
        assert!(dir.open(b"a", OpenMode::Exclusive).unwrap().is_some());
    }

    #[test]
    fn shared_locks_exclude_an_exclusive_lock() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        assert!(dir.open(b"a", OpenMode::Shared).unwrap().is_none());
        let alone = dir.open(b"a", OpenMode::CreateExclusive).unwrap();
        assert!(matches!(
            dir.open(b"a", OpenMode::Shared),
            Err(OpenError::Busy)
        ));
        drop(alone);
        let shared = [(); 2].map(|()| dir.open(b"a", OpenMode::Shared).unwrap().unwrap());
        assert!(matches!(
            dir.open(b"a", OpenMode::Exclusive),
            Err(OpenError::Busy)
        ));
        drop(shared);
        assert!(dir.open(b"a", OpenMode::Exclusive).unwrap().is_some());
    }

    #[test]
    fn waiting_open_returns_the_file_renamed_meanwhile() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let held = dir.open(b"a", OpenMode::CreateExclusive).unwrap().unwrap();
        held.append(b"old").unwrap();
        let waiting = std::thread::spawn({
            let dir = dir.clone();
            move || dir.open(b"a", OpenMode::CreateAndWait).unwrap().unwrap()
        });
        fs::write(temp.path().join("b"), "newer").unwrap();
        dir.rename(b"b", b"a").unwrap();
        drop(held);
        assert_eq!(FileOps::len(&waiting.join().unwrap()).unwrap(), 5);
    }

    #[test]
    fn shared_file_gets_the_mode_of_its_directory() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for (number, (of_dir, wanted)) in [
            (0o755, 0o644),
            (0o2775, 0o664),
            (0o700, 0o600),
            (0o777, 0o666),
            (0o1777, 0o600),
        ]
        .into_iter()
        .enumerate()
        {
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(of_dir)).unwrap();
            let name = number.to_string();
            dir.open(name.as_bytes(), OpenMode::CreateAndWait).unwrap();
            assert_eq!(mode(&temp.path().join(&name)), wanted, "{of_dir:o}");
            dir.open(format!("own-{name}").as_bytes(), OpenMode::CreateExclusive)
                .unwrap();
            assert_eq!(mode(&temp.path().join(format!("own-{name}"))), 0o600);
        }
        // An existing file keeps its mode: another user's secret may have been placed there.
        fs::write(temp.path().join("secret"), "x").unwrap();
        fs::set_permissions(
            temp.path().join("secret"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        dir.open(b"secret", OpenMode::CreateAndWait).unwrap();
        assert_eq!(mode(&temp.path().join("secret")), 0o600);
    }

    #[test]
    fn accepts_another_users_file_only_where_that_user_could_replace_it() {
        if !longhaul_testprograms::skip::require(rustix::process::geteuid().is_root(), "root") {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let file = temp.path().join("a");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, Some(7), Some(7)).unwrap();
        let opens = |owner, mode, open_mode| {
            std::os::unix::fs::chown(temp.path(), Some(owner), None).unwrap();
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
            dir.open(b"a", open_mode).is_ok()
        };
        assert!(
            opens(0, 0o775, OpenMode::CreateAndWait) && opens(7, 0o755, OpenMode::CreateAndWait)
        );
        assert!(
            opens(0, 0o3775, OpenMode::CreateAndWait) && opens(0, 0o777, OpenMode::CreateAndWait)
        );
        assert!(
            !opens(0, 0o755, OpenMode::CreateAndWait) && !opens(0, 0o1777, OpenMode::CreateAndWait)
        );
        assert!(
            !opens(0, 0o777, OpenMode::CreateExclusive) && !opens(7, 0o755, OpenMode::Exclusive)
        );
    }

    #[test]
    fn creates_no_file_in_a_removed_directory() {
        let temp = tempfile::tempdir().unwrap();
        let gone = temp.path().join("gone");
        fs::create_dir(&gone).unwrap();
        let dir = dir(&gone);
        fs::remove_dir(&gone).unwrap();
        for open_mode in [OpenMode::Read, OpenMode::Exclusive] {
            assert!(dir.open(b"a", open_mode).unwrap().is_none());
        }
        for open_mode in [OpenMode::CreateExclusive, OpenMode::CreateAndWait] {
            let made = dir.open(b"a", open_mode);
            let OpenError::Io(error) = made.unwrap_err() else {
                panic!("another error")
            };
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
