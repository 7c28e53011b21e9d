// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of a server nothing is left, however its test ends.

use longhaul_testbed::postgres::{Server, Setup};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a server has outside itself.
struct Traces {
    folder: PathBuf,
    process: PathBuf,
    memory: String,
}

impl Traces {
    fn of(folder: &Path) -> Self {
        let text = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let traces = Self {
            folder: folder.to_owned(),
            process: Path::new("/proc").join(lines[0]),
            memory: lines[6].split_whitespace().last().unwrap().to_owned(),
        };
        assert!(traces.process.exists() && traces.has_memory());
        traces
    }

    fn has_memory(&self) -> bool {
        let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let mut ids = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        ids.any(|id| id == self.memory)
    }

    fn are_gone(&self) -> bool {
        !self.folder.exists() && !self.process.exists() && !self.has_memory()
    }
}

fn folder_of(server: &Server) -> PathBuf {
    server
        .run("postgres", "SHOW unix_socket_directories")
        .into()
}

#[test]
fn after_its_drop() {
    let server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn after_a_drop_while_it_was_frozen() {
    let server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    server.freeze();
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn after_it_was_killed() {
    let mut server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    server.kill();
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn what_is_killed_comes_back_with_what_it_had() {
    let mut server = Setup::default().durable().start();
    let before = Traces::of(&folder_of(&server));
    server.run("postgres", "CREATE TABLE kept AS SELECT 42 AS answer");
    server.kill();
    server.start_again();
    assert_eq!(server.run("postgres", "SELECT answer FROM kept"), "42");
    let after = Traces::of(&folder_of(&server));
    drop(server);
    assert!(before.are_gone() && after.are_gone());
}

#[test]
fn tcp_wants_a_password() {
    let server = Setup::default()
        .listen("127.0.0.1:0".parse().unwrap())
        .start();
    let url = server.database();
    let psql = |url: &str| {
        let mut command = Command::new("psql");
        command.args(["-XAtqwc", "SELECT 1", url]);
        command.output().unwrap()
    };
    assert!(psql(&url).status.success());
    let (_, host) = url.split_once('@').unwrap();
    assert!(
        !psql(&format!("postgresql://longhaul@{host}"))
            .status
            .success()
    );
}

/// The other half of the next: it is killed before it ends.
#[test]
fn holds_a_server_until_it_is_killed() {
    if env::var_os("HOLD_A_SERVER").is_some() {
        let server = Server::start();
        println!("\nfolder={}", folder_of(&server).display());
        sleep(PATIENCE);
    }
}

#[test]
fn after_its_test_was_killed() {
    let mut test = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "nothing_is_left::holds_a_server_until_it_is_killed",
            "--nocapture",
        ])
        .env("HOLD_A_SERVER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let folder = lines.find_map(|line| Some(line.unwrap().strip_prefix("folder=")?.to_owned()));
    let traces = Traces::of(Path::new(&folder.unwrap()));
    test.kill().unwrap();
    test.wait().unwrap();
    let start = Instant::now();
    while !traces.are_gone() {
        assert!(start.elapsed() < PATIENCE, "something is left");
        sleep(Duration::from_millis(10));
    }
}
