// SPDX-License-Identifier: MIT OR Apache-2.0
//! Format of a piece header: a format number and the file's entry as postcard, and the BLAKE3 of
//! both. Any user who may write in the directory may have written it. So it is trusted only for the
//! file whose hash is in the piece header's name.

use crate::{
    blocks::FILE_LEN_MAX,
    entry::{Entry, Kind, Version},
    path::{RelPath, internal_name},
    vfs::UntrustedFile,
};
use rustix::io::Errno;

/// Maximum bytes in a piece header: an entry has up to 256 KiB of attributes. Reading a piece
/// header takes as much memory, and up to 64 MiB more if it was crafted for that.
pub const PIECE_HEADER_LEN_MAX: usize = 2 << 20;

const FORMAT: u32 = 2;

/// Reason why an internal file of a piece is not trusted, or not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PieceHeaderError {
    /// Error of the system.
    #[error("cannot read it: {0}")]
    System(#[from] Errno),
    /// The file may have been placed by another user.
    #[error("{0}")]
    Untrusted(UntrustedFile),
    /// Longer than [`PIECE_HEADER_LEN_MAX`].
    #[error("longer than a piece header may be, {PIECE_HEADER_LEN_MAX} bytes")]
    TooLong,
    /// The bytes are damaged.
    #[error("not a piece header, or damaged")]
    Damaged,
    /// Written by a later version of this program.
    #[error("a piece header in a format that this version does not know")]
    Format,
    /// The entry's name does not fit the piece header's name, or is not allowed.
    #[error("a piece header with the name of another file in it")]
    Name,
    /// The entry is a directory, a link or a special file.
    #[error("its entry is not a file that can be in pieces")]
    NotAFile,
    /// The part is of another file or of another version.
    #[error("the part is not of this version of this file")]
    OtherVersion,
    /// The part is a slice: other processes write the same file.
    #[error("this is only a slice of the file")]
    Slice,
}

/// Version of the entry, if it is a file that can be kept in pieces.
pub(crate) fn file_version(entry: &Entry) -> Result<&Version, PieceHeaderError> {
    match &entry.kind {
        Kind::File { version, .. } if version.size <= FILE_LEN_MAX => Ok(version),
        _ => Err(PieceHeaderError::NotAFile),
    }
}

/// Encodes a piece header for this entry. Only the last component of its path is kept.
pub(crate) fn encode(entry: &Entry) -> Result<Vec<u8>, PieceHeaderError> {
    let entry = Entry {
        path: RelPath::parse(entry.path.name()).map_err(|_| PieceHeaderError::Name)?,
        ..entry.clone()
    };
    let bytes = postcard::to_stdvec(&(FORMAT, &entry)).map_err(|_| PieceHeaderError::Damaged)?;
    let header = seal(bytes);
    // Checks that the piece header can be read again.
    decode(&header, &internal_name(entry.path.name(), "piece"))?;
    Ok(header)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = blake3::hash(&bytes);
    bytes.extend(check.as_bytes());
    bytes
}

/// Decodes the piece header with the name `own`.
pub(crate) fn decode(header: &[u8], internal: &[u8]) -> Result<Entry, PieceHeaderError> {
    if header.len() > PIECE_HEADER_LEN_MAX {
        return Err(PieceHeaderError::TooLong);
    }
    let entry = open(header)?;
    let name = entry.path.as_bytes();
    let plain = entry.path.components().count() == 1 && !entry.path.is_internal();
    if !plain || internal_name(name, "piece") != internal {
        return Err(PieceHeaderError::Name);
    }
    file_version(&entry)?;
    Ok(entry)
}

