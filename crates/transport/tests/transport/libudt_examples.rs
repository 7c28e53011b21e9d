// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interoperation with libudt's own example programs (Debian's libudt-dev has their source). Both sides use their
//! default settings, over 100 Mbit/s with delays at which the ACKs of libudt take longer than the round trip.
//!
//! `appserver` receiver and `appclient` sender without end: `longhaul udt` is their peer. `sendfile` and `recvfile`
//! first exchange a file name: a connection of this test speaks the protocol of the other.

use crate::udt::{at_libudt, json, longhaul};
use longhaul_linux::{netns::Netns, process::inside};
use longhaul_testnet::{
    link_process::{Testbed, may_use_namespaces},
    payload::bytes,
};
use longhaul_testprograms::wait::wait_for_line;
use longhaul_transport::port::{UdtCongestionControl, bind};
use longhaul_udt::{
    Config,
    socket::{Socket, Stream},
};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Directory of the sources in the package; long ones are compressed.
const SOURCES: &str = "/usr/share/doc/libudt-dev/examples";

const NAMES: [&str; 4] = ["appserver", "appclient", "sendfile", "recvfile"];

/// Port of the servers.
const PORT: &str = "9000";

/// Bytes of each transfer. A stall of 104 ms per four packets, as there once was, exceeds [`TIMEOUT`].
const BYTES: u64 = 20_000_000;

const TIMEOUT: Duration = Duration::from_secs(100);

/// Returns an example program; `None` if its source is missing.
fn example(name: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    if built.is_none() {
        longhaul_testprograms::skip::record(format!("needs libudt-dev with {SOURCES}"));
    }
    built.as_ref().map(|directory| directory.join(name))
}

fn build() -> Option<PathBuf> {
    let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libudt-examples");
    fs::create_dir_all(&to).unwrap();
    let is_built = |name: &&str| {
        let line = format!(
            "set -o pipefail; zcat -f {SOURCES}/{name}.cpp* |
             c++ -w -O2 -I{SOURCES} -I/usr/include/udt -x c++ - -o {name} -ludt -lpthread"
        );
        let mut shell = Command::new("bash");
        let shell = shell.args(["-c", &line]).current_dir(&to);
        shell
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    NAMES.iter().all(is_built).then_some(to)
}

/// Starts a link of 100 Mbit/s for each delay, for a test with this program.
fn paths(name: &'static str) -> impl Iterator<Item = (Testbed, PathBuf)> {
    let program = may_use_namespaces().then(|| example(name)).flatten();
    let delays = ["100us", "1ms", "10ms"].into_iter();
    delays.filter_map(move |delay| {
        let program = program.clone()?;
        let flags = ["--rate", "100mbit", "--delay", delay];
        let addresses = ["10.89.0.1/24", "10.89.0.2/24"];
        Some((Testbed::start(name, addresses, &flags), program))
    })
}

/// Starts a server, and waits until it reports that it is ready.
fn start_server(program: &Path, at: &Netns) -> KillOnDrop {
    let mut server = at_libudt(program, &[PORT]);
    let mut server = KillOnDrop(inside(&mut server, at).spawn().unwrap());
    wait_for_line(server.0.stdout.take().unwrap(), "server is ready");
    server
}

/// Program without an end, which is terminated on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // timeout(1) forwards the signal.
        let pid = self.0.id().to_string();
        let _result = Command::new("kill").arg(&pid).status();
        let _result = self.0.wait();
    }
}

/// Binds a port in a namespace.
fn port(at: &Netns, port: &str) -> Socket {
    let address = format!("0.0.0.0:{port}").parse().unwrap();
    at.run(|| bind(address, Config::default(), UdtCongestionControl::default()))
        .unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = longhaul_command::event_loop::current_thread().unwrap();
    runtime.block_on(async { timeout(TIMEOUT, test).await.unwrap() });
}

#[test]
fn appserver_receives_a_file() {
    for (bed, program) in paths("appserver") {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::write(&from, bytes(1, BYTES)).unwrap();
        let _server = start_server(&program, &bed.right);
        let to = format!("{}:{PORT}", bed.right_address());
        let mut sender = longhaul(&["send", from.to_str().unwrap(), &to, "--json"]);
        let sent = json(&inside(&mut sender, &bed.left).output().unwrap());
        assert_eq!(sent["bytes"], BYTES, "{sent}");
    }
}

#[test]
fn receives_from_appclient() {
    for (bed, program) in paths("appclient") {
        let mut receiver = longhaul(&["receive", "-", "--listen", &format!("0.0.0.0:{PORT}")]);
        let mut receiver = KillOnDrop(inside(&mut receiver, &bed.right).spawn().unwrap());
        wait_for_line(receiver.0.stderr.take().unwrap(), "\n");
        let to = bed.right_address().to_string();
        let mut client = at_libudt(&program, &[&to, PORT]);
        let _client = KillOnDrop(inside(&mut client, &bed.left).spawn().unwrap());
        let mut received = receiver.0.stdout.take().unwrap();
        received.read_exact(&mut vec![0; BYTES as usize]).unwrap();
    }
}

/// Serves the protocol of `recvfile`. The request is the length of a name as an int, and the name. The reply is the
/// length of the file as an int64_t, and the file.
async fn serve_file(to: &mut Stream) {
    let length = to.read_i32_le().await.unwrap();
    let mut name = vec![0; length as usize];
    to.read_exact(&mut name).await.unwrap();
    assert_eq!(name, b"there");
    to.write_i64_le(BYTES as i64).await.unwrap();
    to.write_all(&bytes(1, BYTES)).await.unwrap();
    // A receiver that knows the file's length closes after that many bytes, maybe before its last ACK.
    let _closed = to.shutdown().await;
}

#[test]
fn recvfile_receives_a_file() {
    for (bed, program) in paths("recvfile") {
        let folder = tempfile::tempdir().unwrap();
        let socket = port(&bed.right, PORT);
        socket.listen();
        let to = bed.right_address().to_string();
        let mut client = at_libudt(&program, &[&to, PORT, "there", "here"]);
        let mut client = inside(client.current_dir(folder.path()), &bed.left)
            .spawn()
            .unwrap();
        run(async { serve_file(&mut socket.accept().await.unwrap()).await });
        assert!(client.wait().unwrap().success());
        assert!(fs::read(folder.path().join("here")).unwrap() == bytes(1, BYTES));
    }
}

/// Requests a file as `recvfile` does.
async fn request_file(from: &mut Stream, name: &Path) -> Vec<u8> {
    let name = name.to_str().unwrap();
    from.write_i32_le(name.len() as i32).await.unwrap();
    from.write_all(name.as_bytes()).await.unwrap();
    let length = from.read_i64_le().await.unwrap();
    let mut file = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut file).await.unwrap();
    file
}

#[test]
fn receives_a_file_from_sendfile() {
    for (bed, program) in paths("sendfile") {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        fs::write(&there, bytes(1, BYTES)).unwrap();
        let _server = start_server(&program, &bed.right);
        let socket = port(&bed.left, "0");
        let to = format!("{}:{PORT}", bed.right_address()).parse().unwrap();
        run(async {
            let mut from = socket.connect(to).await.unwrap();
            let file = request_file(&mut from, &there).await;
            assert!(file == bytes(1, BYTES));
        });
    }
}
