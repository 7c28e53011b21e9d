// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies that several workers share through a PostgreSQL database. Pairs of hosts, each in a network namespace, are killed,
//! disconnected, stopped, or joined by another command; the database may be killed. The result is always the same tree
//! without leftover files, and an empty database.
//!
//! A test acts when a given number of extents is finished. `COPY_WORKER_KILLS` is the number of rounds of random kills
//! (default 2), `COPY_SEED` the first seed.

use crate::copy_testbed::{
    finish,
    hosts::{Hosts, capture_output},
    kill, tree, wait_until,
};
use longhaul_linux::netns::Netns;
use longhaul_store::blocks::FileHash;
use longhaul_testprograms::postgres::{Server, Setup};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Output},
    time::Duration,
};

/// Length of an extent in bytes: the minimum.
const EXTENT: u64 = 16_000_000;

/// Number of blocks of the large file: four extents.
const BLOCKS: u64 = 12;

const ALL_HOSTS: [&str; 6] = ["a1", "a2", "b1", "b2", "d1", "d2"];

/// Two source hosts, two target hosts, two hosts that run commands, and the database.
struct WorkerTestbed {
    hosts: Hosts,
    /// Database server on a host of its own, instead of the one that all tests share.
    own: Option<Server>,
    database: String,
    folder: tempfile::TempDir,
    ssh: String,
    hashes: BTreeMap<PathBuf, FileHash>,
}

impl WorkerTestbed {
    fn new() -> Self {
        let hosts = Hosts::new(&ALL_HOSTS, "240mbit");
        Self::with(hosts, None)
    }

    /// Creates a testbed with a database on a host of its own, which a test may kill.
    fn with_its_own_database() -> Self {
        let names = [&ALL_HOSTS[..], &["db"]].concat();
        let hosts = Hosts::new(&names, "240mbit");
        let at = SocketAddr::new(hosts.address("db").into(), 5432);
        let netns = Netns::named(hosts.of("db").name()).unwrap();
        let setup = Setup::default().durable().listen(at);
        let server = setup
            .prepare_commands(move |command| {
                longhaul_linux::process::inside(command, &netns);
            })
            .start();
        Self::with(hosts, Some(server))
    }

    fn with(hosts: Hosts, own: Option<Server>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from/tree");
        tree::make(&from, BLOCKS);
        Self {
            ssh: hosts.ssh(folder.path()),
            hashes: tree::hashes(&folder.path().join("from")),
            database: own
                .as_ref()
                .unwrap_or_else(|| Server::shared())
                .create_database(),
            hosts,
            own,
            folder,
        }
    }

    fn server(&self) -> &Server {
        self.own.as_ref().unwrap_or_else(|| Server::shared())
    }

    fn restart_database(&mut self) {
        let server = self.own.as_mut().unwrap();
        server.kill();
        server.restart();
    }

    /// Connects to the database over a local socket.
    fn job_store(&self) -> longhaul_leases::JobStore {
        let name = self.database_name();
        longhaul_leases::JobStore::open(&self.server().socket_url(name)).unwrap()
    }

