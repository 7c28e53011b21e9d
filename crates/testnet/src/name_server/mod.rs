// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name server with records of a test, and resolver files that refer to it.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};
use tempfile::NamedTempFile;

/// Delay of replies for names that begin with `late`.
pub const LATE: Duration = Duration::from_millis(1500);

type Records = Arc<Mutex<HashMap<String, Vec<IpAddr>>>>;

/// Name server on an address of its own. Replies have a TTL of zero. Unknown names get NXDOMAIN, and those with one of
/// these beginnings what it says:
///
/// | beginning | reply |
/// |---|---|
/// | `silent` | none |
/// | `half` | none for IPv6 |
/// | `failing` | SERVFAIL |
/// | `failing6` | SERVFAIL for IPv6 |
/// | `refused` | REFUSED |
/// | `truncated` | truncated over UDP, whole over TCP |
/// | `late` | only the first query for IPv4 and IPv6 each, [`LATE`] later |
pub struct NameServer {
    address: IpAddr,
    records: Records,
    queried_names: Arc<Mutex<Vec<String>>>,
    /// Code of all replies, unless 0.
    failure: Arc<AtomicU8>,
}

impl NameServer {
    /// Starts a server with these records.
    pub fn start(records: &[(&str, &[&str])]) -> Self {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 128 | high, low, NUMBER.fetch_add(1, Relaxed));
        let socket = UdpSocket::bind((address, 53)).unwrap();
        let server = Self {
            address: address.into(),
            records: Records::default(),
            queried_names: Arc::default(),
            failure: Arc::default(),
        };
        for (name, addresses) in records {
            server.set(name, addresses);
        }
        let (records, queried_names) = (server.records.clone(), server.queried_names.clone());
        let failure = server.failure.clone();
        std::thread::spawn(move || serve(&socket, &records, &queried_names, &failure));
        let listener = TcpListener::bind((address, 53)).unwrap();
        let records = server.records.clone();
        std::thread::spawn(move || serve_tcp(&listener, &records));
        server
    }

    /// Sets the addresses of `name`.
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let mut records = self.records.lock().unwrap();
        records.insert(name.to_owned(), addresses);
    }

    /// Lets the server refuse all queries with this code (RFC 1035 §4.1.1).
    pub fn fail(&self, code: u8) {
        self.failure.store(code, Relaxed);
    }

    /// Returns the line of resolv.conf for this server.
    pub fn line(&self) -> String {
        format!("nameserver {}\n", self.address)
    }

    /// Returns the number of different names with this prefix in queries.
    pub fn count_queried(&self, prefix: &str) -> usize {
        let mut names = self.queried_names.lock().unwrap().clone();
        names.sort();
        names.dedup();
        names.iter().filter(|name| name.starts_with(prefix)).count()
    }

    /// Creates resolver files for a program that uses this server: `more` lines of resolv.conf, and the text of `hosts`.
    pub fn create_resolver_files(&self, more: &str, hosts: &str) -> ResolverFiles {
        let files = ResolverFiles {
            resolv: NamedTempFile::new().unwrap(),
            hosts: NamedTempFile::new().unwrap(),
        };
        files.set_server(self, more);
        std::fs::write(&files.hosts, hosts).unwrap();
        files
    }
}

/// Replacements of /etc/resolv.conf and /etc/hosts.
pub struct ResolverFiles {
    resolv: NamedTempFile,
    hosts: NamedTempFile,
}

impl ResolverFiles {
    /// Writes resolv.conf with these lines alone.
    pub fn set_lines(&self, lines: &str) {
        std::fs::write(&self.resolv, lines).unwrap();
    }

    /// Writes resolv.conf with this server and `more` lines.
    pub fn set_server(&self, server: &NameServer, more: &str) {
        let mut file = std::fs::File::create(&self.resolv).unwrap();
        let address = server.address;
        writeln!(
            file,
            "nameserver {address}\noptions timeout:30 attempts:5\n{more}"
        )
        .unwrap();
    }

