// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies that several movers share through a PostgreSQL: pairs of hosts, each in its namespace, that may be killed, cut
//! off, stopped, or joined by another command; and a database that may die. The end is always the same tree, nothing
//! beside it, and nothing in the database.
//!
//! Moments are counted in extents that are done. `COPY_MOVER_KILLS` says how many rounds of random kills (default 2),
//! `COPY_SEED` from which seed on.

use crate::copy_testbed::{
    PATIENCE, finish,
    hosts::{Hosts, kept},
    kill, tree,
};
use longhaul_linux::netns::Netns;
use longhaul_store::blocks::FileHash;
use longhaul_testbed::postgres::{Server, Setup};
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
    time::{Duration, Instant},
};

/// Bytes of an extent: the smallest that may be asked for.
const EXTENT: u64 = 16_000_000;

/// Blocks of the large file: four extents.
const BLOCKS: u64 = 12;

const ALL: [&str; 6] = ["a1", "a2", "b1", "b2", "d1", "d2"];

/// Two sources, two targets, two hosts that only give commands, and the database.
struct Site {
    hosts: Hosts,
    /// On its own host, and not the one that all tests share.
    own: Option<Server>,
    database: String,
    folder: tempfile::TempDir,
    ssh: String,
    hashes: BTreeMap<PathBuf, FileHash>,
}

impl Site {
    fn new() -> Self {
        let hosts = Hosts::new(&ALL, "240mbit");
        Self::with(hosts, None)
    }