    fn database_name(&self) -> &str {
        let name = self.database.rsplit('/').next().unwrap();
        name.split('?').next().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a copy on the host `on`, between all hosts of both sides. The hosts with the number `first` are named first.
    fn start(&self, on: &str, first: u8, arguments: &[&str]) -> Child {
        self.start_by(&self.ssh, on, first, arguments)
    }

    fn start_by(&self, ssh: &str, on: &str, first: u8, arguments: &[&str]) -> Child {
        let other = 3 - first;
        let places = [
            format!("a{first},a{other}:{}", self.path("from/tree").display()),
            format!("b{first},b{other}:{}", self.path("to").display()),
        ];
        let program = longhaul_testprograms::longhaul();
        let extent = EXTENT.to_string();
        let mut command = self.hosts.on(on, program);
        command.args(["copy", "--json", "--streams", "2", "--extent", &extent]);
        command.args(["--lease-time", "2s", "--idle-timeout", "3s"]);
        command.args(["--ssh", ssh, "--remote-program", program]);
        command
            .args(["--leases", &self.database])
            .args(arguments)
            .args(places);
        capture_output(&mut command).spawn().unwrap()
    }

    /// Returns the number of finished extents.
    fn finished_extents(&self) -> u64 {
        let job_store = self.job_store();
        let jobs = job_store.jobs().unwrap();
        let done =
            |listed: &longhaul_leases::JobSummary| job_store.status(listed.job).unwrap().done.tasks;
        jobs.first().map_or(0, done)
    }

    /// Waits until a number of extents is finished, or the command has ended.
    fn wait_for(&self, extents: u64, command: &mut Child) {
        while command.try_wait().unwrap().is_none() && self.finished_extents() < extents {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that the tree is complete, and that no files, processes or rows are left.
    fn assert_complete(&self, context: &str) {
        self.hosts.wait_until_empty(&ALL_HOSTS);
        let to = self.path("to");
        tree::assert_same(&self.path("from/tree"), &to.join("tree"), context);
        assert_eq!(
            tree::remaining_internal_files(&to),
            Vec::<PathBuf>::new(),
            "{context}"
        );
        let unknown = tree::not_in_manifest(&to, &self.hashes);
        assert_eq!(
            unknown,
            Vec::<PathBuf>::new(),
            "{context}: not in the manifest"
        );
        let name = self.database_name();
        for table in ["job", "extent"] {
            let rows = self
                .server()
                .run_sql(name, &format!("SELECT count(*) FROM longhaul.{table}"));
            assert_eq!(rows.trim(), "0", "{context}: of {table}");
        }
    }

    fn bytes(&self) -> u64 {
        crate::copy_testbed::durable::missing_bytes(&self.path("from"), Path::new("/nowhere"))
    }
}

/// Returns the record that a command prints at its end.
fn record(output: &Output, context: &str) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{context}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn two_pairs_of_hosts_share_a_tree_and_its_largest_file() {
    let testbed = WorkerTestbed::new();
    let before = ["a1", "a2"].map(|host| testbed.hosts.sent(host));
    let output = finish(testbed.start("d1", 1, &[]));
    let done = record(&output, "first");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(
        done["sent_bytes"],
        testbed.bytes(),
        "all, and nothing twice"
    );
    assert_eq!(done["workers"]["count"], 2);
    for (host, before) in ["a1", "a2"].into_iter().zip(before) {
        let sent = testbed.hosts.sent(host) - before;
        assert!(sent > 1_000_000, "{host} sent {sent} bytes only");
    }
    testbed.assert_complete("first");
    let again = record(
        &finish(testbed.start("d1", 2, &["--workers", "1"])),
        "again",
    );
    assert_eq!(
        (&again["sent_bytes"], &again["copied"]),
        (&0.into(), &0.into())
    );
    testbed.assert_complete("again");
}

/// Extents of a dead worker go to the other, and finished extents are not copied again.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn dead_or_disconnected_hosts_lose_only_their_leased_extents() {
    let testbed = WorkerTestbed::new();
    for (host, dies) in [("b2", true), ("a2", true), ("b1", false)] {
        let context = format!("{host} dies: {dies}");
        drop(fs::remove_dir_all(testbed.path("to")));
        let mut command = testbed.start("d1", 1, &[]);
        testbed.wait_for(3, &mut command);
        testbed.hosts.set_connected(host, false);
        if dies {
            testbed.hosts.kill_all(host);
        }
        let output = finish(command);
        testbed.hosts.set_connected(host, true);
        let done = record(&output, &context);
        let sent = done["sent_bytes"].as_u64().unwrap();
        // Each pair has one extent in progress and one leased ahead. The session of the other pair may end too.
        assert!(sent <= testbed.bytes() + 4 * EXTENT, "{context}: {sent}");
        testbed.assert_complete(&context);
        make_removable(&testbed.path("to/tree"));
    }
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn second_command_shares_the_work_and_finishes_alone() {
    let testbed = WorkerTestbed::new();
    let mut first = testbed.start("d1", 1, &["--workers", "1"]);
    testbed.wait_for(2, &mut first);
    let mut second = testbed.start("d2", 2, &["--workers", "1"]);
    testbed.wait_for(4, &mut second);
    kill(first.id());
    assert!(!finish(first).status.success());
    let done = record(&finish(second), "second");
    let sent = done["sent_bytes"].as_u64().unwrap();
    assert!(
        sent < testbed.bytes() - EXTENT,
        "it copied everything by itself: {sent}"
    );
    testbed.assert_complete("second");
}

/// The command that finishes last finds no job in the database, because the other has removed it.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn all_commands_that_share_a_copy_succeed() {
    let testbed = WorkerTestbed::new();
    for round in 0..2 {
        drop(fs::remove_dir_all(testbed.path("to")));
        let first = testbed.start("d1", 1, &["--workers", "1"]);
        std::thread::sleep(Duration::from_secs(1));
        let second = testbed.start("d2", 2, &["--workers", "1"]);
        let sent = [(first, "first"), (second, "second")].map(|(command, name)| {
            let done = record(&finish(command), &format!("round {round}: {name}"));
            done["sent_bytes"].as_u64().unwrap()
        });
        assert_eq!(sent[0] + sent[1], testbed.bytes(), "{sent:?}");
        testbed.assert_complete(&format!("round {round}"));
        make_removable(&testbed.path("to/tree"));
    }
}

/// The command continues after another has taken over its extents, finished the copy and removed the job.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn command_that_was_stopped_until_the_end_of_the_copy_succeeds() {
    let testbed = WorkerTestbed::new();
    let mut stopped = testbed.start("d2", 2, &["--workers", "1"]);
    testbed.wait_for(1, &mut stopped);
    let signal = |signal: &str| {
        let mut kill = testbed.hosts.on("d2", "kill");
        let status = kill.args([signal, &stopped.id().to_string()]).status();
        assert!(status.unwrap().success());
    };
    signal("-STOP");
    let done = testbed.start("d1", 1, &["--workers", "1"]);
    record(&finish(done), "first");
    signal("-CONT");
    record(&finish(stopped), "stopped");
    testbed.assert_complete("stopped");
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn survives_a_restart_of_the_database() {
    let mut testbed = WorkerTestbed::with_its_own_database();
    let mut command = testbed.start("d1", 1, &[]);
    testbed.wait_for(3, &mut command);
    testbed.restart_database();
    record(&finish(command), "killed");
    testbed.assert_complete("killed");
}

/// A stopped process whose leases expired, and which continues after the end of the copy, writes nothing.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn stopped_source_writes_nothing_after_its_leases_expired() {
    let testbed = WorkerTestbed::new();
    let mut command = testbed.start("d1", 1, &[]);
    testbed.wait_for(3, &mut command);
    let stopped = testbed.hosts.of("a2").processes();
    let signal = |signal: &str| {
        let pids = stopped.iter().map(u32::to_string);
        let mut kill = testbed.hosts.on("a2", "kill");
        // Some processes may have exited.
        drop(
            capture_output(kill.arg(signal).args(pids))
                .output()
                .unwrap(),
        );
    };
    signal("-STOP");
    // A stopped process keeps the command's standard error open, so the end of that is not awaited.
    wait_until(|| command.try_wait().unwrap().is_some());
    let large = testbed.path("to/tree/large");
    let mut file = fs::OpenOptions::new().append(true).open(&large).unwrap();
    file.write_all(b"and more").unwrap();
    let hash = |path: &Path| tree::hashes(path.parent().unwrap()).remove(Path::new("large"));
    let after = hash(&large);
    signal("-CONT");
    record(&finish(command), "stopped");
    testbed.hosts.wait_until_empty(&ALL_HOSTS);
    assert_eq!(hash(&large), after);
}

/// All workers fail at the same files, and the session after them reports the failures by name.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn names_failed_files_and_copies_the_rest() {
    let testbed = WorkerTestbed::new();
    let to = testbed.path("to/tree/sizes");
    fs::create_dir_all(&to).unwrap();
    fs::create_dir(to.join("1024")).unwrap();
    fs::create_dir_all(testbed.path("to/tree/large/x")).unwrap();
    let output = finish(testbed.start("d1", 1, &[]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for name in ["tree/sizes/1024", "tree/large"] {
        let named = stderr.lines().filter(|line| line.contains(name));
        assert!(named.count() >= 1, "{name}: {stderr}");
    }
    fs::remove_dir(to.join("1024")).unwrap();
    fs::remove_dir_all(testbed.path("to/tree/large")).unwrap();
    record(&finish(testbed.start("d1", 1, &[])), "again");
    testbed.assert_complete("again");
}

/// One of the target hosts has a file system of its own mounted there.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn refuses_hosts_that_do_not_share_the_target_before_any_change() {
    let testbed = WorkerTestbed::new();
    let (ssh, to) = (testbed.path("blind"), testbed.path("to"));
    fs::create_dir(&to).unwrap();
    let with_own_mount = "mount -t tmpfs none $0 && exec \"$@\"";
    let text = format!(
        "#!/bin/sh\n[ $2 = b2 ] && exec unshare -m sh -c '{with_own_mount}' {} {} \"$@\"\nexec {} \"$@\"\n",
        to.display(),
        testbed.ssh,
        testbed.ssh
    );
    fs::write(&ssh, text).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let output = finish(testbed.start_by(ssh.to_str().unwrap(), "d1", 1, &[]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let want = "longhaul: b2 does not see what is in the target's directory on b1";
    assert!(stderr.starts_with(want), "{stderr}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    testbed.hosts.wait_until_empty(&ALL_HOSTS);
}

/// An abandoned job stays in the database until a user removes it.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn lists_and_removes_jobs() {
    let testbed = WorkerTestbed::new();
    let address = testbed.path("address");
    fs::write(&address, format!("{}\n", testbed.database)).unwrap();
    let jobs = |arguments: &[&str]| {
        let mut command = testbed.hosts.on("d2", longhaul_testprograms::longhaul());
        let leases = format!("@{}", address.display());
        command.args(["copy", "jobs", "--leases", &leases]);
        capture_output(command.args(arguments)).output().unwrap()
    };
    let listed = || -> Vec<serde_json::Value> {
        let stdout = jobs(&["--json"]).stdout;
        let lines = stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    };
    assert_eq!(listed(), [0; 0]);
    let mut command = testbed.start("d1", 1, &["--workers", "1"]);
    testbed.wait_for(1, &mut command);
    kill(command.id());
    drop(finish(command));
    let [job] = &listed()[..] else {
        panic!("{:?}", listed())
    };
    let from = format!("a1,a2:{}", testbed.path("from/tree").display());
    assert_eq!(
        (&job["sources"][0], &job["failed_extents"]),
        (&from.into(), &0.into())
    );
    assert!(job["done_extents"].as_u64() >= Some(1), "{job}");
    assert_eq!(jobs(&["--forget", "nothing"]).status.code(), Some(2));
    assert!(
        jobs(&["--forget", job["number"].as_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(listed(), [0; 0]);
    testbed.hosts.wait_until_empty(&ALL_HOSTS);
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn workers_of_a_removed_job_exit() {
    let testbed = WorkerTestbed::new();
    let mut command = testbed.start("d1", 1, &["--workers", "2", "--limit", "30mbit"]);
    testbed.wait_for(1, &mut command);
    let job_store = testbed.job_store();
    let [job] = &job_store.jobs().unwrap()[..] else {
        panic!("one job")
    };
    assert!(job_store.delete_job(job.job).unwrap());
    let output = finish(command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("removed this copy from the database"),
        "{stderr}"
    );
    assert!(!stderr.contains("retrying in"), "{stderr}");
    assert!(stderr.lines().count() <= 3, "{stderr}");
    testbed.hosts.wait_until_empty(&ALL_HOSTS);
}

/// Its workers hold no extent, so they see at the target that the copy is not finished.
#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn idle_command_of_a_removed_job_exits_without_copying_the_rest() {
    let testbed = WorkerTestbed::new();
    let mut command = testbed.start("d1", 1, &["--workers", "1", "--limit", "60mbit"]);
    testbed.wait_for(2, &mut command);
    let job_store = testbed.job_store();
    let [job] = &job_store.jobs().unwrap()[..] else {
        panic!("one job")
    };
    let hour = Duration::from_secs(3600);
    let others = job_store.acquire(job.job, "other", 64, hour).unwrap();
    assert!(!others.is_empty());
    wait_until(|| job_store.status(job.job).unwrap().holders.len() <= 1);
    assert!(job_store.delete_job(job.job).unwrap());
    let output = finish(command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let checks = "checking whether it is complete";
    assert!(stderr.contains(checks), "{stderr}");
    let removed = "removed this copy from the database";
    assert!(stderr.contains(removed), "{stderr}");
    testbed.hosts.wait_until_empty(&ALL_HOSTS);
    assert!(!testbed.path("to/tree/large").exists());
}

fn make_removable(tree: &Path) {
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// Runs one copy with one to three faults.
fn run_with_random_faults(testbed: &mut WorkerTestbed, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |bound: u64| random.next_u64() % bound;
    let mut context = format!("seed {seed}:");
    drop(fs::remove_dir_all(testbed.path("to")));
    let mut command = testbed.start("d1", 1, &[]);
    for _ in 0..=below(3) {
        let (victim, moment) = (below(6), below(12));
        context += &format!(" {victim} at {moment}");
        testbed.wait_for(moment, &mut command);
        match victim {
            4 => testbed.restart_database(),
            5 => {
                kill(command.id());
                drop(finish(command));
                command = testbed.start("d2", 2, &[]);
            }
            host => testbed.hosts.kill_all(ALL_HOSTS[host as usize]),
        }
    }
    let output = finish(command);
    record(&output, &context);
    testbed.assert_complete(&context);
    make_removable(&testbed.path("to/tree"));
}

#[test]
#[ignore = "needs PostgreSQL: make test-peers"]
fn completes_a_copy_after_random_kills() {
    let first = number("COPY_SEED", 1);
    let mut testbed = WorkerTestbed::with_its_own_database();
    for seed in first..first + number("COPY_WORKER_KILLS", 2) {
        run_with_random_faults(&mut testbed, seed);
    }
}
