// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul copy` and the two ends that it starts tell each other, over pipes or ssh: messages as
//! [`crate::protocol::message`] frames them, behind a line that tells them from whatever a login prints.

use super::{
    entry::Version,
    options::{Options, Ports},
    sources::Sources,
    spread::{Placement, Share},
};
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

/// To an end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Which end it is.
    pub role: Role,
    /// Sources, or the one target.
    pub paths: Vec<Vec<u8>>,
    /// How the copy is done.
    pub options: Options,
    /// DER.
    pub peer_certificate: Vec<u8>,
    /// How it meets the other end.
    pub meeting: Meeting,
    /// What it does of the copy.
    pub task: Task,
    /// For a target: where the sources are.
    pub sources: Sources,
    /// For a target that keeps shares of trees that were spread: which.
    pub shares: Vec<Share>,
}

/// What is to be done of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// All of it.
    Whole,
    /// Only to say where the sources are: for a source, which meets nobody then.
    Locate,
    /// Only to say what there is, pieces of files included: for a source, which meets nobody then.
    Survey,
    /// What one of several targets keeps, each on disks of its own: some files, and pieces of large ones.
    Spread(Placement),
    /// All that one of several such hosts has, pieces included: a file gets its name when the last of them has come.
    Gather(Pass),
    /// All that one of them has, pieces as pieces, for one that keeps them.
    Pieces,
    /// The data of extents, as the driver assigns them. What belongs to no file's data comes with another conversation.
    Extents,
    /// For targets of several hosts, before anything else: one makes a file of this number in the target's directory, and
    /// takes it away when its standard input ends; the others say whether they see it.
    Mark(u128),
    /// Says whether the file of this number is there.
    Seek(u128),
}

/// Gathering from several hosts: what has to be done while others are at it, and what after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pass {
    /// Files, and all else but the metadata of directories, in which others may still write.
    Data,
    /// That, too, and what changed or failed meanwhile.
    Last,
}

/// To a source that copies extents, while it does.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// Another one. Numbers are the driver's.
    Assignment {
        /// By which reports name it.
        number: u64,
        /// What to copy.
        extent: Extent,
    },
    /// So many milliseconds from now on it may go on; after that others may have what it was assigned.
    Until(u32),
    /// There are no more.
    Enough,
}

/// Work for one mover: data of a source, some GiB of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Which source it is of, from 0.
    pub source: u32,
    /// What of it.
    pub content: Content,
}

/// What of a source an extent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Whole files, as they are called in the copy.
    Files(Vec<RelPath>),
    /// Blocks of a file.
    Blocks {
        /// As the file is called in the copy.
        path: RelPath,
        /// Which, from 0.
        blocks: Range<u64>,
        /// Of which state of the file.
        version: Version,
    },
    /// A file of which others brought the blocks: it gets its name.
    Name(RelPath),
}

/// The two ends of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reads files, and sends.
    Source,
    /// Receives, and writes files.
    Target,
}

impl Role {
    /// For lines and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }
}

/// How the two find each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meeting {
    /// Says another message, once this end is ready.
    Later,
    /// It listens.
    Listen {
        /// Of this machine.
        at: IpAddr,
        /// One of these; none is any.
        ports: Option<Ports>,
    },
    /// To the first of these that answers.
    Connect(Vec<SocketAddr>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        hello::Hello,
        message::{read, write},
        options::{Pace, Rule, Streams, Switch, Transport},
        report::{Action, Planned, Progress, Report, StreamFigures},
    };
    use longhaul_store::tree::preserve::Preserve;
    use proptest::{collection::vec, prelude::*};
    use serde::de::DeserializeOwned;
    use std::{fmt::Debug, net::Ipv4Addr};

    fn begin() -> Begin {
        Begin {
            role: Role::Target,
            paths: vec![b"/srv/data".to_vec()],
            options: Options {
                origin: [0; 32],
                streams: Streams::Exactly(16),
                pace: Pace::Auto,
                congestion_control: Some("lh_hstcp".to_owned()),
                transport: Transport::Udt,
                encrypt: Switch::On,
                hash: Switch::Off,
                limit: Some(1_000_000),
                silence: 60_000,
                dry_run: false,
                checksum: true,
                delete: true,
                update: false,
                one_file_system: true,
                rules: vec![
                    Rule::Exclude("*.tmp".to_owned()),
                    Rule::Include(String::new()),
                ],
                preserve: Preserve::safe().into(),
                into_directory: true,
            },
            peer_certificate: vec![0x30; 300],
            meeting: Meeting::Listen {
                at: IpAddr::V4(Ipv4Addr::LOCALHOST),
                ports: Some("7000-7100".parse().unwrap()),
            },
            task: Task::Extents,
            sources: Sources::default(),
            shares: Vec::new(),
        }
    }

    fn hello() -> Hello {
        let addresses = ["::1", "10.0.0.1"].map(|text| text.parse().unwrap());
        Hello::new(&[0x30; 300], Some(addresses.into()))
    }

    fn reports() -> Vec<Report> {
        vec![
            Report::Sources(Sources::default()),
            Report::Listening(7000),
            Report::Progress(Progress::default()),
            Report::Problem("größe: full".to_owned()),
            Report::Planned(Planned {
                action: Action::Remove,
                path: b"a".to_vec(),
                bytes: 7,
            }),
            Report::Streams(vec![StreamFigures::default(); 3]),
        ]
    }

    fn written(message: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        bytes
    }

    /// What is read is written and read again as the same.
    fn is_heard<M: Serialize + DeserializeOwned + Debug>(mut bytes: &[u8]) {
        while let Ok(Some(message)) = read::<M>(&mut bytes) {
            let again: M = read(&mut written(&message).as_slice()).unwrap().unwrap();
            assert_eq!(written(&again), written(&message));
        }
    }

    /// Behind a length that is right.
    fn are_heard(bytes: &[u8]) {
        let framed = [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        for bytes in [bytes, &framed] {
            let _heard_or_refused = Hello::read(&mut &*bytes, &"a stranger");
            is_heard::<Hello>(bytes);
            is_heard::<Begin>(bytes);
            is_heard::<Meeting>(bytes);
            is_heard::<Word>(bytes);
            is_heard::<Report>(bytes);
        }
    }

    fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)
    }

    #[test]
    fn what_is_told_is_heard() {
        let read_back: Begin = read(&mut written(&begin()).as_slice()).unwrap().unwrap();
        assert_eq!(format!("{read_back:?}"), format!("{:?}", begin()));
        let read_back = Hello::read(&mut written(&hello()).as_slice(), &"far").unwrap();
        assert_eq!(read_back, Some(hello()));
        for report in reports() {
            let read_back: Report = read(&mut written(&report).as_slice()).unwrap().unwrap();
            assert_eq!(format!("{read_back:?}"), format!("{report:?}"));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_heard_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            are_heard(&bytes);
        }

        #[test]
        fn damaged_messages_are_heard_or_refused(mutations in mutations(), cut in 0..20_usize) {
            let all = reports().iter().map(written).collect::<Vec<_>>();
            for mut bytes in all.into_iter().chain([written(&hello()), written(&begin())]) {
                for (at, byte) in &mutations {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                let kept = bytes.len().saturating_sub(cut);
                are_heard(&bytes[..kept]);
                are_heard(&bytes[4.min(kept)..kept]);
            }
        }
    }
}
