// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with secrets: keys, tokens, passwords.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// Mode bits of the group and of others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Reads the first `bytes_max` bytes of a text file that only its owner may read. The mode of a pipe
/// is not checked, because only this process reads from it.
///
/// # Errors
/// I/O errors, text that is not UTF-8, and a file that its group or others may read, write or execute. The error
/// names no path.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.mode() & GROUP_AND_OTHERS != 0 {
        return Err(io::Error::other(
            "others may read it, and it holds secrets: chmod 600",
        ));
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn refuses_a_file_that_others_may_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "secret").unwrap();
        for (mode, readable) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = read(&path, 100);
            assert_eq!(found.is_ok(), readable, "{mode:o}: {found:?}");
        }
    }

    #[test]
    fn reads_no_more_than_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path, 3).unwrap(), "sec");
    }
}
