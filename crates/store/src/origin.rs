// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which directory is whose copy. `SRC` copied to a name that is not there becomes it; the same again must mean the same,
//! and not a copy within the copy, as a directory that is there would.
//!
//! Beside the directory NAME stands `.longhaul-HASH.origin`: what it is a copy of (32 bytes, the caller's) and its number in
//! the file system (8, big-endian), so that another directory of that name is not meant; 0 while it is about to be made. HASH
//! is as in [`crate::part`].

use crate::{
    medium::{Directory, How, Medium, OpenError},
    part::own_name,
};
use std::io;

/// No directory has this number.
pub const NOT_YET: u64 = 0;

/// Bytes in the note.
const LEN: usize = 40;

/// What something is a copy of: a digest that the caller makes.
pub type Origin = [u8; 32];

/// Notes durably that the directory `name` in `dir`, of this inode, or the one that will be made if it is [`NOT_YET`], is the
/// copy of `origin`.
///
/// # Errors
/// The system refuses to.
pub fn note<D: Directory>(
    dir: &D,
    name: &[u8],
    inode: u64,
    origin: &Origin,
) -> Result<(), OpenError> {
    if read(dir, name)? == bytes(inode, origin) {
        return Ok(());
    }
    let file = dir.open(&note_name(name), How::MakeAndWait)?;
    let file = file.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    // Never empty once it was there: another copy may read it at any moment.
    file.write_at(&bytes(inode, origin), 0)?;
    file.set_len(LEN as u64)?;
    file.sync_data()?;
    Ok(dir.sync()?)
}

/// Whether the directory `name` in `dir`, of this inode, is the copy of `origin`.
///
/// # Errors
/// What stands in the note's place is no file, or can't be read.
pub fn is_copy<D: Directory>(
    dir: &D,
    name: &[u8],
    inode: u64,
    origin: &Origin,
) -> Result<bool, OpenError> {
    let noted = read(dir, name)?;
    Ok([inode, NOT_YET]
        .iter()
        .any(|inode| noted == bytes(*inode, origin)))
}

/// As far as it can be one.
fn read<D: Directory>(dir: &D, name: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut there = vec![0; LEN + 1];
    let length = match dir.open(&note_name(name), How::Read)? {
        Some(file) => file.read_at(&mut there, 0)?,
        None => 0,
    };
    there.truncate(length);
    Ok(there)
}

fn note_name(name: &[u8]) -> Vec<u8> {
    own_name(name, "origin")
}

fn bytes(inode: u64, origin: &Origin) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..32].copy_from_slice(origin);
    bytes[32..].copy_from_slice(&inode.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::simulated::{Dice, Disk};

    #[test]
    fn a_directory_is_the_copy_of_what_was_noted_and_of_nothing_else() {
        let dir = Disk::default().directory();
        let is = |name: &[u8], inode, origin| is_copy(&dir, name, inode, &[origin; 32]).unwrap();
        assert!(!is(b"a", 7, 1));
        note(&dir, b"a", 7, &[1; 32]).unwrap();
        assert!(is(b"a", 7, 1));
        assert!(!is(b"a", 8, 1) && !is(b"a", 7, 2) && !is(b"b", 7, 1));
        note(&dir, b"a", 9, &[2; 32]).unwrap();
        assert!(is(b"a", 9, 2) && !is(b"a", 7, 1));
        note(&dir, b"b", NOT_YET, &[3; 32]).unwrap();
        assert!(is(b"b", 7, 3) && !is(b"b", 7, 2));
        note(&dir, b"b", 8, &[3; 32]).unwrap();
        assert!(is(b"b", 8, 3) && !is(b"b", 7, 3));
    }

    #[test]
    fn a_note_survives_a_loss_of_power() {
        let disk = Disk::default();
        let dir = disk.directory();
        note(&dir, b"a", 7, &[1; 32]).unwrap();
        disk.crash(&mut Dice(1));
        assert!(is_copy(&dir, b"a", 7, &[1; 32]).unwrap());
    }
}
