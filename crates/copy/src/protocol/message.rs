// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control messages between the two endpoints of a copy. Each is a length (4 bytes, big-endian) and a message in
//! postcard encoding.

use super::sections::SectionHash;
use anyhow::{Context as _, Result, ensure};
use longhaul_store::{blocks::FileHash, entry::Entry, metadata::Metadata, path::RelPath};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, Read, Write},
    ops::Range,
};

/// Maximum length of a message, in bytes. An entry has a path of at most 4 KiB and extended attributes of at most 1 MiB.
/// The missing blocks of a file are divided over several messages.
const MESSAGE_LEN_MAX: usize = 4 << 20;

/// Message from the source to the target.
#[derive(Debug, Serialize, Deserialize)]
pub enum SourceMsg {
    /// Names of the sources that are copied under their own names. Anchored patterns start at these. Sent before all else.
    Roots(Vec<RelPath>),
    /// Announcement of an entry to copy. A number is used only once.
    Entry {
        /// Number of the entry.
        number: u64,
        /// The entry.
        entry: Entry,
        /// Part of the file that this session carries.
        portion: Portion,
    },
    /// New announcement of a file that changed while it was read. The target discards the blocks that it received under the
    /// old number.
    Reannounce {
        /// Number of the earlier announcement.
        old: u64,
        /// Number of the entry.
        number: u64,
        /// The entry.
        entry: Entry,
        /// Part of the file that this session carries.
        portion: Portion,
    },
    /// Metadata for the target itself, if the contents of a source are copied directly into it.
    RootMetadata(Metadata),
    /// Path of an entry that is neither copied nor deleted, because of its type.
    Excluded(RelPath),
    /// The source could not read an entry. The target then deletes nothing.
    ScanError,
    /// End of the announcements.
    ScanEnded,
    /// All missing blocks of a file were sent at least once, and the file did not change meanwhile.
    Sealed {
        /// Number of the file.
        file: u64,
        /// BLAKE3 hash of the contents, if the whole file was read in this session.
        hash: Option<FileHash>,
    },
    /// The file changed or became unreadable. The target discards the blocks that it received.
    Aborted {
        /// Number of the file.
        file: u64,
    },
    /// Number of streams from now on, for a target that opens the streams.
    StreamCount(u16),
    /// Hash of a file as announced, in reply to the target's request.
    HashReply {
        /// Number of the file.
        file: u64,
        /// BLAKE3 hash of the contents.
        hash: FileHash,
    },
    /// The source has abandoned a stream. The target replies how many of its blocks arrived.
    StreamAbandoned {
        /// Number of the stream.
        stream: u64,
    },
    /// Entry that will be announced. Sent before all announcements, for a target that is to remove other entries.
    Planned {
        /// Path of the entry.
        path: RelPath,
        /// Whether the entry is a directory.
        is_directory: bool,
    },
    /// The contents of a source will be copied directly into the target.
    PlannedContents,
    /// End of the planned entries.
    PlanEnded,
}

/// Part of a file that a session carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Portion {
    /// The whole file.
    Whole,
    /// These blocks. Other sessions carry the rest, and the file is not renamed to its final name yet.
    Blocks(Range<u64>),
    /// No blocks. Other sessions of this copy carried all of them, and the file is renamed to its final name.
    Finalize,
    /// These blocks, which the target stores permanently as a piece of the file.
    KeepPiece(Vec<Range<u64>>),
    /// These blocks, from a piece that another host stores. After the last piece the file is renamed to its final name.
    JoinPiece(Vec<Range<u64>>),
}

/// Message from the target to the source.
#[derive(Debug, Serialize, Deserialize)]
pub enum TargetMsg {
    /// Request for blocks of a file.
    Request {
        /// Number of the file.
        file: u64,
        /// Blocks that the target lacks.
        missing: MissingBlocks,
    },
    /// Request for the hash of a file that the target has with the same size.
    HashRequest {
        /// Number of the file.
        file: u64,
    },
    /// Result of an entry, which ends its processing.
    EntryDone {
        /// Number of the entry.
        number: u64,
        /// Result.
        outcome: Outcome,
    },
    /// Number of blocks that have arrived on a stream since its start.
    Received {
        /// Number of the stream.
        stream: u64,
        /// Blocks that arrived.
        blocks: u64,
    },
    /// Final number of blocks that arrived on a stream, after its end.
    StreamEnded {
        /// Number of the stream.
        stream: u64,
        /// Blocks that arrived.
        blocks: u64,
    },
    /// Number of further bytes that are durable: they survive a power loss.
    Durable {
        /// Bytes.
        bytes: u64,
    },
    /// The target has finished.
    Finished {
        /// Entries removed that the source does not have.
        removed: u64,
        /// Failures that no entry's result reports.
        failed: u64,
    },
}

