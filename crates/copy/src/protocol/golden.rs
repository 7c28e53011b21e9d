// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden bytes of a message of each kind, in the order in which messages are exchanged. If one changes, or a kind is
//! added, the protocol version changes: increase [`PROTOCOL_VERSION`] by one, and accept the snapshot.

use super::{
    auth::{self, AuthRequest},
    block::{self, Header},
    control::{Begin, Content, ControlMsg, Extent, Pass, Rendezvous, Role, Task},
    hello::{GREETING, Hello, PROTOCOL_VERSION},
    message::{MissingBlocks, Outcome, Portion, SourceMsg, TargetMsg, write},
    options::{DeletionLimit, Options, Pacing, Ports, Streams, Switch, Transport},
    report::{Action, FoundEntry, PlannedAction, Progress, Report, StreamStats},
    sources::{FileIdentity, SourceLocation, Sources},
    token::Token,
};
use longhaul_linux::limiter::Limiter;
use longhaul_scheduling::{Metrics, Network, Stage, placement::Placement};
use longhaul_store::{
    blocks::{BlockHash, FileHash},
    entry::{Entry, Kind, Version},
    metadata::{Metadata, Time, Xattr},
    path::RelPath,
    tree::{chmod::Chmod, filter::Rule, preserve::Preserve, spread::TreeShare},
};
use serde::Serialize;
use std::{fmt::Write as _, net::IpAddr};

fn hex(bytes: &[u8]) -> String {
    let pieces = bytes.chunks(4).map(|piece| {
        let digits = piece.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    pieces.collect::<Vec<_>>().join(" ")
}

/// Lines of a snapshot.
struct Lines(String);

impl Lines {
    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        writeln!(self.0, "{name}: {}", hex(bytes)).unwrap();
    }

    /// Adds a message with its length prefix.
    fn message(&mut self, name: &str, message: &impl Serialize) {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        self.bytes(name, &bytes);
    }

    fn each<M: Serialize>(&mut self, name: impl Fn(&M) -> &'static str, messages: &[M]) {
        for message in messages {
            self.message(name(message), message);
        }
    }
}

/// Returns the name of a task. The match is exhaustive, so that a new kind of message must be added below too.
fn task_label(task: &Task) -> &'static str {
    match task {
        Task::Whole => "task whole",
        Task::Locate => "task locate",
        Task::Scan => "task survey",
        Task::Spread(_) => "task spread",
        Task::Gather(Pass::Data) => "task gather data",
        Task::Gather(Pass::Last) => "task gather last",
        Task::Pieces => "task pieces",
        Task::Extents => "task extents",
        Task::CreateProbe(_) => "task mark",
        Task::FindProbe(_) => "task seek",
    }
}

fn rendezvous_label(rendezvous: &Rendezvous) -> &'static str {
    match rendezvous {
        Rendezvous::Wait => "meeting later",
        Rendezvous::Listen { .. } => "meeting listen",
        Rendezvous::Connect(_) => "meeting connect",
    }
}

fn control_label(message: &ControlMsg) -> &'static str {
    match message {
        ControlMsg::Assignment { extent, .. } => match extent.content {
            Content::Files(_) => "word assignment files",
            Content::Blocks { .. } => "word assignment blocks",
            Content::Name(_) => "word assignment name",
        },
        ControlMsg::LeaseRemaining(_) => "word until",
        ControlMsg::NoMoreExtents => "word enough",
    }
}

fn report_label(report: &Report) -> &'static str {
    match report {
        Report::Shares(_) => "report shares",
        Report::Sources(_) => "report sources",
        Report::Ready => "report ready",
        Report::Listening(_) => "report listening",
        Report::PortsInUse(_) => "report occupied",
        Report::Progress(_) => "report progress",
        Report::Problem(_) => "report problem",
        Report::ProbeVisible(_) => "report marked",
        Report::Found(_) => "report found",
        Report::ExtentDone { .. } => "report done",
        Report::Planned(planned) => match planned.action {
            Action::Create => "report planned make",
            Action::Change => "report planned change",
            Action::Remove => "report planned remove",
        },
        Report::PlanRefused(_) => "report plan refused",
        Report::Streams(_) => "report streams",
        Report::Finished(_) => "report over",
        Report::Broken(_) => "report broken",
        Report::Refused(_) => "report refused",
    }
}