fn open(header: &[u8]) -> Result<Entry, PieceHeaderError> {
    let damaged = |_| PieceHeaderError::Damaged;
    let (bytes, check) = header
        .split_last_chunk::<32>()
        .ok_or(PieceHeaderError::Damaged)?;
    if blake3::hash(bytes).as_bytes() != check {
        return Err(PieceHeaderError::Damaged);
    }
    let (format, rest) = postcard::take_from_bytes::<u32>(bytes).map_err(damaged)?;
    if format != FORMAT {
        return Err(PieceHeaderError::Format);
    }
    match postcard::take_from_bytes(rest) {
        Ok((entry, [])) => Ok(entry),
        _ => Err(PieceHeaderError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Metadata, Time, XATTRS_MAX, Xattr};
    use proptest::{collection::vec, prelude::*};

    fn entry(path: &[u8]) -> Entry {
        let time = Time {
            seconds: -5,
            nanos: 7,
        };
        let version = Version {
            size: FILE_LEN_MAX,
            modified: time,
            changed: time,
            inode: 3,
            device: 4,
        };
        Entry {
            path: RelPath::parse(path).unwrap(),
            kind: Kind::File {
                version,
                sparse: true,
            },
            metadata: Metadata {
                mode: 0o4755,
                xattrs: vec![Xattr {
                    name: (*b"user.a").into(),
                    value: [0; XATTRS_MAX].into(),
                }],
                ..Metadata::default()
            },
        }
    }

    fn internal(name: &[u8]) -> Vec<u8> {
        internal_name(name, "piece")
    }

    fn forged(format: u32, entry: &Entry) -> Vec<u8> {
        seal(postcard::to_stdvec(&(format, entry)).unwrap())
    }

    #[test]
    fn decodes_an_entry_under_its_last_name() {
        let header = encode(&entry(b"a/b/na\xffme")).unwrap();
        assert_eq!(
            decode(&header, &internal(b"na\xffme")),
            Ok(entry(b"na\xffme"))
        );
        assert_eq!(
            decode(&header, &internal(b"name")),
            Err(PieceHeaderError::Name)
        );
    }

    #[test]
    fn rejects_piece_headers_of_other_directories_and_internal_names() {
        for name in [&b"a/b"[..], b".longhaul-0.x", b".longhaul-0.x/y"] {
            let header = forged(FORMAT, &entry(name));
            assert_eq!(
                decode(&header, &internal(name)),
                Err(PieceHeaderError::Name)
            );
        }
        let like_a_path = |name: &[u8]| {
            let entry = entry(b"x");
            let header = (FORMAT, name, entry.kind, entry.metadata);
            decode(
                &seal(postcard::to_stdvec(&header).unwrap()),
                &internal(name),
            )
        };
        assert!(like_a_path(b"x").is_ok());
        for name in [&b"../x"[..], b"/x", b"..", b"", b"x/", b"x\0"] {
            assert_eq!(like_a_path(name), Err(PieceHeaderError::Damaged));
        }
    }

    #[test]
    fn rejects_entries_that_cannot_have_a_piece_header() {
        let mut other = entry(b"x");
        other.kind = Kind::Directory;
        assert_eq!(encode(&other), Err(PieceHeaderError::NotAFile));
        assert_eq!(
            decode(&forged(FORMAT, &other), &internal(b"x")),
            Err(PieceHeaderError::NotAFile)
        );
        let mut long = entry(b"x");
        if let Kind::File { version, .. } = &mut long.kind {
            version.size += 1;
        }
        assert_eq!(encode(&long), Err(PieceHeaderError::NotAFile));
        let mut large = entry(b"x");
        large.metadata.xattrs[0].value = vec![0; PIECE_HEADER_LEN_MAX].into();
        assert_eq!(encode(&large), Err(PieceHeaderError::TooLong));
        assert_eq!(
            encode(&entry(b".longhaul-0.x")),
            Err(PieceHeaderError::Name)
        );
    }

    #[test]
    fn reports_an_unknown_format() {
        let header = forged(FORMAT + 1, &entry(b"x"));
        assert_eq!(
            decode(&header, &internal(b"x")),
            Err(PieceHeaderError::Format)
        );
    }

    #[test]
    fn detects_damage_at_any_byte() {
        let mut small = entry(b"x");
        small.metadata.xattrs.clear();
        let header = encode(&small).unwrap();
        for at in 0..header.len() {
            let mut damaged = header.clone();
            damaged[at] ^= 1;
            assert_eq!(
                decode(&damaged, &internal(b"x")),
                Err(PieceHeaderError::Damaged)
            );
            assert_eq!(
                decode(&header[..at], &internal(b"x")),
                Err(PieceHeaderError::Damaged)
            );
        }
        let longer = seal([&header[..header.len() - 32], b"?"].concat());
        assert_eq!(
            decode(&longer, &internal(b"x")),
            Err(PieceHeaderError::Damaged)
        );
    }

    /// Accepts an error, or a file of this name in this very directory.
    fn assert_harmless(header: &[u8], name: &[u8]) {
        if let Ok(entry) = decode(header, &internal(name)) {
            assert_eq!(entry.path.as_bytes(), name);
            assert_eq!(entry.path.components().count(), 1);
            assert!(!entry.path.is_internal() && file_version(&entry).is_ok());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_harmless(bytes in vec(any::<u8>(), 0..200), name in vec(any::<u8>(), 0..6)) {
            assert_harmless(&bytes, &name);
            assert_harmless(&seal(bytes.clone()), &name);
            assert_harmless(&seal([&[1][..], &bytes].concat()), &name);
        }

        /// A user who crafts piece headers computes the check, too.
        #[test]
        fn changed_piece_headers_are_harmless(damage in vec((0usize..90, any::<u8>()), 0..6)) {
            let mut small = entry(b"..x");
            small.metadata.xattrs.clear();
            let header = encode(&small).unwrap();
            let mut bytes = header[..header.len() - 32].to_vec();
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let header = seal(bytes);
            for name in [&b"..x"[..], b"..", b"./x", b"../", b"/.x", b"..\0", b"."] {
                assert_harmless(&header, name);
            }
        }
    }
}
