// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control protocol between the coordinator, which is the `longhaul copy` process, and the two endpoints that it starts.
//! The messages go over pipes or ssh, in the frames of [`crate::protocol::message`]. A greeting line precedes them and
//! separates them from what a login shell prints.

use super::{
    options::{Options, Ports},
    sources::Sources,
};
use longhaul_scheduling::placement::Placement;
use longhaul_store::{entry::Version, path::RelPath, tree::spread::TreeShare};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

/// First message from the coordinator to an endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Role of the endpoint.
    pub role: Role,
    /// Paths of the sources, or the one path of the target.
    pub paths: Vec<Vec<u8>>,
    /// Options of the copy.
    pub options: Options,
    /// X.509 certificate of the peer, DER.
    pub peer_certificate: Vec<u8>,
    /// Instruction to wait, to listen or to connect.
    pub rendezvous: Rendezvous,
    /// Part of the copy that the endpoint performs.
    pub task: Task,
    /// Locations of the sources. Only a target needs them.
    pub sources: Sources,
    /// Shares that the target stores of trees that are distributed over several hosts.
    pub shares: Vec<TreeShare>,
}

/// Part of a copy that an endpoint performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// The whole copy.
    Whole,
    /// Reports the locations of the sources, for a source without a peer.
    Locate,
    /// Reports all entries, including pieces of files, for a source without a peer.
    Scan,
    /// Copies the share of one of several targets with separate disks: some files, and pieces of large files.
    Spread(Placement),
    /// Copies everything from one of several source hosts with separate disks. A file gets its final name after its
    /// last piece has arrived.
    Gather(Pass),
    /// Copies everything from one such source host to one target host. Pieces of files stay pieces there.
    Pieces,
    /// Copies the file data of extents, as the coordinator assigns them. A later session copies everything else.
    Extents,
    /// Creates a probe file with this number in the target's directory, and removes it after the next message or when
    /// standard input ends. Used before a copy to several target hosts, to find out which of them share the directory.
    CreateProbe(u128),
    /// Reports whether the probe file with this number is visible.
    FindProbe(u128),
}

impl Task {
    /// Whether the source first names all its entries, so that the target refuses to remove too many of its own before
    /// anything is changed.
    pub fn plans_deletion(&self, options: &Options) -> bool {
        options.delete && !options.dry_run && *self == Self::Whole
    }
}

/// Pass of a gathering copy from several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pass {
    /// All entries, without the metadata of directories: other hosts may still write to the directories.
    Data,
    /// Metadata of directories, and entries that changed or failed in the first pass.
    Last,
}

/// Message from the coordinator to a source that copies extents.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlMsg {
    /// Assignment of an extent. The coordinator chooses the number.
    Assignment {
        /// Number of the extent in reports.
        number: u64,
        /// Data to copy.
        extent: Extent,
    },
    /// Remaining lease time, in milliseconds. After that, other workers may get the extents of this source.
    LeaseRemaining(u32),
    /// End of the assignments.
    NoMoreExtents,
}

/// Unit of work for one worker: some GiB of a source's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Index of the source, from 0.
    pub source: u32,
    /// Data of the extent.
    pub content: Content,
}

/// Data that an extent covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Whole files, by their paths in the copy.
    Files(Vec<RelPath>),
    /// Blocks of one file.
    Blocks {
        /// Path of the file in the copy.
        path: RelPath,
        /// Block numbers, from 0.
        blocks: Range<u64>,
        /// State of the file to which the blocks belong.
        version: Version,
    },
    /// No data, but the rename of a file to its final name. Other extents have copied its blocks.
    Name(RelPath),
}

/// Role of an endpoint in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reads and sends files.
    Source,
    /// Receives and writes files.
    Target,
}

impl Role {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }
}

/// Instruction by which the two endpoints connect to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rendezvous {
    /// Wait for a further instruction, which the coordinator sends once this endpoint is ready.
    Wait,
    /// Listen for the peer.
    Listen {
        /// Local address.
        at: IpAddr,
        /// Ports to choose from; `None` allows any.
        ports: Option<Ports>,
    },
    /// Connect to the first of these addresses that answers.
    Connect(Vec<SocketAddr>),
}