    /// With a database that may be killed, on a host of its own.
    fn with_its_own_database() -> Self {
        let names = [&ALL[..], &["db"]].concat();
        let hosts = Hosts::new(&names, "240mbit");
        let at = SocketAddr::new(hosts.address("db").into(), 5432);
        let netns = Netns::named(hosts.of("db").name().unwrap()).unwrap();
        let setup = Setup::default().durable().listen(at);
        let server = setup
            .within(move |command| {
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
            database: own.as_ref().unwrap_or_else(|| Server::shared()).database(),
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
        server.start_again();
    }

    /// By a way that no network is in.
    fn board(&self) -> longhaul_leases::Board {
        let name = self.database_name();
        longhaul_leases::Board::open(&self.server().socket_url(name)).unwrap()
    }

    fn database_name(&self) -> &str {
        let name = self.database.rsplit('/').next().unwrap();
        name.split('?').next().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command on a host, for all hosts of both sides, those named `first` first.
    fn start(&self, on: &str, first: u8, arguments: &[&str]) -> Child {
        self.start_by(&self.ssh, on, first, arguments)
    }

    fn start_by(&self, ssh: &str, on: &str, first: u8, arguments: &[&str]) -> Child {
        let other = 3 - first;
        let places = [
            format!("a{first},a{other}:{}", self.path("from/tree").display()),
            format!("b{first},b{other}:{}", self.path("to").display()),
        ];
        let program = longhaul_testbed::longhaul();
        let extent = EXTENT.to_string();
        let mut command = self.hosts.on(on, program);
        command.args(["copy", "--json", "--streams", "2", "--extent", &extent]);
        command.args(["--lease-time", "2s", "--silence", "3s"]);
        command.args(["--ssh", ssh, "--remote-program", program]);
        command
            .args(["--leases", &self.database])
            .args(arguments)
            .args(places);
        kept(&mut command).spawn().unwrap()
    }

    /// Extents that are done.
    fn done(&self) -> u64 {
        let board = self.board();
        let jobs = board.jobs().unwrap();
        let done =
            |listed: &longhaul_leases::Listed| board.standing(listed.job).unwrap().done.extents;
        jobs.first().map_or(0, done)
    }

    /// Waits until so many extents are done, or the command has ended.
    fn wait_for(&self, extents: u64, command: &mut Child) {
        while command.try_wait().unwrap().is_none() && self.done() < extents {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether all is as if nothing had happened.
    fn check(&self, what: &str) {
        self.hosts.wait_until_empty(&ALL);
        let to = self.path("to");
        tree::assert_same(&self.path("from/tree"), &to.join("tree"), what);
        assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new(), "{what}");
        let unknown = tree::not_in_manifest(&to, &self.hashes);
        assert_eq!(
            unknown,
            Vec::<PathBuf>::new(),
            "{what}: not in the manifest"
        );
        let name = self.database_name();
        for table in ["job", "extent"] {
            let rows = self
                .server()
                .run(name, &format!("SELECT count(*) FROM longhaul.{table}"));
            assert_eq!(rows.trim(), "0", "{what}: of {table}");
        }
    }

    fn bytes(&self) -> u64 {
        crate::copy_testbed::durable::lacking(&self.path("from"), Path::new("/nowhere"))
    }
}

/// What a command says at its end.
fn record(output: &Output, what: &str) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_pairs_of_hosts_share_a_tree_and_its_largest_file() {
    let site = Site::new();
    let before = ["a1", "a2"].map(|host| site.hosts.sent(host));
    let output = finish(site.start("d1", 1, &[]));
    let done = record(&output, "first");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(done["sent_bytes"], site.bytes(), "all, and nothing twice");
    assert_eq!(done["brought"]["movers"], 2);
    for (host, before) in ["a1", "a2"].into_iter().zip(before) {
        let sent = site.hosts.sent(host) - before;
        assert!(sent > 1_000_000, "{host} sent {sent} bytes only");
    }
    site.check("first");
    let again = record(&finish(site.start("d1", 2, &["--movers", "1"])), "again");
    assert_eq!(
        (&again["sent_bytes"], &again["made"]),
        (&0.into(), &0.into())
    );
    site.check("again");
}

/// What a mover had goes to the other, and nothing that was done goes again.
#[test]
fn hosts_that_die_or_are_cut_off_cost_no_more_than_they_had() {
    let site = Site::new();
    for (host, dies) in [("b2", true), ("a2", true), ("b1", false)] {
        let what = format!("{host} dies: {dies}");
        drop(fs::remove_dir_all(site.path("to")));
        let mut command = site.start("d1", 1, &[]);
        site.wait_for(3, &mut command);
        site.hosts.plug(host, false);
        if dies {
            site.hosts.kill_all(host);
        }
        let output = finish(command);
        site.hosts.plug(host, true);
        let done = record(&output, &what);
        let sent = done["sent_bytes"].as_u64().unwrap();
        // One at work, one taken before that was done, and what the end of a conversation cuts off at the other pair.
        assert!(sent <= site.bytes() + 4 * EXTENT, "{what}: {sent}");
        site.check(&what);
        make_removable(&site.path("to/tree"));
    }
}

#[test]
fn a_second_command_shares_the_work_and_goes_on_alone() {
    let site = Site::new();
    let mut first = site.start("d1", 1, &["--movers", "1"]);
    site.wait_for(2, &mut first);
    let mut second = site.start("d2", 2, &["--movers", "1"]);
    site.wait_for(4, &mut second);
    kill(first.id());
    assert!(!finish(first).status.success());
    let done = record(&finish(second), "second");
    let sent = done["sent_bytes"].as_u64().unwrap();
    assert!(sent < site.bytes() - EXTENT, "it did all by itself: {sent}");
    site.check("second");
}

#[test]
fn a_database_that_dies_and_comes_back_only_delays() {
    let mut site = Site::with_its_own_database();
    let mut command = site.start("d1", 1, &[]);
    site.wait_for(3, &mut command);
    site.restart_database();
    record(&finish(command), "killed");
    site.check("killed");
}

fn wait(command: &mut Child) {
    let begin = Instant::now();
    while command.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < PATIENCE, "it hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whoever was stopped, lost what it had, and goes on when all is over, writes nothing any more.
#[test]
fn a_source_that_was_stopped_for_long_writes_nothing_afterwards() {
    let site = Site::new();
    let mut command = site.start("d1", 1, &[]);
    site.wait_for(3, &mut command);
    let stopped = site.hosts.processes("a2");
    let signal = |signal: &str| {
        let all = stopped.iter().map(u32::to_string);
        let mut kill = site.hosts.on("a2", "kill");
        // Some may have ended.
        drop(kept(kill.arg(signal).args(all)).output().unwrap());
    };
    signal("-STOP");
    // Who is stopped holds what the command says on standard error.
    wait(&mut command);
    let large = site.path("to/tree/large");
    let mut file = fs::OpenOptions::new().append(true).open(&large).unwrap();
    file.write_all(b"and more").unwrap();
    let hash = |path: &Path| tree::hashes(path.parent().unwrap()).remove(Path::new("large"));
    let after = hash(&large);
    signal("-CONT");
    record(&finish(command), "stopped");
    site.hosts.wait_until_empty(&ALL);
    assert_eq!(hash(&large), after);
}

/// A name that no other host finds: the first mover's words must not decide for all.
#[test]
fn what_can_t_be_copied_is_said_by_name_and_the_rest_arrives() {
    let site = Site::new();
    let to = site.path("to/tree/sizes");
    fs::create_dir_all(&to).unwrap();
    fs::create_dir(to.join("1024")).unwrap();
    fs::create_dir_all(site.path("to/tree/large/x")).unwrap();
    let output = finish(site.start("d1", 1, &[]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for name in ["tree/sizes/1024", "tree/large"] {
        let named = said.lines().filter(|line| line.contains(name));
        assert!(named.count() >= 1, "{name}: {said}");
    }
    fs::remove_dir(to.join("1024")).unwrap();
    fs::remove_dir_all(site.path("to/tree/large")).unwrap();
    record(&finish(site.start("d1", 1, &[])), "again");
    site.check("again");
}

/// One of the target's hosts has a file system of its own there.
#[test]
fn hosts_that_do_not_share_the_target_are_refused_before_anything_is_touched() {
    let site = Site::new();
    let (ssh, to) = (site.path("blind"), site.path("to"));
    fs::create_dir(&to).unwrap();
    let alone = "mount -t tmpfs none $0 && exec \"$@\"";
    let text = format!(
        "#!/bin/sh\n[ $2 = b2 ] && exec unshare -m sh -c '{alone}' {} {} \"$@\"\nexec {} \"$@\"\n",
        to.display(),
        site.ssh,
        site.ssh
    );
    fs::write(&ssh, text).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let output = finish(site.start_by(ssh.to_str().unwrap(), "d1", 1, &[]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let want = "longhaul: b2 does not see what is in the target's directory on b1";
    assert!(said.starts_with(want), "{said}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    site.hosts.wait_until_empty(&ALL);
}

/// What nobody will end stays in the database until somebody takes it away.
#[test]
fn jobs_are_listed_and_forgotten() {
    let site = Site::new();
    let address = site.path("address");
    fs::write(&address, format!("{}\n", site.database)).unwrap();
    let jobs = |arguments: &[&str]| {
        let mut command = site.hosts.on("d2", longhaul_testbed::longhaul());
        let leases = format!("@{}", address.display());
        command.args(["copy", "jobs", "--leases", &leases]);
        kept(command.args(arguments)).output().unwrap()
    };
    let listed = || -> Vec<serde_json::Value> {
        let said = jobs(&["--json"]).stdout;
        let lines = said
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    };
    assert_eq!(listed(), [0; 0]);
    let mut command = site.start("d1", 1, &["--movers", "1"]);
    site.wait_for(1, &mut command);
    kill(command.id());
    drop(finish(command));
    let [job] = &listed()[..] else {
        panic!("{:?}", listed())
    };
    let from = format!("a1,a2:{}", site.path("from/tree").display());
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
    site.hosts.wait_until_empty(&ALL);
}

#[test]
fn movers_of_a_forgotten_job_end() {
    let site = Site::new();
    let mut command = site.start("d1", 1, &["--movers", "2", "--limit", "30mbit"]);
    site.wait_for(1, &mut command);
    let board = site.board();
    let [job] = &board.jobs().unwrap()[..] else {
        panic!("one job")
    };
    assert!(board.forget(job.job).unwrap());
    let output = finish(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("removed this copy from the database"),
        "{said}"
    );
    assert!(!said.contains("retrying in"), "{said}");
    assert!(said.lines().count() <= 3, "{said}");
    site.hosts.wait_until_empty(&ALL);
}

fn make_removable(tree: &Path) {
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// One copy and up to three disasters.
fn round(site: &mut Site, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |bound: u64| random.next_u64() % bound;
    let mut what = format!("seed {seed}:");
    drop(fs::remove_dir_all(site.path("to")));
    let mut command = site.start("d1", 1, &[]);
    for _ in 0..=below(3) {
        let (victim, moment) = (below(6), below(12));
        what += &format!(" {victim} at {moment}");
        site.wait_for(moment, &mut command);
        match victim {
            4 => site.restart_database(),
            5 => {
                kill(command.id());
                drop(finish(command));
                command = site.start("d2", 2, &[]);
            }
            host => site.hosts.kill_all(ALL[host as usize]),
        }
    }
    let output = finish(command);
    record(&output, &what);
    site.check(&what);
    make_removable(&site.path("to/tree"));
}

#[test]
fn whoever_dies_and_whenever_the_tree_arrives() {
    let first = number("COPY_SEED", 1);
    let mut site = Site::with_its_own_database();
    for seed in first..first + number("COPY_MOVER_KILLS", 2) {
        round(&mut site, seed);
    }
}
