// SPDX-License-Identifier: MIT OR Apache-2.0
//! libudt's own example programs (Debian's libudt-dev has their source) at the other end, all settings the defaults of both, over
//! 100 Mbit/s with the delays at which its ACKs come later than the path takes.
//!
//! `appserver` takes what comes and `appclient` sends without end: `longhaul udt` is their other end. `sendfile` and `recvfile` ask for a
//! file by its name first: a connection of ours does as the other of the two does.

use crate::udt::{at_libudt, bytes, json, longhaul};
use longhaul_linux::{netns::Netns, process::inside};
use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
use longhaul_transport::port::{Control, bind};
use longhaul_udt::{
    Config,
    socket::{Socket, Stream},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Where the package has them, compressed if they are long.
const SOURCES: &str = "/usr/share/doc/libudt-dev/examples";

const NAMES: [&str; 4] = ["appserver", "appclient", "sendfile", "recvfile"];

/// A server of libudt's, and ours.
const PORT: &str = "9000";

/// So long that four packets each 104 ms, as it was once, are not done in [`PATIENCE`].
const BYTES: usize = 20_000_000;

const PATIENCE: Duration = Duration::from_secs(100);

/// A program, which is skipped if its source is not here.
fn example(name: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    if built.is_none() {
        longhaul_testbed::skip::because(format!("needs libudt-dev with {SOURCES}"));
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

/// A path of 100 Mbit/s for each of the delays, with the program that is to be at one end.
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

/// A server, once it says that it is one.
fn served(program: &Path, at: &Netns) -> Ended {
    let mut server = at_libudt(program, &[PORT]);
    let mut server = Ended(inside(&mut server, at).spawn().unwrap());
    let mut said = BufReader::new(server.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("server is ready"), "{line}");
    server.0.stdout = Some(said.into_inner());
    server
}

/// A program that serves or sends for ever.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // timeout(1) passes it on.
        let pid = self.0.id().to_string();
        let _gone = Command::new("kill").arg(&pid).status();
        let _gone = self.0.wait();
    }
}

/// A port in a namespace.
fn port(at: &Netns, port: &str) -> Socket {
    let address = format!("0.0.0.0:{port}").parse().unwrap();
    at.run(|| bind(address, Config::default(), Control::default()))
        .unwrap()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = longhaul_command::event_loop::current_thread().unwrap();
    runtime.block_on(async { timeout(PATIENCE, test).await.unwrap() });
}

#[test]
fn appserver_takes_a_file() {
    for (bed, program) in paths("appserver") {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::write(&from, bytes(BYTES)).unwrap();
        let _server = served(&program, &bed.right);
        let to = format!("{}:{PORT}", bed.right_address());
        let mut sends = longhaul(&["send", from.to_str().unwrap(), &to, "--json"]);
        let sent = json(&inside(&mut sends, &bed.left).output().unwrap());
        assert_eq!(sent["bytes"], BYTES, "{sent}");
    }
}

#[test]
fn appclient_sends_for_as_long_as_we_take() {
    for (bed, program) in paths("appclient") {
        let mut receives = longhaul(&["receive", "-", "--at", &format!("0.0.0.0:{PORT}")]);
        let mut receives = Ended(inside(&mut receives, &bed.right).spawn().unwrap());
        let mut line = String::new();
        let mut said = BufReader::new(receives.0.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        let to = bed.right_address().to_string();
        let mut client = at_libudt(&program, &[&to, PORT]);
        let _client = Ended(inside(&mut client, &bed.left).spawn().unwrap());
        let mut came = receives.0.stdout.take().unwrap();
        came.read_exact(&mut vec![0; BYTES]).unwrap();
    }
}

/// What `recvfile` asks for: the length of a name as an int, the name; the answer is the length of the file as an int64_t, and the file.
async fn serve_file(to: &mut Stream) {
    let length = to.read_i32_le().await.unwrap();
    let mut name = vec![0; length as usize];
    to.read_exact(&mut name).await.unwrap();
    assert_eq!(name, b"there");
    to.write_i64_le(BYTES as i64).await.unwrap();
    to.write_all(&bytes(BYTES)).await.unwrap();
    // Who receives a file by its length closes when it has that, maybe before its last ACK.
    let _closed = to.shutdown().await;
}

#[test]
fn recvfile_gets_a_file_from_us() {
    for (bed, program) in paths("recvfile") {
        let folder = tempfile::tempdir().unwrap();
        let socket = port(&bed.right, PORT);
        socket.listen();
        let to = bed.right_address().to_string();
        let mut gets = at_libudt(&program, &[&to, PORT, "there", "here"]);
        let mut gets = inside(gets.current_dir(folder.path()), &bed.left)
            .spawn()
            .unwrap();
        run(async { serve_file(&mut socket.accept().await.unwrap()).await });
        assert!(gets.wait().unwrap().success());
        assert!(fs::read(folder.path().join("here")).unwrap() == bytes(BYTES));
    }
}

/// As `recvfile` does.
async fn ask_for_file(from: &mut Stream, name: &Path) -> Vec<u8> {
    let name = name.to_str().unwrap();
    from.write_i32_le(name.len() as i32).await.unwrap();
    from.write_all(name.as_bytes()).await.unwrap();
    let length = from.read_i64_le().await.unwrap();
    let mut file = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut file).await.unwrap();
    file
}

#[test]
fn sendfile_sends_us_a_file() {
    for (bed, program) in paths("sendfile") {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        fs::write(&there, bytes(BYTES)).unwrap();
        let _server = served(&program, &bed.right);
        let socket = port(&bed.left, "0");
        let to = format!("{}:{PORT}", bed.right_address()).parse().unwrap();
        run(async {
            let mut from = socket.connect(to).await.unwrap();
            let file = ask_for_file(&mut from, &there).await;
            assert!(file == bytes(BYTES));
        });
    }
}