impl Rendezvous {
    /// Returns the instruction to an endpoint whose copy is refused: there is no address to connect to.
    pub fn refused() -> Self {
        Self::Connect(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        hello::Hello,
        message::{read, write},
        options::{DeletionLimit, Pacing, Streams, Switch, Transport},
        report::{Action, PlannedAction, Progress, Report, StreamStats},
    };
    use longhaul_store::tree::{filter::Rule, preserve::Preserve};
    use proptest::{collection::vec, prelude::*};
    use serde::de::DeserializeOwned;
    use std::{fmt::Debug, net::Ipv4Addr};

    fn begin_message() -> Begin {
        Begin {
            role: Role::Target,
            paths: vec![b"/srv/data".to_vec()],
            options: Options {
                origin: [0; 32],
                streams: Streams::Exactly(16),
                pacing: Pacing::Auto,
                congestion_control: Some("lh_hstcp".to_owned()),
                transport: Transport::Udt,
                encrypt: Switch::On,
                hash: Switch::Off,
                limit: Some(1_000_000),
                idle_timeout_ms: 60_000,
                dry_run: false,
                checksum: true,
                delete: true,
                max_delete: DeletionLimit::Percent(50),
                trash_s: Some(86_400),
                whole_files: true,
                update: false,
                modify_window_s: Some(2),
                one_file_system: true,
                hard_links: false,
                rules: vec![
                    Rule::Exclude("*.tmp".to_owned()),
                    Rule::Include(String::new()),
                ],
                preserve: Preserve::untrusted(),
                into_directory: true,
            },
            peer_certificate: vec![0x30; 300],
            rendezvous: Rendezvous::Listen {
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
            Report::Planned(PlannedAction {
                action: Action::Remove,
                path: b"a".to_vec(),
                bytes: 7,
            }),
            Report::Streams(vec![StreamStats::default(); 3]),
        ]
    }

    fn encoded(message: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        bytes
    }

    /// Asserts that each readable message, encoded again, reads as the same message.
    fn assert_round_trip<M: Serialize + DeserializeOwned + Debug>(mut bytes: &[u8]) {
        while let Ok(Some(message)) = read::<M>(&mut bytes) {
            let decoded: M = read(&mut encoded(&message).as_slice()).unwrap().unwrap();
            assert_eq!(encoded(&decoded), encoded(&message));
        }
    }

    /// Reads the bytes as each kind of message, with and without a correct length prefix.
    fn read_as_all_messages(bytes: &[u8]) {
        let framed = [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        for bytes in [bytes, &framed] {
            let _accepted_or_rejected = Hello::read(&mut &*bytes, &"a stranger");
            assert_round_trip::<Hello>(bytes);
            assert_round_trip::<Begin>(bytes);
            assert_round_trip::<Rendezvous>(bytes);
            assert_round_trip::<ControlMsg>(bytes);
            assert_round_trip::<Report>(bytes);
        }
    }

    fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)
    }

    #[test]
    fn control_messages_round_trip() {
        let read_back: Begin = read(&mut encoded(&begin_message()).as_slice())
            .unwrap()
            .unwrap();
        assert_eq!(format!("{read_back:?}"), format!("{:?}", begin_message()));
        let read_back = Hello::read(&mut encoded(&hello()).as_slice(), &"far").unwrap();
        assert_eq!(read_back, Some(hello()));
        for report in reports() {
            let read_back: Report = read(&mut encoded(&report).as_slice()).unwrap().unwrap();
            assert_eq!(format!("{read_back:?}"), format!("{report:?}"));
        }
    }

    proptest! {
        #[test]
        fn accepts_or_rejects_arbitrary_bytes(bytes in vec(any::<u8>(), 0..200)) {
            read_as_all_messages(&bytes);
        }

        #[test]
        fn accepts_or_rejects_damaged_messages(mutations in mutations(), cut in 0..20_usize) {
            let all = reports().iter().map(encoded).collect::<Vec<_>>();
            for mut bytes in all.into_iter().chain([encoded(&hello()), encoded(&begin_message())]) {
                for (at, byte) in &mutations {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                let length = bytes.len().saturating_sub(cut);
                read_as_all_messages(&bytes[..length]);
                read_as_all_messages(&bytes[4.min(length)..length]);
            }
        }
    }
}
