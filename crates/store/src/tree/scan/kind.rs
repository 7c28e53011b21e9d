// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of scanned entries, each from the open handle of the entry.

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

/// Whether a file has data but reports a length of 0, as files in /proc do.
pub(super) fn has_data_at_length_zero(handle: &Handle) -> bool {
    let mut byte = [0];
    let mut has_data = || rustix::io::pread(&handle.fd, &mut byte, 0) == Ok(1);
    // A file that has just grown reports its new length now.
    let still_reports_zero = || fs::fstat(&handle.fd).is_ok_and(|stat| stat.st_size == 0);
    handle.stat.st_size == 0 && has_data() && still_reports_zero()
}

/// Returns the kind of a regular file: its version, and whether it is sparse.
pub(super) fn file_kind(handle: &Handle) -> Kind {
    let occupied = u64::try_from(handle.stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    let version = Version::of(&handle.stat);
    Kind::File {
        version,
        sparse: occupied < version.size,
    }
}

/// Returns the kind of a symbolic link: its target. `path` is for the error message.
pub(super) fn symlink_kind(handle: &Handle, path: &RelPath) -> Result<Kind, Failure> {
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

/// Returns the kind of a device: character or block, and its numbers.
pub(super) fn device_kind(handle: &Handle) -> Kind {
    Kind::Device {
        block: handle.kind() == FileType::BlockDevice,
        major: fs::major(handle.stat.st_rdev),
        minor: fs::minor(handle.stat.st_rdev),
    }
}
