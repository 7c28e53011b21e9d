// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directory of the real file system, and the files in it that are not trusted.

use super::{Directory, How, OpenError, Refusal};
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
    fn attempt(&self, name: &[u8], how: How) -> Result<Option<Option<File>>, OpenError> {
        let flags = match (self.stat(name)?, how) {
            (Some(stat), _) => {
                self.acceptable(&stat, how)?;
                access(how)
            }
            (None, How::Read | How::Share | How::Hold) => return Ok(Some(None)),
            (None, How::Make | How::MakeAndWait) => access(how) | OFlags::CREATE | OFlags::EXCL,
        };
        let made = flags.contains(OFlags::CREATE) && how == How::MakeAndWait;
        match self.openat(name, flags) {
            Ok(file) => {
                if made {
                    self.share(&file)?;
                }
                Ok(self.held(name, file, how)?.map(Some))
            }
            // No file can be created in a directory that was removed, however often it is tried.
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Err(Errno::NOENT.into()),
            Err(Errno::NOENT | Errno::EXIST) => Ok(None),
            Err(Errno::LOOP) => Err(OpenError::Refused(Refusal::Symlink)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn openat(&self, name: &[u8], flags: OFlags) -> Result<File, Errno> {
        let harmless = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || rustix::fs::openat(&*self.fd, name, flags | harmless, mode);
        retry_on_intr(open).map(File::from)
    }

    /// Locks a file and returns it, unless it lost its name before it was locked: the last holder
    /// may have renamed or removed it.
    fn held(&self, name: &[u8], file: File, how: How) -> Result<Option<File>, OpenError> {
        lock(&file, how)?;
        if !self.names(name, &file)? {
            return Ok(None);
        }
        self.acceptable(&rustix::fs::fstat(&file)?, how)?;
        Ok(Some(file))
    }

    /// Gives a file that was just created to all users who may write in this directory. Permissions
    /// that the file system does not allow stay as they are.
    fn share(&self, file: &File) -> Result<(), Errno> {
        let dir = rustix::fs::fstat(&*self.fd)?;
        if is_for_strangers(&dir) {
            return Ok(());
        }
        let root = rustix::process::geteuid().is_root();
        let owner = root.then_some(Uid::from_raw(dir.st_uid));
        let group = Gid::from_raw(dir.st_gid);
        let given = rustix::fs::fchown(file, owner, Some(group));
        let mode = Mode::from_raw_mode(dir.st_mode) & READ_AND_WRITE;
        // A group other than the directory's gets the permissions of all others.
        let everybody = Mode::from_raw_mode((mode & Mode::RWXO).as_raw_mode() << 3);
        let mode = match given {
            Ok(()) => mode,
            Err(_) => (mode - Mode::RWXG) | everybody,
        };
        let _ = rustix::fs::fchmod(file, mode | Mode::RUSR | Mode::WUSR);
        acl::share(&self.fd, file, given.is_ok());
        Ok(())
    }

    fn acceptable(&self, stat: &Stat, how: How) -> Result<(), OpenError> {
        match acceptable(stat, how) {
            Err(OpenError::Refused(Refusal::Owner)) if how == How::MakeAndWait => {
                let dir = rustix::fs::fstat(&*self.fd)?;
                match may_be_replaced(stat.st_uid, &dir) {
                    true => Ok(()),
                    false => Err(OpenError::Refused(Refusal::Owner)),
                }
            }
            other => other,
        }
    }
}

impl Directory for Dir {
    type File = File;

    fn open(&self, name: &[u8], how: How) -> Result<Option<File>, OpenError> {
        loop {
            if let Some(opened) = self.attempt(name, how)? {
                return Ok(opened);
            }
        }
    }

    fn displace(&self, name: &[u8]) -> Result<(), OpenError> {
        let Some(stat) = self.stat(name)? else {
            return Ok(());
        };
        acceptable(&stat, How::Read)?;
        // Locking needs write permission on some file systems, and read permission on others.
        let opened = match self.openat(name, OFlags::RDWR) {
            Err(Errno::ACCESS) => self.openat(name, OFlags::RDONLY),
            opened => opened,
        };
        let file = match opened {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        lock(&file, How::Hold)?;
        match self.names(name, &file)? {
            true => Ok(self.remove(name)?),
            // Renamed meanwhile; the file that has the name now belongs to another process.
            false => Err(OpenError::Busy),
        }
    }

    fn names(&self, name: &[u8], file: &File) -> io::Result<bool> {
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
        Ok(rustix::fs::fsync(self.fd.as_fd())?)
    }

    fn id(&self) -> (u64, u64) {
        self.id
    }
}

fn access(how: How) -> OFlags {
    match how {
        How::Read => OFlags::RDONLY,
        How::Share | How::Hold | How::Make | How::MakeAndWait => OFlags::RDWR,
    }
}

fn lock(file: &File, how: How) -> Result<(), OpenError> {
    let operation = match how {
        How::Read => return Ok(()),
        How::Share => FlockOperation::NonBlockingLockShared,
        How::Hold | How::Make => FlockOperation::NonBlockingLockExclusive,
        How::MakeAndWait => FlockOperation::LockExclusive,
    };
    match retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::Busy),
        locked => Ok(locked?),
    }
}

fn acceptable(stat: &Stat, how: How) -> Result<(), OpenError> {
    let writes = how != How::Read;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(OpenError::Refused(Refusal::Symlink)),
        FileType::RegularFile if writes => Ok(ours(stat).map_err(OpenError::Refused)?),
        FileType::RegularFile => Ok(()),
        _ => Err(OpenError::Refused(Refusal::NotRegular)),
    }
}