fn source_label(message: &SourceMsg) -> &'static str {
    match message {
        SourceMsg::Roots(_) => "order tops",
        SourceMsg::Entry { entry, .. } => match entry.kind {
            Kind::Directory => "order entry directory",
            Kind::File { .. } => "order entry file",
            Kind::Symlink { .. } => "order entry symlink",
            Kind::HardLink { .. } => "order entry hard link",
            Kind::Fifo => "order entry fifo",
            Kind::Device { .. } => "order entry device",
        },
        SourceMsg::Reannounce { .. } => "order again",
        SourceMsg::RootMetadata(_) => "order top",
        SourceMsg::Excluded(_) => "order spared",
        SourceMsg::ScanError => "order unread",
        SourceMsg::ScanEnded => "order scan ended",
        SourceMsg::Sealed { .. } => "order sealed",
        SourceMsg::Aborted { .. } => "order withdrawn",
        SourceMsg::StreamCount(_) => "order streams",
        SourceMsg::HashReply { .. } => "order hashed",
        SourceMsg::StreamAbandoned { .. } => "order gone",
        SourceMsg::Planned { .. } => "order planned",
        SourceMsg::PlannedContents => "order planned contents",
        SourceMsg::PlanEnded => "order plan ended",
    }
}

fn portion_label(portion: &Portion) -> &'static str {
    match portion {
        Portion::Whole => "share whole",
        Portion::Blocks(_) => "share blocks",
        Portion::Finalize => "share assembled",
        Portion::KeepPiece(_) => "share kept",
        Portion::JoinPiece(_) => "share piece",
    }
}

fn target_label(message: &TargetMsg) -> &'static str {
    match message {
        TargetMsg::Request { missing, .. } => match missing {
            MissingBlocks::Whole(_) => "answer need whole",
            MissingBlocks::Blocks(_) => "answer need blocks",
            MissingBlocks::Changed { .. } => "answer need changed",
        },
        TargetMsg::HashRequest { .. } => "answer hash",
        TargetMsg::EntryDone { outcome, .. } => match outcome {
            Outcome::Unchanged => "answer settled same",
            Outcome::Copied => "answer settled made",
            Outcome::Newer => "answer settled newer",
            Outcome::Skipped => "answer settled not taken",
            Outcome::CopiedWithout(_) => "answer settled made without",
            Outcome::Failed(_) => "answer settled failed",
        },
        TargetMsg::Received { .. } => "answer received",
        TargetMsg::StreamEnded { .. } => "answer ended",
        TargetMsg::Durable { .. } => "answer durable",
        TargetMsg::Finished { .. } => "answer over",
    }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn version() -> Version {
    let time = |seconds, nanos| Time { seconds, nanos };
    Version {
        size: 1,
        modified: time(2, 3),
        changed: time(4, 5),
        inode: 6,
        device: 7,
    }
}

fn options() -> Options {
    Options {
        streams: Streams::Exactly(16),
        pacing: Pacing::Rate(1_000_000),
        congestion_control: Some("bbr".to_owned()),
        transport: Transport::Udt,
        encrypt: Switch::Off,
        hash: Switch::On,
        limit: Some(2_000_000),
        idle_timeout_ms: 60_000,
        dry_run: true,
        checksum: false,
        delete: true,
        max_delete: DeletionLimit::Percent(50),
        trash_s: Some(86_400),
        whole_files: true,
        update: false,
        modify_window_s: Some(2),
        one_file_system: true,
        hard_links: false,
        rules: vec![Rule::Exclude("a".to_owned()), Rule::Include("b".to_owned())],
        preserve: Preserve {
            chmod: "go-w".parse().unwrap(),
            ..Preserve::untrusted()
        },
        into_directory: true,
        origin: [8; 32],
    }
}

