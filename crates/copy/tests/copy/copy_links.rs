// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies over a link that goes down or loses all packets, temporarily or until the command is killed. The copy resumes by
//! itself, or with the next command, and the result is the same tree.
//!
//! The time of a failure is a number of bytes on the link, determined by a seed. `COPY_LINKS` is the number of seeds for
//! each kind (default 1).

use crate::copy_testbed::{durable::missing_bytes, finish, kill, tree, wait_until};
use longhaul_testnet::{
    link_process::{Testbed, may_use_namespaces},
    namespace::run_ip,
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const TRANSPORTS: [&str; 2] = ["tcp", "udt"];

/// Kind of a link failure.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// All packets are lost, in both directions.
    Blackhole,
    /// The interface of one side is down.
    Down,
}

/// Two hosts connected by an emulated link.
struct LinkTestbed {
    /// Transport of the streams.
    transport: &'static str,
    bed: Testbed,
    folder: tempfile::TempDir,
}

impl LinkTestbed {
    fn new(name: &str, transport: &'static str) -> Self {
        let addresses = ["10.88.0.1/24", "10.88.0.2/24"];
        let flags = ["--rate", "400mbit", "--delay", "2ms"];
        let bed = Testbed::start(name, addresses, &flags);
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("from"), 4);
        Self {
            transport,
            bed,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a script in place of ssh. It runs the remote program in the right namespace. It keeps the program's standard
    /// input open after the coordinator has exited.
    fn ssh(&self) -> String {
        let script = self.path("ssh");
        let never = self.path("never");
        if !never.exists() {
            let made = Command::new("mkfifo").arg(&never).status();
            assert!(made.unwrap().success());
        }
        let right = self.bed.right.name();
        let (near, far) = (self.bed.left_address(), self.bed.right_address());
        let text = format!(
            "#!/bin/sh\nexec 2> /dev/null\nshift 2\n\
             {{ cat; read -r _ < {never}; }} | SSH_CONNECTION='{near} 1 {far} 2' \\\n\
             ip netns exec {right} \"$@\" | {{ cat; cat > /dev/null; }}\n",
            never = never.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }

    fn start(&self, to: &Path) -> Child {
        let mut command = self.bed.left.command(longhaul_testprograms::longhaul());
        command.args(["copy", "--json", "--streams", "3", "--idle-timeout", "1s"]);
        command.args(["--transport", self.transport, "--ssh", &self.ssh()]);
        command.args(["--remote-program", longhaul_testprograms::longhaul()]);
        let far = format!("far:{}", to.display());
        command.args([self.path("from/").as_os_str(), far.as_ref()]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the bytes sent to the right side.
    fn sent(&self) -> u64 {
        self.bed.left.traffic("wan0").sent_bytes
    }

    fn wait_for(&self, bytes: u64, child: &mut Child) {
        wait_until(|| self.sent() >= bytes || child.try_wait().unwrap().is_some());
    }

    fn fail(&self, failure: Failure, failed: bool) {
        match failure {
            Failure::Blackhole => {
                let loss = if failed { "100%" } else { "0%" };
                assert!(self.bed.set("loss", loss).success());
            }
            Failure::Down => {
                let state = if failed { "down" } else { "up" };
                run_ip(&self.bed.right, &format!("link set wan0 {state}"));
            }
        }
    }

    fn assert_copied(&self, to: &Path, context: &str) {
        tree::assert_same(&self.path("from"), to, context);
        assert_eq!(
            tree::remaining_internal_files(to),
            Vec::<PathBuf>::new(),
            "{context}"
        );
    }

    /// Runs a copy whose link fails until the copy notices, and is restored then. Returns whether the link failed before the
    /// copy ended.
    fn copy_with_temporary_failure(&self, failure: Failure, seed: u64) -> bool {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let from = self.path("from");
        let to = self.path(&format!("while-{failure:?}-{seed:x}"));
        let needed = missing_bytes(&from, &to);
        let context = format!("{failure:?} for a while, seed {seed}");
        // The buffers of both sides hold less than the last quarter.
        let moment = self.sent() + random.next_u64() % (needed * 3 / 4);
        let mut child = self.start(&to);
        self.wait_for(moment, &mut child);
        self.fail(failure, true);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut stderr = stderr.lines().map(Result::unwrap);
        let retry = stderr.find(|line| line.contains("retrying in"));
        self.fail(failure, false);
        let rest: Vec<String> = stderr.collect();
        let output = finish(child);
        assert!(output.status.success(), "{context}: {rest:?}");
        self.end_shells();
        self.assert_copied(&to, &context);
        retry.is_some()
    }

    /// Runs a copy whose link fails and whose coordinator is killed then, and resumes with a second command. Returns whether
    /// the link failed before the copy ended.
    fn copy_with_permanent_failure(&self, failure: Failure, seed: u64) -> bool {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let from = self.path("from");
        let to = self.path(&format!("good-{failure:?}-{seed:x}"));
        let needed = missing_bytes(&from, &to);
        let context = format!("{failure:?} for good, seed {seed}");
        // The buffers of both sides hold less than the last quarter.
        let moment = self.sent() + random.next_u64() % (needed * 3 / 4);
        let mut child = self.start(&to);
        self.wait_for(moment, &mut child);
        self.fail(failure, true);
        kill(child.id());
        drop(finish(child));
        self.bed.right.wait_until_empty();
        self.fail(failure, false);
        self.end_shells();
        let missing_bytes = missing_bytes(&from, &to);
        let output = finish(self.start(&to));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{context}: {stderr}"
        );
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(done["sent_bytes"], missing_bytes, "{context}");
        self.end_shells();
        self.assert_copied(&to, &context);
        missing_bytes > 0
    }

    /// Ends the shells of the ssh script that still wait at its pipe.
    fn end_shells(&self) {
        self.bed.right.wait_until_empty();
        let never = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path("never"));
        let mut never = never.unwrap();
        let mine = format!("{}", self.path("ssh").display());
        while is_script_running(&mine) {
            std::io::Write::write_all(&mut never, b"\n").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a process runs the script.
fn is_script_running(script: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).starts_with(&format!("/bin/sh\0{script}\0"))
    })
}

/// Repeats a test with other seeds until the link fails in time. On a busy machine a copy may end before its link fails.
fn retry_until_in_time(seed: u64, fails: impl Fn(u64) -> bool) {
    let mut seeds = (0..10).map(|again| seed | again << 32);
    assert!(seeds.any(fails), "the link always failed too late");
}

fn seeds() -> u64 {
    let text = std::env::var("COPY_LINKS").ok();
    text.map_or(1, |text| text.parse().unwrap())
}

#[test]
fn resumes_after_a_temporary_link_failure() {
    if !may_use_namespaces() {
        return;
    }
    for transport in TRANSPORTS {
        let testbed = LinkTestbed::new("copywhile", transport);
        for seed in 0..seeds() {
            retry_until_in_time(seed, |seed| {
                testbed.copy_with_temporary_failure(Failure::Blackhole, seed)
            });
            retry_until_in_time(seed, |seed| {
                testbed.copy_with_temporary_failure(Failure::Down, seed)
            });
        }
    }
}

#[test]
fn endpoints_exit_after_a_permanent_link_failure_and_the_copy_is_resumable() {
    if !may_use_namespaces() {
        return;
    }
    for transport in TRANSPORTS {
        let testbed = LinkTestbed::new("copygood", transport);
        for seed in 0..seeds() {
            retry_until_in_time(seed, |seed| {
                testbed.copy_with_permanent_failure(Failure::Blackhole, seed)
            });
            retry_until_in_time(seed, |seed| {
                testbed.copy_with_permanent_failure(Failure::Down, seed)
            });
        }
    }
}