/// Whether the owner of a file can replace a file in this directory anyway: the directory is his,
/// or others may write in it.
fn may_be_replaced(owner: u32, dir: &Stat) -> bool {
    let others = Mode::WGRP | Mode::WOTH;
    let written = Mode::from_raw_mode(dir.st_mode).intersects(others);
    owner == dir.st_uid || written && !is_for_strangers(dir)
}

/// Whether all users may write in the directory, but not change the files of others, as in /tmp.
fn is_for_strangers(dir: &Stat) -> bool {
    Mode::from_raw_mode(dir.st_mode).contains(Mode::WOTH | Mode::SVTX)
}

/// Checks that no other user can have created the file or can change it.
pub(crate) fn ours(stat: &Stat) -> Result<(), Refusal> {
    if stat.st_nlink != 1 {
        return Err(Refusal::HardLinks);
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Refusal::Owner);
    }
    Ok(())
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::{super::Medium, *};
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
    };

    fn dir(path: &Path) -> Dir {
        Dir::new(File::open(path).unwrap().as_fd()).unwrap()
    }

    fn refusal(dir: &Dir, name: &[u8]) -> Refusal {
        match dir.open(name, How::Make) {
            Err(OpenError::Refused(refusal)) => refusal,
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
        assert_eq!(refusal(&dir, b"symlink"), Refusal::Symlink);
        assert_eq!(refusal(&dir, b"dangling"), Refusal::Symlink);
        assert_eq!(refusal(&dir, b"linked"), Refusal::HardLinks);
        assert_eq!(refusal(&dir, b"directory"), Refusal::NotRegular);
        assert_eq!(refusal(&dir, b"fifo"), Refusal::NotRegular);
        assert_eq!(fs::read(path("precious")).unwrap(), b"precious");
        assert!(!path("nowhere").exists());
    }

    #[test]
    fn exclusive_lock_excludes_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        assert!(dir.open(b"a", How::Hold).unwrap().is_none());
        let first = dir.open(b"a", How::Make).unwrap();
        for how in [How::Hold, How::Make] {
            assert!(matches!(dir.open(b"a", how), Err(OpenError::Busy)));
        }
        assert!(dir.open(b"a", How::Read).unwrap().is_some());
        drop(first);
        assert!(dir.open(b"a", How::Hold).unwrap().is_some());
    }

    #[test]
    fn shared_locks_exclude_an_exclusive_lock() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        assert!(dir.open(b"a", How::Share).unwrap().is_none());
        let alone = dir.open(b"a", How::Make).unwrap();
        assert!(matches!(dir.open(b"a", How::Share), Err(OpenError::Busy)));
        drop(alone);
        let shared = [(); 2].map(|()| dir.open(b"a", How::Share).unwrap().unwrap());
        assert!(matches!(dir.open(b"a", How::Hold), Err(OpenError::Busy)));
        drop(shared);
        assert!(dir.open(b"a", How::Hold).unwrap().is_some());
    }

    #[test]
    fn waiting_open_returns_the_file_renamed_meanwhile() {
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let held = dir.open(b"a", How::Make).unwrap().unwrap();
        held.append(b"old").unwrap();
        let waiting = std::thread::spawn({
            let dir = dir.clone();
            move || dir.open(b"a", How::MakeAndWait).unwrap().unwrap()
        });
        fs::write(temp.path().join("b"), "newer").unwrap();
        dir.rename(b"b", b"a").unwrap();
        drop(held);
        assert_eq!(Medium::len(&waiting.join().unwrap()).unwrap(), 5);
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
            dir.open(name.as_bytes(), How::MakeAndWait).unwrap();
            assert_eq!(mode(&temp.path().join(&name)), wanted, "{of_dir:o}");
            dir.open(format!("own-{name}").as_bytes(), How::Make)
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
        dir.open(b"secret", How::MakeAndWait).unwrap();
        assert_eq!(mode(&temp.path().join("secret")), 0o600);
    }

    #[test]
    fn accepts_another_users_file_only_where_he_could_replace_it() {
        if !longhaul_testbed::skip::unless(rustix::process::geteuid().is_root(), "root") {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = dir(temp.path());
        let file = temp.path().join("a");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, Some(7), Some(7)).unwrap();
        let opens = |owner, mode, how| {
            std::os::unix::fs::chown(temp.path(), Some(owner), None).unwrap();
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
            dir.open(b"a", how).is_ok()
        };
        assert!(opens(0, 0o775, How::MakeAndWait) && opens(7, 0o755, How::MakeAndWait));
        assert!(opens(0, 0o3775, How::MakeAndWait) && opens(0, 0o777, How::MakeAndWait));
        assert!(!opens(0, 0o755, How::MakeAndWait) && !opens(0, 0o1777, How::MakeAndWait));
        assert!(!opens(0, 0o777, How::Make) && !opens(7, 0o755, How::Hold));
    }

    #[test]
    fn creates_no_file_in_a_removed_directory() {
        let temp = tempfile::tempdir().unwrap();
        let gone = temp.path().join("gone");
        fs::create_dir(&gone).unwrap();
        let dir = dir(&gone);
        fs::remove_dir(&gone).unwrap();
        for how in [How::Read, How::Hold] {
            assert!(dir.open(b"a", how).unwrap().is_none());
        }
        for how in [How::Make, How::MakeAndWait] {
            let made = dir.open(b"a", how);
            let OpenError::Io(error) = made.unwrap_err() else {
                panic!("another error")
            };
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