fn sources() -> Sources {
    Sources {
        all: vec![SourceLocation {
            given_path: b"/a".to_vec(),
            name: Some(path("a")),
            special: true,
            location_ids: vec![([1; 16], Some(path("b"))), ([2; 16], None)],
            identity: Some(FileIdentity {
                inode: 3,
                birth: Some((4, 5)),
            }),
        }],
        enclosing: vec![[6; 16]],
    }
}

fn shares() -> Vec<TreeShare> {
    vec![TreeShare {
        origin: [1; 32],
        top: Some(path("a")),
        rank: 2,
        hosts: vec!["b".to_owned(), "c".to_owned()],
    }]
}

fn progress() -> Progress {
    let mut measured = Metrics {
        elapsed_us: 13,
        runqueue_wait_us: 14,
        cpus: 15,
        machine: 16,
        network: Network {
            streams: 17,
            limited_us: [18, 19, 20, 21, 22],
            ignores_single_losses: true,
            sent_bytes: 23,
            retransmitted_bytes: 24,
            retransmitted_segments: 25,
            rtt_us: 26,
            rtt_min_us: 27,
        },
        ..Metrics::default()
    };
    measured.stages[Stage::Reading].ran_us = 28;
    measured.stages[Stage::Syncing].waited_us = 29;
    Progress {
        entries: 1,
        bytes: 2,
        scanned: true,
        unchanged: 3,
        copied: 4,
        skipped: 5,
        failed: 6,
        vanished: 32,
        removed: 7,
        sent: 8,
        durable: 9,
        duplicate: 10,
        present: 11,
        measured,
    }
}

fn tasks() -> [Task; 10] {
    [
        Task::Whole,
        Task::Locate,
        Task::Scan,
        Task::Spread(Placement {
            host: 1,
            hosts: 2,
            stripe: Some(3),
        }),
        Task::Gather(Pass::Data),
        Task::Gather(Pass::Last),
        Task::Pieces,
        Task::Extents,
        Task::CreateProbe(1 << 100),
        Task::FindProbe(7),
    ]
}

fn rendezvous_all() -> [Rendezvous; 3] {
    let at: IpAddr = "192.0.2.1".parse().unwrap();
    let ports = Some(Ports {
        first: 7000,
        last: 7100,
    });
    [
        Rendezvous::Wait,
        Rendezvous::Listen { at, ports },
        Rendezvous::Connect(vec!["[2001:db8::1]:7000".parse().unwrap()]),
    ]
}

fn control_msgs() -> Vec<ControlMsg> {
    let contents = [
        Content::Files(vec![path("a"), path("b/c")]),
        Content::Blocks {
            path: path("a"),
            blocks: 1..2,
            version: version(),
        },
        Content::Name(path("a")),
    ];
    let assignment = |content| ControlMsg::Assignment {
        number: 1,
        extent: Extent { source: 2, content },
    };
    let assignments = contents.into_iter().map(assignment);
    assignments
        .chain([ControlMsg::LeaseRemaining(1000), ControlMsg::NoMoreExtents])
        .collect()
}

fn reports() -> Vec<Report> {
    let planned = [Action::Create, Action::Change, Action::Remove].map(|action| {
        Report::Planned(PlannedAction {
            action,
            path: b"a".to_vec(),
            bytes: 1,
        })
    });
    let mut reports = vec![
        Report::Shares(shares()),
        Report::Sources(sources()),
        Report::PlanRefused("e".to_owned()),
        Report::Ready,
        Report::Listening(7000),
        Report::PortsInUse("a".to_owned()),
        Report::Progress(progress()),
        Report::Problem("a".to_owned()),
        Report::ProbeVisible(true),
        Report::Found(vec![FoundEntry {
            source: 1,
            path: path("a"),
            kind: Kind::Directory,
            piece_blocks: Some(vec![2..3, 4..5]),
        }]),
        Report::ExtentDone {
            number: 1,
            failed: Some("a".to_owned()),
        },
        Report::Streams(vec![StreamStats {
            duration_s: 1.5,
            acked_bytes: 2,
            retransmitted_bytes: 3,
            rtt_us: 4,
        }]),
        Report::Finished(progress()),
        Report::Broken("a".to_owned()),
        Report::Refused("a".to_owned()),
    ];
    reports.extend(planned);
    reports
}

