// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy over a link that is cut or swallows everything, for a while or for good: it goes on by itself, or with the
//! next command, and the end is the same tree.
//!
//! A moment is a count of bytes on the link, drawn by a seed; `COPY_LINKS` says how many seeds (default one of each kind).

use crate::copy_testbed::{PATIENCE, durable::lacking, finish, kill, tree};
use longhaul_linux::process::inside;
use longhaul_testnet::link_process::{Testbed, may_use_namespaces};
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
    time::{Duration, Instant},
};

const TRANSPORTS: [&str; 2] = ["tcp", "udt"];

/// How a link fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Everything is lost, both ways.
    Swallows,
    /// An end's interface is down.
    Down,
}

struct Ground {
    /// Of the streams.
    transport: &'static str,
    bed: Testbed,
    folder: tempfile::TempDir,
}

impl Ground {
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

    /// What stands for ssh: the far end is in the right namespace, and does not hear that the driver is gone.
    fn ssh(&self) -> String {
        let script = self.path("ssh");
        let never = self.path("never");
        if !never.exists() {
            let made = Command::new("mkfifo").arg(&never).status();
            assert!(made.unwrap().success());
        }
        let right = self.bed.right.name().unwrap();
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
        let mut command = Command::new(longhaul_testbed::longhaul());
        inside(&mut command, &self.bed.left);
        command.args(["copy", "--json", "--streams", "3", "--silence", "1s"]);
        command.args(["--transport", self.transport, "--ssh", &self.ssh()]);
        command.args(["--remote-program", longhaul_testbed::longhaul()]);
        let far = format!("far:{}", to.display());
        command.args([self.path("from/").as_os_str(), far.as_ref()]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Bytes that have left for the right.
    fn sent(&self) -> u64 {
        let text = self.bed.interfaces();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("wan0:"));
        line.unwrap()
            .split_whitespace()
            .nth(8)
            .unwrap()
            .parse()
            .unwrap()
    }

    fn wait_for(&self, bytes: u64, child: &mut Child) {
        let since = Instant::now();
        while self.sent() < bytes && child.try_wait().unwrap().is_none() {
            assert!(since.elapsed() < PATIENCE, "{bytes} bytes never went");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn fail(&self, failure: Failure, failed: bool) {
        match failure {
            Failure::Swallows => {
                let loss = if failed { "100%" } else { "0%" };
                assert!(self.bed.set("loss", loss).success());
            }
            Failure::Down => {
                let state = if failed { "down" } else { "up" };
                let mut ip = Command::new("ip");
                ip.args(["link", "set", "wan0", state]);
                assert!(inside(&mut ip, &self.bed.right).status().unwrap().success());
            }
        }
    }

    /// The far ends that are still there.
    fn far_ends(&self) -> Vec<u32> {
        let right = self.bed.right.name().unwrap();
        let output = Command::new("ip").args(["netns", "pids", right]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// They notice by the silence that nobody is there.
    fn wait_until_no_far_end(&self) {
        let since = Instant::now();
        while !self.far_ends().is_empty() {
            assert!(since.elapsed() < PATIENCE, "{:?} stay", self.far_ends());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_copied(&self, to: &Path, what: &str) {
        tree::assert_same(&self.path("from"), to, what);
        assert_eq!(tree::leftovers(to), Vec::<PathBuf>::new(), "{what}");
    }

    /// A copy whose link fails until it has noticed, and then is there again. Whether it failed before all was done.
    fn for_a_while(&self, failure: Failure, seed: u64) -> bool {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let from = self.path("from");
        let to = self.path(&format!("while-{failure:?}-{seed:x}"));
        let needed = lacking(&from, &to);
        let what = format!("{failure:?} for a while, seed {seed}");
        // What is in buffers at either end is less than the last quarter.
        let moment = self.sent() + random.next_u64() % (needed * 3 / 4);
        let mut child = self.start(&to);
        self.wait_for(moment, &mut child);
        self.fail(failure, true);
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut said = said.lines().map(Result::unwrap);
        let noticed = said.find(|line| line.contains("retrying in"));
        self.fail(failure, false);
        let rest: Vec<String> = said.collect();
        let output = finish(child);
        assert!(output.status.success(), "{what}: {rest:?}");
        self.let_go();
        self.assert_copied(&to, &what);
        noticed.is_some()
    }

    /// A copy whose link fails, and whose driver is killed then; the next one goes on. Whether it failed before all was done.
    fn for_good(&self, failure: Failure, seed: u64) -> bool {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let from = self.path("from");
        let to = self.path(&format!("good-{failure:?}-{seed:x}"));
        let needed = lacking(&from, &to);
        let what = format!("{failure:?} for good, seed {seed}");
        // What is in buffers at either end is less than the last quarter.
        let moment = self.sent() + random.next_u64() % (needed * 3 / 4);
        let mut child = self.start(&to);
        self.wait_for(moment, &mut child);
        self.fail(failure, true);
        kill(child.id());
        drop(finish(child));
        self.wait_until_no_far_end();
        self.fail(failure, false);
        self.let_go();
        let lacking = lacking(&from, &to);
        let output = finish(self.start(&to));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{what}: {said}");
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(done["sent_bytes"], lacking, "{what}");
        self.let_go();
        self.assert_copied(&to, &what);
        lacking > 0
    }

    /// Ends what the stand-in for ssh has left: shells that wait at its pipe.
    fn let_go(&self) {
        self.wait_until_no_far_end();
        let never = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path("never"));
        let mut never = never.unwrap();
        let mine = format!("{}", self.path("ssh").display());
        while shells(&mine) {
            std::io::Write::write_all(&mut never, b"\n").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a process runs that script.
fn shells(script: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).starts_with(&format!("/bin/sh\0{script}\0"))
    })
}

/// Where this machine rests for a moment, a copy may be done before its link fails: so it is made once more, with another seed.
fn in_time(seed: u64, fails: impl Fn(u64) -> bool) {
    let mut seeds = (0..10).map(|again| seed | again << 32);
    assert!(seeds.any(fails), "the link always failed too late");
}

fn seeds() -> u64 {
    let text = std::env::var("COPY_LINKS").ok();
    text.map_or(1, |text| text.parse().unwrap())
}

#[test]
fn a_link_that_fails_for_a_while_interrupts_and_no_more() {
    if !may_use_namespaces() {
        return;
    }
    for transport in TRANSPORTS {
        let ground = Ground::new("copywhile", transport);
        for seed in 0..seeds() {
            in_time(seed, |seed| ground.for_a_while(Failure::Swallows, seed));
            in_time(seed, |seed| ground.for_a_while(Failure::Down, seed));
        }
    }
}

#[test]
fn a_link_that_fails_for_good_leaves_ends_that_end_and_a_copy_to_go_on_with() {
    if !may_use_namespaces() {
        return;
    }
    for transport in TRANSPORTS {
        let ground = Ground::new("copygood", transport);
        for seed in 0..seeds() {
            in_time(seed, |seed| ground.for_good(Failure::Swallows, seed));
            in_time(seed, |seed| ground.for_good(Failure::Down, seed));
        }
    }
}
