// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers leave no files, processes or shared memory, however their tests end.

use longhaul_testprograms::{
    postgres::{Server, Setup},
    wait::{WAIT_LIMIT, wait_until},
};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
};

/// Directory, process and shared memory of a server.
struct ServerResources {
    directory: PathBuf,
    process: PathBuf,
    memory: String,
}

impl ServerResources {
    fn of(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let resources = Self {
            directory: directory.to_owned(),
            process: Path::new("/proc").join(lines[0]),
            memory: lines[6].split_whitespace().last().unwrap().to_owned(),
        };
        assert!(resources.process.exists() && resources.has_memory());
        resources
    }

    fn has_memory(&self) -> bool {
        let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let mut ids = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        ids.any(|id| id == self.memory)
    }

    fn are_gone(&self) -> bool {
        !self.directory.exists() && !self.process.exists() && !self.has_memory()
    }
}

fn directory_of(server: &Server) -> PathBuf {
    server
        .run_sql("postgres", "SHOW unix_socket_directories")
        .into()
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn drop_leaves_nothing() {
    let server = Server::start();
    let resources = ServerResources::of(&directory_of(&server));
    drop(server);
    assert!(resources.are_gone());
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn drop_of_a_paused_server_leaves_nothing() {
    let server = Server::start();
    let resources = ServerResources::of(&directory_of(&server));
    server.pause();
    drop(server);
    assert!(resources.are_gone());
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn drop_of_a_killed_server_leaves_nothing() {
    let mut server = Server::start();
    let resources = ServerResources::of(&directory_of(&server));
    server.kill();
    drop(server);
    assert!(resources.are_gone());
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn restarts_with_its_data_after_a_kill() {
    let mut server = Setup::default().durable().start();
    let before = ServerResources::of(&directory_of(&server));
    server.run_sql("postgres", "CREATE TABLE kept AS SELECT 42 AS answer");
    server.kill();
    server.restart();
    assert_eq!(server.run_sql("postgres", "SELECT answer FROM kept"), "42");
    let after = ServerResources::of(&directory_of(&server));
    drop(server);
    assert!(before.are_gone() && after.are_gone());
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn tcp_requires_a_password() {
    let server = Setup::default()
        .listen("127.0.0.1:0".parse().unwrap())
        .start();
    let url = server.create_database();
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

/// Child process of [`killed_test_leaves_nothing`], which kills it before it ends.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn holds_a_server_until_it_is_killed() {
    if env::var_os("HOLD_SERVER").is_some() {
        let server = Server::start();
        println!("\ndirectory={}", directory_of(&server).display());
        sleep(WAIT_LIMIT);
    }
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn killed_test_leaves_nothing() {
    let mut test = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "cleanup::holds_a_server_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env("HOLD_SERVER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let directory =
        lines.find_map(|line| Some(line.unwrap().strip_prefix("directory=")?.to_owned()));
    let resources = ServerResources::of(Path::new(&directory.unwrap()));
    test.kill().unwrap();
    test.wait().unwrap();
    wait_until(|| resources.are_gone());
}