fn source_msgs() -> Vec<SourceMsg> {
    let time = |seconds, nanos| Time { seconds, nanos };
    let metadata = Metadata {
        mode: 0o644,
        uid: 1,
        gid: 2,
        modified: time(-3, 4),
        accessed: time(5, 6),
        xattrs: vec![Xattr {
            name: b"user.a".as_slice().into(),
            value: b"b".as_slice().into(),
        }],
    };
    let entry = |kind: Kind| Entry {
        path: path("a"),
        kind,
        metadata: metadata.clone(),
    };
    let file = || Kind::File {
        version: version(),
        sparse: true,
    };
    let kinds = [
        Kind::Directory,
        file(),
        Kind::Symlink {
            target: b"b".as_slice().into(),
        },
        Kind::HardLink { to: path("b") },
        Kind::Fifo,
        Kind::Device {
            block: true,
            major: 1,
            minor: 2,
        },
    ];
    let mut messages = vec![SourceMsg::Roots(vec![path("a")])];
    messages.extend(kinds.map(|kind| SourceMsg::Entry {
        number: 1,
        entry: entry(kind),
        portion: Portion::Whole,
    }));
    messages.extend([
        SourceMsg::Reannounce {
            old: 1,
            number: 2,
            entry: entry(file()),
            portion: Portion::Whole,
        },
        SourceMsg::RootMetadata(metadata.clone()),
        SourceMsg::Excluded(path("a")),
        SourceMsg::ScanError,
        SourceMsg::ScanEnded,
        SourceMsg::Sealed {
            file: 1,
            hash: Some(FileHash([2; 32])),
        },
        SourceMsg::Aborted { file: 1 },
        SourceMsg::StreamCount(16),
        SourceMsg::HashReply {
            file: 1,
            hash: FileHash([2; 32]),
        },
        SourceMsg::StreamAbandoned { stream: 1 },
        SourceMsg::Planned {
            path: path("a"),
            is_directory: true,
        },
        SourceMsg::PlannedContents,
        SourceMsg::PlanEnded,
    ]);
    messages
}

fn target_msgs() -> Vec<TargetMsg> {
    let missing_blocks = [
        MissingBlocks::Whole(1),
        MissingBlocks::Blocks(std::iter::once(1..300).collect()),
        MissingBlocks::Changed {
            blocks: std::iter::once(0..2).collect(),
            known: vec![[7; 8]],
        },
    ];
    let outcomes = [
        Outcome::Unchanged,
        Outcome::Copied,
        Outcome::Newer,
        Outcome::Skipped,
        Outcome::CopiedWithout(vec!["a".to_owned()]),
        Outcome::Failed("a".to_owned()),
    ];
    let mut messages = Vec::new();
    messages.extend(missing_blocks.map(|missing| TargetMsg::Request { file: 1, missing }));
    messages.push(TargetMsg::HashRequest { file: 1 });
    messages.extend(outcomes.map(|outcome| TargetMsg::EntryDone { number: 1, outcome }));
    messages.extend([
        TargetMsg::Received {
            stream: 1,
            blocks: 2,
        },
        TargetMsg::StreamEnded {
            stream: 1,
            blocks: 2,
        },
        TargetMsg::Durable { bytes: 1 },
        TargetMsg::Finished {
            removed: 1,
            failed: 2,
        },
    ]);
    messages
}

