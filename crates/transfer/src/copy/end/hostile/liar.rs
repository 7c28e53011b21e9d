// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile peer: a scripted far end that can send any message.

use crate::{
    copy::{
        end::{reach::Reach, receiver, reports::Reporter, source},
        samples::entry,
    },
    protocol::{
        block::{Content, Header},
        control::{Begin, Rendezvous, Role, Task},
        message::{self, Outcome, Portion, SourceMsg, TargetMsg},
        options::{Options, Pace, Streams, Switch, Transport},
        report::Progress,
        sources::Sources,
    },
    transport::connection::{Connection, Purpose},
};
use anyhow::Result;
use longhaul_store::{
    blocks::{BLOCK, Blocks},
    entry::Kind,
};
use longhaul_transport::{
    blocking,
    identity::{Identity, Responder},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::{
    fs,
    io::{self, Write},
    net::TcpListener,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// Hostile peer of one endpoint. It accepts the endpoint's connections and sends what a test asks for.
pub(super) struct Liar {
    pub(super) listener: TcpListener,
    pub(super) trust: Responder,
    pub(super) orders: Option<Connection>,
    pub(super) answers: Option<Connection>,
    pub(super) end: JoinHandle<Result<Progress>>,
    pub(super) folder: tempfile::TempDir,
}

pub(super) fn options() -> Options {
    Options {
        checksum: false,
        dry_run: false,
        streams: Streams::Exactly(1),
        pace: Pace::Auto,
        congestion_control: None,
        transport: Transport::Tcp,
        encrypt: Switch::On,
        hash: Switch::On,
        limit: None,
        silence: 60_000,
        delete: false,
        update: false,
        one_file_system: false,
        rules: Vec::new(),
        preserve: longhaul_store::tree::preserve::Preserve::default().into(),
        into_directory: true,
        origin: [0; 32],
    }
}

impl Liar {
    /// Starts an endpoint and its hostile peer. A target writes to the directory `to`; a source reads the
    /// directory `from`.
    pub(super) fn to(role: Role) -> Self {
        Self::over_streams(1, role)
    }

    pub(super) fn over_streams(count: u16, role: Role) -> Self {
        let streams = Streams::Exactly(count);
        let options = Options {
            streams,
            ..options()
        };
        Self::with(options, role)
    }

    pub(super) fn with(options: Options, role: Role) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), vec![1; 2 * BLOCK as usize]).unwrap();
        let [own, theirs] = [(); 2].map(|()| Identity::new().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Begin {
            role,
            paths: vec![match role {
                Role::Source => from.join("").as_os_str().as_bytes().to_vec(),
                Role::Target => to.as_os_str().as_bytes().to_vec(),
            }],
            options,
            peer_certificate: own.certificate().to_vec(),
            rendezvous: Rendezvous::Connect(vec![listener.local_addr().unwrap()]),
            task: Task::Whole,
            sources: Sources::default(),
            shares: Vec::new(),
        };
        let trust = own.responder(theirs.certificate()).unwrap();
        let reporter = Reporter(Arc::new(Mutex::new(io::sink())));
        let end = thread::spawn(move || match role {
            Role::Source => {
                let ready = source::conversation::prepare(&begin, &Reach::Everything)?;
                source::conversation::serve(begin, ready, &theirs, &reporter)
            }
            Role::Target => {
                receiver::conversation::serve(&begin, &Reach::Everything, &theirs, &reporter)
            }
        });
        Self {
            listener,
            trust,
            orders: None,
            answers: None,
            end,
            folder,
        }
    }

    /// Accepts the next connection. Returns it if it is a stream; keeps a control connection.
    pub(super) fn accept(&mut self) -> Option<(u64, Connection)> {
        let (socket, _) = self.listener.accept().unwrap();
        match Connection::accept(blocking::Connection::Tcp(socket), &self.trust, Switch::On)
            .unwrap()
        {
            (stream, Purpose::Data(number)) => return Some((number, stream)),
            (orders, Purpose::Orders) => self.orders = Some(orders),
            (answers, Purpose::Answers) => self.answers = Some(answers),
        }
        None
    }

    /// Accepts connections up to the next stream.
    pub(super) fn stream(&mut self) -> (u64, Connection) {
        loop {
            if let Some(stream) = self.accept() {
                return stream;
            }
        }
    }

    /// Accepts the first stream and both control connections.
    pub(super) fn meet(&mut self) -> Connection {
        let [(_, first)] = self.meet_all();
        first
    }

    /// Accepts the first streams and both control connections.
    pub(super) fn meet_all<const STREAMS: usize>(&mut self) -> [(u64, Connection); STREAMS] {
        let mut streams = Vec::new();
        while streams.len() < STREAMS || self.orders.is_none() || self.answers.is_none() {
            streams.extend(self.accept());
        }
        streams.try_into().ok().unwrap()
    }

    pub(super) fn order(&mut self, order: &SourceMsg) {
        // An endpoint that has read enough closes the connection.
        let to = self.orders.as_mut().unwrap();
        drop(message::write(to, order).and_then(|()| Ok(to.flush()?)));
    }

    pub(super) fn announce(&mut self, number: u64, path: &str, kind: Kind) {
        self.order(&SourceMsg::Entry {
            number,
            entry: entry(path, kind).into(),
            portion: Portion::Whole,
        });
    }

    pub(super) fn answer(&mut self, answer: &TargetMsg) {
        let to = self.answers.as_mut().unwrap();
        message::write(to, answer).unwrap();
        to.flush().unwrap();
    }

    pub(super) fn hear<M: DeserializeOwned>(from: &mut Option<Connection>) -> M {
        message::read(from.as_mut().unwrap()).unwrap().unwrap()
    }

    /// Waits for the outcome of an entry.
    pub(super) fn outcome(&mut self, of: u64) -> Outcome {
        loop {
            if let TargetMsg::EntryDone { number, outcome } = Self::hear(&mut self.answers)
                && number == of
            {
                return outcome;
            }
        }
    }

    /// Waits until the data of a file is requested.
    pub(super) fn need(&mut self, of: u64) {
        loop {
            if let TargetMsg::Request { file, .. } = Self::hear(&mut self.answers)
                && file == of
            {
                return;
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Closes all connections without a message; returns the result of the endpoint.
    pub(super) fn hang_up(self) -> (Result<Progress>, tempfile::TempDir) {
        drop((self.orders, self.answers, self.listener));
        (self.end.join().unwrap(), self.folder)
    }
}

/// Returns a valid block of a file.
pub(super) fn block(file: u64, size: u64, index: u64) -> (Header, Vec<u8>) {
    let range = Blocks::of(size).range(index).unwrap();
    let bytes = vec![index as u8 + 1; (range.end - range.start) as usize];
    let header = Header {
        file,
        block: index,
        content: Content::Data(bytes.len() as u32),
        hash: Blocks::of(size).hash(index, &bytes).unwrap().0,
    };
    (header, bytes)
}

pub(super) fn send(to: &mut Connection, (header, bytes): &(Header, Vec<u8>)) {
    to.write_all(&header.encode()).unwrap();
    to.write_all(bytes).unwrap();
    to.flush().unwrap();
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter(|name| !name.starts_with(".longhaul-"))
        .collect();
    names.sort();
    names
}