/// Blocks of a file that the target lacks.
#[derive(Debug, Serialize, Deserialize)]
pub enum MissingBlocks {
    /// The whole file of at most one block, with its size in bytes.
    Whole(u64),
    /// Ranges of blocks.
    Blocks(Vec<Range<u64>>),
    /// Ranges of blocks of a file that the target has in another version.
    Changed {
        /// Ranges of blocks.
        blocks: Vec<Range<u64>>,
        /// Hashes of the first sections of that version, at most [`SECTIONS_MAX`](super::sections::SECTIONS_MAX). The source need not send sections
        /// with these.
        known: Vec<SectionHash>,
    },
}

/// Result of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The target has the entry already.
    Unchanged,
    /// The entry was created or changed.
    Copied,
    /// The target's file is newer, and `--update` leaves it alone.
    Newer,
    /// The options exclude entries of this kind.
    Skipped,
    /// The entry was created or changed, but without the listed metadata: the file system or the user's rights did not
    /// allow it.
    CopiedWithout(Vec<String>),
    /// The entry could not be copied. The text gives its name and the reason.
    Failed(String),
}

/// Writes a message. The caller flushes.
pub fn write(to: &mut (impl Write + ?Sized), message: &impl Serialize) -> Result<()> {
    let bytes = postcard::to_stdvec(message).context("cannot write a message")?;
    ensure!(
        bytes.len() <= MESSAGE_LEN_MAX,
        "a message of {} bytes is too long",
        bytes.len()
    );
    to.write_all(&u32::try_from(bytes.len())?.to_be_bytes())?;
    Ok(to.write_all(&bytes)?)
}

/// Reads a message; `None` at the end of the stream.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> Result<Option<M>> {
    read_bytes(from)?.map(|bytes| parse(&bytes)).transpose()
}

/// Reads the bytes of a message; `None` at the end of the stream.
pub(super) fn read_bytes(from: &mut impl Read) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes(length) as usize;
    ensure!(
        length <= MESSAGE_LEN_MAX,
        "a message of {length} bytes is too long"
    );
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Decodes a message, which must fill all the bytes.
pub(super) fn parse<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let (message, rest) = postcard::take_from_bytes(bytes).context("not a message")?;
    ensure!(rest.is_empty(), "{} bytes after a message", rest.len());
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(message: &TargetMsg) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        bytes
    }

    #[test]
    fn messages_round_trip() {
        let need = TargetMsg::Request {
            file: 7,
            missing: MissingBlocks::Blocks(vec![0..3, 9..10]),
        };
        let mut bytes = encoded(&need);
        bytes.extend(encoded(&TargetMsg::Finished {
            removed: 2,
            failed: 0,
        }));
        let mut from = bytes.as_slice();
        let first: TargetMsg = read(&mut from).unwrap().unwrap();
        assert_eq!(format!("{first:?}"), format!("{need:?}"));
        let second: TargetMsg = read(&mut from).unwrap().unwrap();
        assert!(matches!(second, TargetMsg::Finished { removed: 2, .. }));
        assert!(read::<TargetMsg>(&mut from).unwrap().is_none());
    }

    #[test]
    fn rejects_truncated_overlong_and_invalid_messages() {
        let good = encoded(&TargetMsg::Finished {
            removed: 2,
            failed: 0,
        });
        let refused = |bytes: &[u8]| read::<TargetMsg>(&mut &*bytes).unwrap_err().to_string();
        assert!(!refused(&good[..good.len() - 1]).is_empty());
        assert!(refused(&u32::MAX.to_be_bytes()).contains("too long"));
        assert!(refused(&[0, 0, 0, 1, 99]).contains("not a message"));
        let mut longer = good.clone();
        longer[3] += 1;
        longer.push(0);
        assert!(refused(&longer).contains("1 bytes after"));
    }
}