#[test]
fn messages_have_stable_bytes() {
    let mut lines = Lines(format!("protocol {PROTOCOL_VERSION}\n"));
    let addresses = ["2001:db8::1", "192.0.2.1"].map(|text| text.parse().unwrap());
    let begin = |role| Begin {
        role,
        paths: vec![b"/a".to_vec(), b"b".to_vec()],
        options: options(),
        peer_certificate: vec![1, 2, 3],
        rendezvous: Rendezvous::Wait,
        task: Task::Whole,
        sources: sources(),
        shares: shares(),
    };
    lines.bytes("greeting", GREETING);
    let hello = Hello {
        release: "0.1.0".to_owned(),
        ..Hello::new(&[1, 2, 3], Some(addresses.into()))
    };
    lines.message("hello", &hello);
    lines.message("begin source", &begin(Role::Source));
    lines.message("begin target", &begin(Role::Target));
    lines.each(task_label, &tasks());
    lines.each(rendezvous_label, &rendezvous_all());
    lines.message("streams auto", &Streams::Auto);
    lines.message("pace auto", &Pacing::Auto);
    lines.message("pace off", &Pacing::Off);
    lines.message("transport tcp", &Transport::Tcp);
    lines.each(control_label, &control_msgs());
    lines.each(report_label, &reports());
    lines.each(source_label, &source_msgs());
    let ranges = || vec![1..2, 3..4];
    let all = [
        Portion::Whole,
        Portion::Blocks(1..2),
        Portion::Finalize,
        Portion::KeepPiece(ranges()),
        Portion::JoinPiece(ranges()),
    ];
    lines.each(portion_label, &all);
    lines.each(target_label, &target_msgs());
    for (name, content) in [
        ("block", block::Content::Data(4)),
        ("hole", block::Content::Hole),
        (
            "changed",
            block::Content::Changed {
                sections: 5,
                length: 131_072,
            },
        ),
    ] {
        let header = Header {
            file: 1,
            block: 2,
            content,
            hash: BlockHash([3; 32]),
        };
        lines.bytes(name, &header.encode());
    }
    insta::assert_snapshot!(lines.0);
}

#[test]
fn permission_changes_have_stable_bytes() {
    let changes: Chmod = "Do-x,Fo=w,o+X".parse().unwrap();
    let bytes = postcard::to_stdvec(&changes).unwrap();
    let expected = [[1, 1, 7, 1, 0], [2, 2, 7, 2, 0], [0, 0, 7, 0, 1]];
    assert_eq!(bytes, [&[3], expected.as_flattened()].concat());
}

#[test]
fn measurements_keep_their_order() {
    let mut metrics = Metrics::default();
    let stages = [
        Stage::Idle,
        Stage::Reading,
        Stage::Hashing,
        Stage::Sending,
        Stage::Limited,
        Stage::Receiving,
        Stage::Writing,
        Stage::Scanning,
        Stage::Syncing,
        Stage::Waiting,
    ];
    for (stage, us) in stages.into_iter().zip(10..) {
        metrics.stages[stage].ran_us = us;
    }
    let ran = (10..20).flat_map(|us| [us, 0]).collect::<Vec<u8>>();
    assert_eq!(postcard::to_stdvec(&metrics.stages).unwrap(), ran);
    let limiters = [
        Limiter::Application,
        Limiter::ReceiveWindow,
        Limiter::SendBuffer,
        Limiter::CongestionWindow,
        Limiter::Pacing,
    ];
    for (limiter, us) in limiters.into_iter().zip(30..) {
        metrics.network.add_limited_time(limiter, us);
    }
    assert_eq!(metrics.network.limited_us, [30, 31, 32, 33, 34]);
}

#[test]
fn site_authentication_has_stable_bytes() {
    let mut lines = Lines(String::from_utf8_lossy(auth::PROTOCOL).into_owned() + "\n");
    let token = format!("lhs1.{}.{}", "A".repeat(43), "B".repeat(42) + "A");
    let token: Token = token.parse().unwrap();
    let request = AuthRequest {
        secret: token.secret,
        export: "a".to_owned(),
    };
    lines.message("ask", &request);
    for (name, response) in [
        ("welcome", auth::AuthResponse::Accepted),
        ("refused", auth::AuthResponse::Refused("a".to_owned())),
        ("busy", auth::AuthResponse::Busy("a".to_owned())),
    ] {
        lines.message(name, &response);
    }
    insta::assert_snapshot!(lines.0);
}
