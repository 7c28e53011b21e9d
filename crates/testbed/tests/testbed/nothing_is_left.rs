// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers leave nothing behind, however their tests end.

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

/// Directory, process and shared memory of a server.
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
fn drop_leaves_nothing() {
    let server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn drop_of_a_frozen_server_leaves_nothing() {
    let server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    server.freeze();
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn drop_of_a_killed_server_leaves_nothing() {
    let mut server = Server::start();
    let traces = Traces::of(&folder_of(&server));
    server.kill();
    drop(server);
    assert!(traces.are_gone());
}

#[test]
fn restarts_with_its_data_after_a_kill() {
    let mut server = Setup::default().durable().start();
    let before = Traces::of(&folder_of(&server));
    server.run("postgres", "CREATE TABLE kept AS SELECT 42 AS answer");
    server.kill();
    server.restart();
    assert_eq!(server.run("postgres", "SELECT answer FROM kept"), "42");
    let after = Traces::of(&folder_of(&server));
    drop(server);
    assert!(before.are_gone() && after.are_gone());
}

#[test]
fn tcp_requires_a_password() {
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

/// Child process of the next test, killed before it ends.
#[test]
fn holds_a_server_until_it_is_killed() {
    if env::var_os("HOLD_A_SERVER").is_some() {
        let server = Server::start();
        println!("\nfolder={}", folder_of(&server).display());
        sleep(PATIENCE);
    }
}

#[test]
fn killed_test_leaves_nothing() {
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
        assert!(start.elapsed() < PATIENCE, "leftovers of the server remain");
        sleep(Duration::from_millis(10));
    }
}
