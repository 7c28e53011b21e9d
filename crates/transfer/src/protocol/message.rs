// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the two ends of a copy tell each other beside the data: a length (4 bytes, big-endian) and a message (postcard),
//! again and again.

use super::entry::{Entry, Metadata};
use anyhow::{Context as _, Result, ensure};
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, Read, Write},
    ops::Range,
};

/// The longest message. An entry has a path of at most 4 KiB and extended attributes of at most 1 MiB; a file's missing
/// blocks go out in pieces.
const MESSAGE_LEN_MAX: usize = 4 << 20;

/// From the source to the target.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Before everything else: the names of sources that are copied under their names, where anchored patterns begin.
    Tops(Vec<RelPath>),
    /// Something that shall be at the target, too. A number never comes again.
    Entry {
        /// Number of the entry.
        number: u64,
        /// The entry.
        entry: Entry,
        /// The part of it that this conversation brings.
        share: Share,
    },
    /// A file that changed while it was read, as it is now: what arrived of it under its old number is worth nothing.
    Again {
        /// Number that it had before.
        old: u64,
        /// Number of the entry.
        number: u64,
        /// The entry.
        entry: Entry,
        /// The part of it that this conversation brings.
        share: Share,
    },
    /// What is in a source is copied into the target itself, which gets this.
    Top(Metadata),
    /// Something that is not copied by its nature, and not deleted either.
    Spared(RelPath),
    /// Something that the source could not read: the target deletes nothing then.
    Unread,
    /// There are no more entries.
    ScanEnded,
    /// All that was missing of a file was sent at least once, and the file did not change meanwhile. The hash of it, if
    /// all of it was read in this conversation.
    Sealed {
        /// Number of the file.
        file: u64,
        /// BLAKE3 of the content.
        hash: Option<[u8; 32]>,
    },
    /// A file that changed or can't be read any more: what arrived of it is worth nothing.
    Withdrawn {
        /// Number of the file.
        file: u64,
    },
    /// So many streams from now on: for the target, if it is the one that opens them.
    Streams(u16),
    /// The hash of a file as it was announced, which the target asked for.
    Hashed {
        /// Number of the file.
        file: u64,
        /// BLAKE3 of the content.
        hash: [u8; 32],
    },
    /// The source has given up a stream; its far end shall say how much of it arrived.
    Gone {
        /// Number of the stream.
        stream: u64,
    },
}

/// How much of a file a conversation brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// All of it.
    Whole,
    /// These blocks, while others bring the rest; they get no name from it.
    Blocks(Range<u64>),
    /// Others brought all of it in this copy: it gets its name.
    Assembled,
    /// These blocks, and they stay a piece of it.
    Kept(Vec<Range<u64>>),
    /// These blocks, of a piece that was kept elsewhere; with the last piece it gets its name.
    Piece(Vec<Range<u64>>),
}

/// From the target to the source.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// A file is wanted.
    Need {
        /// Number of the file.
        file: u64,
        /// The part that is missing.
        missing: Need,
    },
    /// A file is there in the same size: what is its hash?
    Hash {
        /// Number of the file.
        file: u64,
    },
    /// An entry is done with.
    Settled {
        /// Number of the entry.
        number: u64,
        /// The outcome.
        outcome: Outcome,
    },
    /// So many blocks have arrived on a stream, from its beginning.
    Received {
        /// Number of the stream.
        stream: u64,
        /// Blocks that arrived.
        blocks: u64,
    },
    /// A stream has ended, and this is all that arrived.
    Ended {
        /// Number of the stream.
        stream: u64,
        /// Blocks that arrived.
        blocks: u64,
    },
    /// So many bytes more survive a power loss.
    Durable {
        /// Bytes.
        bytes: u64,
    },
    /// Everything is done: so many things were removed that the source does not have, and so many failed that belong
    /// to no single entry's settlement.
    Over {
        /// Entries removed.
        removed: u64,
        /// Failures.
        failed: u64,
    },
}

/// What is missing of a file.
#[derive(Debug, Serialize, Deserialize)]
pub enum Need {
    /// All of a file of at most one block: so many bytes.
    Whole(u64),
    /// These blocks.
    Blocks(Vec<Range<u64>>),
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was there already.
    Same,
    /// It is there now.
    Made,
    /// The target's is newer, and `--update` says to leave it.
    Newer,
    /// The target does not take its kind.
    NotTaken,
    /// It is there, but for what its file system or the user's rights did not allow.
    MadeWithout(Vec<String>),
    /// It could not be made: why, with its name.
    Failed(String),
}

/// Writes a message; the caller flushes.
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

/// Reads a message; `None` at the end of the conversation.
pub fn read<M: DeserializeOwned>(from: &mut impl Read) -> Result<Option<M>> {
    read_bytes(from)?.map(|bytes| parse(&bytes)).transpose()
}

/// What a message is made of; `None` at the end of the conversation.
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

/// What is in them, which is all.
pub(super) fn parse<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let (message, rest) = postcard::take_from_bytes(bytes).context("not a message")?;
    ensure!(rest.is_empty(), "{} bytes behind a message", rest.len());
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &Answer) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        bytes
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let need = Answer::Need {
            file: 7,
            missing: Need::Blocks(vec![0..3, 9..10]),
        };
        let mut bytes = written(&need);
        bytes.extend(written(&Answer::Over {
            removed: 2,
            failed: 0,
        }));
        let mut from = bytes.as_slice();
        let first: Answer = read(&mut from).unwrap().unwrap();
        assert_eq!(format!("{first:?}"), format!("{need:?}"));
        let second: Answer = read(&mut from).unwrap().unwrap();
        assert!(matches!(second, Answer::Over { removed: 2, .. }));
        assert!(read::<Answer>(&mut from).unwrap().is_none());
    }

    #[test]
    fn what_is_cut_short_too_long_or_nonsense_is_refused() {
        let good = written(&Answer::Over {
            removed: 2,
            failed: 0,
        });
        let refused = |bytes: &[u8]| read::<Answer>(&mut &*bytes).unwrap_err().to_string();
        assert!(!refused(&good[..good.len() - 1]).is_empty());
        assert!(refused(&u32::MAX.to_be_bytes()).contains("too long"));
        assert!(refused(&[0, 0, 0, 1, 99]).contains("not a message"));
        let mut longer = good.clone();
        longer[3] += 1;
        longer.push(0);
        assert!(refused(&longer).contains("1 bytes behind"));
    }
}