    /// Returns the command `longhaul relay ARGS` in a mount namespace with these files.
    pub fn relay(&self, args: &[&str]) -> Command {
        let script = "mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/hosts && \
                      shift 2 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([self.resolv.path(), self.hosts.path()])
            .args([longhaul_testprograms::longhaul(), "relay"])
            .args(args);
        command
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;

fn serve(
    socket: &UdpSocket,
    records: &Records,
    queried_names: &Mutex<Vec<String>>,
    failure: &AtomicU8,
) {
    let mut buffer = [0; 1024];
    while let Ok((len, client)) = socket.recv_from(&mut buffer) {
        let query = &buffer[..len];
        let Some((name, record_type, end)) = parse_question(query) else {
            continue;
        };
        let earlier = {
            let mut names = queried_names.lock().unwrap();
            names.push(name.clone());
            names.iter().filter(|queried| **queried == name).count() - 1
        };
        let is_silent_for_ipv6 = name.starts_with("half") && record_type == AAAA;
        let is_repeated = name.starts_with("late") && earlier > 1;
        if name.starts_with("silent") || is_silent_for_ipv6 || is_repeated {
            continue;
        }
        let failure = failure.load(Relaxed);
        let addresses = records.lock().unwrap().get(&name).cloned();
        let addresses = addresses.filter(|_| failure == 0);
        let mut response = encode_response(query, end, record_type, &name, addresses);
        if failure != 0 {
            response[3] = 0x80 | failure;
        }
        if name.starts_with("truncated") {
            // The flag TC, and no answer.
            response[2] |= 2;
            response[7] = 0;
            response.truncate(end);
        }
        let socket = socket.try_clone().unwrap();
        let send = move || socket.send_to(&response, client).unwrap();
        if name.starts_with("late") {
            std::thread::spawn(move || {
                std::thread::sleep(LATE);
                send();
            });
        } else {
            send();
        }
    }
}

/// Serves the queries of each connection (RFC 1035 §4.2.2).
fn serve_tcp(listener: &TcpListener, records: &Records) {
    while let Ok((mut client, _)) = listener.accept() {
        let records = records.clone();
        std::thread::spawn(move || {
            let mut len = [0; 2];
            while client.read_exact(&mut len).is_ok() {
                let mut query = vec![0; u16::from_be_bytes(len).into()];
                client.read_exact(&mut query).unwrap();
                let (name, record_type, end) = parse_question(&query).unwrap();
                let addresses = records.lock().unwrap().get(&name).cloned();
                let response = encode_response(&query, end, record_type, &name, addresses);
                let len = (response.len() as u16).to_be_bytes();
                client.write_all(&[&len[..], &response].concat()).unwrap();
            }
        });
    }
}

/// Parses a question: the name without its final dot, the type, and the offset of the end (RFC 1035 §4.1.2).
fn parse_question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        let label = query.get(at..at + len)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += len;
    }
    let record_type = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), record_type, at + 4))
}

/// Encodes the response to a query. `end` is the offset at which its question ends; `addresses` are those of `name`, if
/// it is known.
fn encode_response(
    query: &[u8],
    end: usize,
    record_type: u16,
    name: &str,
    addresses: Option<Vec<IpAddr>>,
) -> Vec<u8> {
    let code = match addresses {
        _ if name.starts_with("failing6") && record_type != AAAA => 0,
        _ if name.starts_with("failing") => 2,
        _ if name.starts_with("refused") => 5,
        Some(_) => 0,
        None => 3,
    };
    let of_type = addresses
        .into_iter()
        .flatten()
        .filter_map(|ip| match (ip, record_type) {
            (IpAddr::V4(ip), A) => Some(ip.octets().to_vec()),
            (IpAddr::V6(ip), AAAA) => Some(ip.octets().to_vec()),
            _ => None,
        });
    let answers: Vec<_> = of_type.collect();
    // Identifier of the query; flags of a response, recursion desired and available; one question.
    let mut message = query[..2].to_vec();
    message.extend([0x81, 0x80 | code, 0, 1, 0, answers.len() as u8, 0, 0, 0, 0]);
    message.extend(&query[12..end]);
    for data in answers {
        // Pointer to the question's name, class IN, a TTL of zero.
        message.extend([0xc0, 12]);
        message.extend(record_type.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 0, 0, data.len() as u8]);
        message.extend(data);
    }
    message
}
