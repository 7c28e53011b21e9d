// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of scanned entries.

use crate::{
    entry::{Kind, TARGET_LEN_MAX, Version},
    metadata::handle::Handle,
    path::RelPath,
    root::Failure,
};
use rustix::{
    fs::{self, FileType},
    io::Errno,
};

/// Whether a file has data although its length is 0, as in /proc, and has not just grown.
pub(super) fn has_no_length(handle: &Handle) -> bool {
    let mut byte = [0];
    let mut reads = || rustix::io::pread(&handle.fd, &mut byte, 0) == Ok(1);
    let is_empty = || fs::fstat(&handle.fd).is_ok_and(|stat| stat.st_size == 0);
    handle.stat.st_size == 0 && reads() && is_empty()
}

/// Regular file that a scan found, with its version, and whether it is sparse.
pub(super) fn file(handle: &Handle) -> Kind {
    let occupied = u64::try_from(handle.stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    let version = Version::of(&handle.stat);
    Kind::File {
        version,
        sparse: occupied < version.size,
    }
}

/// Symbolic link that a scan found at `path`.
pub(super) fn symlink(handle: &Handle, path: &RelPath) -> Result<Kind, Failure> {
    let failed = Failure::at(Some(path), "read the symbolic link");
    let target = fs::readlinkat(&handle.fd, c"", Vec::new()).map_err(&failed)?;
    let target = target.into_bytes();
    if target.is_empty() || target.len() > TARGET_LEN_MAX {
        return Err(failed(Errno::NAMETOOLONG));
    }
    Ok(Kind::Symlink {
        target: target.into(),
    })
}

/// Character or block device that a scan found.
pub(super) fn device(handle: &Handle) -> Kind {
    Kind::Device {
        block: handle.kind() == FileType::BlockDevice,
        major: fs::major(handle.stat.st_rdev),
        minor: fs::minor(handle.stat.st_rdev),
    }
}
