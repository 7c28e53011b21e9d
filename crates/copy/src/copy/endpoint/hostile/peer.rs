// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile peer: a script that can send any message of the protocol.

use crate::{
    connection::{Connection, Purpose},
    copy::{
        endpoint::{access_scope::AccessScope, reports::Reporter, source, target},
        fixtures::entry,
    },
    protocol::{
        block::{Content, Header},
        control::{Begin, Rendezvous, Role, Task},
        message::{self, Outcome, Portion, SourceMsg, TargetMsg},
        options::{DeletionLimit, Options, Pacing, Streams, Switch, Transport},
        report::Progress,
        sources::Sources,
    },
};
use anyhow::Result;
use longhaul_store::{
    blocks::{BLOCK_LEN, Blocks},
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
pub(super) struct HostilePeer {
    pub(super) listener: TcpListener,
    pub(super) responder: Responder,
    pub(super) source_messages: Option<Connection>,
    pub(super) target_messages: Option<Connection>,
    pub(super) endpoint: JoinHandle<Result<Progress>>,
    pub(super) directory: tempfile::TempDir,
}

pub(super) fn options() -> Options {
    Options {
        checksum: false,
        dry_run: false,
        streams: Streams::Exactly(1),
        pacing: Pacing::Auto,
        congestion_control: None,
        transport: Transport::Tcp,
        encrypt: Switch::On,
        hash: Switch::On,
        limit: None,
        idle_timeout_ms: 60_000,
        delete: false,
        max_delete: DeletionLimit::NoAccident,
        trash_s: None,
        whole_files: false,
        update: false,
        modify_window_s: None,
        one_file_system: false,
        hard_links: true,
        rules: Vec::new(),
        preserve: longhaul_store::tree::preserve::Preserve::default(),
        into_directory: true,
        origin: [0; 32],
    }
}

impl HostilePeer {
    /// Starts an endpoint and its hostile peer. A target writes to the directory `to`; a source reads the
    /// directory `from`.
    pub(super) fn start(role: Role) -> Self {
        Self::start_with_streams(1, role)
    }

    pub(super) fn start_with_streams(count: u16, role: Role) -> Self {
        let streams = Streams::Exactly(count);
        let options = Options {
            streams,
            ..options()
        };
        Self::start_with_options(options, role)
    }

    pub(super) fn start_with_options(options: Options, role: Role) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), vec![1; 2 * BLOCK_LEN as usize]).unwrap();
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
        let responder = own.responder(theirs.certificate()).unwrap();
        let reporter = Reporter(Arc::new(Mutex::new(io::sink())));
        let endpoint = thread::spawn(move || match role {
            Role::Source => {
                let prepared = source::session::prepare(&begin, &AccessScope::Unrestricted)?;
                source::session::run_session(begin, prepared, &theirs, &reporter)
            }
            Role::Target => {
                target::session::run_session(&begin, &AccessScope::Unrestricted, &theirs, &reporter)
            }
        });
        Self {
            listener,
            responder,
            source_messages: None,
            target_messages: None,
            endpoint,
            directory,
        }
    }

    /// Accepts the next connection. Returns it if it is a stream; keeps a control connection.
    pub(super) fn accept(&mut self) -> Option<(u64, Connection)> {
        let (socket, _) = self.listener.accept().unwrap();
        match Connection::accept(
            blocking::Connection::Tcp(socket),
            &self.responder,
            Switch::On,
        )
        .unwrap()
        {
            (stream, Purpose::Data(number)) => return Some((number, stream)),
            (connection, Purpose::SourceMessages) => self.source_messages = Some(connection),
            (connection, Purpose::TargetMessages) => self.target_messages = Some(connection),
        }
        None
    }

    /// Accepts connections up to the next stream.
    pub(super) fn accept_stream(&mut self) -> (u64, Connection) {
        loop {
            if let Some(stream) = self.accept() {
                return stream;
            }
        }
    }

    /// Accepts the first stream and both control connections.
    pub(super) fn accept_first_stream(&mut self) -> Connection {
        let [(_, first)] = self.accept_first_streams();
        first
    }

    /// Accepts the first streams and both control connections.
    pub(super) fn accept_first_streams<const STREAMS: usize>(
        &mut self,
    ) -> [(u64, Connection); STREAMS] {
        let mut streams = Vec::new();
        while streams.len() < STREAMS
            || self.source_messages.is_none()
            || self.target_messages.is_none()
        {
            streams.extend(self.accept());
        }
        streams.try_into().ok().unwrap()
    }

    pub(super) fn send_source_message(&mut self, message: &SourceMsg) {
        // An endpoint that has read enough closes the connection.
        let to = self.source_messages.as_mut().unwrap();
        drop(message::write(to, message).and_then(|()| Ok(to.flush()?)));
    }

    pub(super) fn announce(&mut self, number: u64, path: &str, kind: Kind) {
        self.send_source_message(&SourceMsg::Entry {
            number,
            entry: entry(path, kind),
            portion: Portion::Whole,
        });
    }

    pub(super) fn send_target_message(&mut self, message: &TargetMsg) {
        let to = self.target_messages.as_mut().unwrap();
        message::write(to, message).unwrap();
        to.flush().unwrap();
    }

    pub(super) fn receive<M: DeserializeOwned>(from: &mut Option<Connection>) -> M {
        message::read(from.as_mut().unwrap()).unwrap().unwrap()
    }

    /// Waits for the outcome of an entry.
    pub(super) fn wait_for_outcome(&mut self, of: u64) -> Outcome {
        loop {
            if let TargetMsg::EntryDone { number, outcome } =
                Self::receive(&mut self.target_messages)
                && number == of
            {
                return outcome;
            }
        }
    }

    /// Waits until the data of a file is requested.
    pub(super) fn wait_for_request(&mut self, of: u64) {
        loop {
            if let TargetMsg::Request { file, .. } = Self::receive(&mut self.target_messages)
                && file == of
            {
                return;
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Closes all connections without a message; returns the result of the endpoint.
    pub(super) fn disconnect(self) -> (Result<Progress>, tempfile::TempDir) {
        drop((self.source_messages, self.target_messages, self.listener));
        (self.endpoint.join().unwrap(), self.directory)
    }
}

/// Returns a valid block of a file.
pub(super) fn block(file: u64, size: u64, index: u64) -> (Header, Vec<u8>) {
    let range = Blocks::new(size).range(index).unwrap();
    let bytes = vec![index as u8 + 1; (range.end - range.start) as usize];
    let header = Header {
        file,
        block: index,
        content: Content::Data(bytes.len() as u32),
        hash: Blocks::new(size).hash(index, &bytes).unwrap(),
    };
    (header, bytes)
}

pub(super) fn send_block(to: &mut Connection, (header, bytes): &(Header, Vec<u8>)) {
    to.write_all(&header.encode()).unwrap();
    to.write_all(bytes).unwrap();
    to.flush().unwrap();
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter(|name| !name.starts_with(".longhaul-"))
        .collect();
    names.sort();
    names
}
