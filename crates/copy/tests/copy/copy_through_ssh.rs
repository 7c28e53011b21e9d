// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies by OpenSSH to hosts that nothing but ssh reaches: behind a jump host, or a firewall.

use crate::copy_testbed::{
    finish,
    hosts::{Hosts, capture_output},
    tree,
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;

struct SshTestbed {
    hosts: Hosts,
    folder: TempDir,
    sshd: Vec<Child>,
}

impl SshTestbed {
    /// Hosts with sshd; that called `near` has none.
    fn new(names: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            longhaul_testbed::skip::record("namespaces take root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("from"), 4);
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            let made = make.arg(folder.path().join(key)).status().unwrap();
            assert!(made.success());
        }
        let mut testbed = Self {
            hosts: Hosts::new(names, "400mbit"),
            folder,
            sshd: Vec::new(),
        };
        testbed.sshd = names[1..]
            .iter()
            .map(|name| testbed.start_sshd(name))
            .collect();
        Some(testbed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts sshd on a host, and returns when it listens.
    fn start_sshd(&self, name: &str) -> Child {
        // The unprivileged part runs in this directory, which the distribution creates when the service starts.
        fs::create_dir_all("/run/sshd").unwrap();
        let [host, user] = ["host", "user"].map(|key| self.path(key).display().to_string());
        let config = format!(
            "Port 22\nHostKey {host}\nAuthorizedKeysFile {user}.pub\nPermitRootLogin yes\nPasswordAuthentication no\n\
             StrictModes no\nUsePAM no\nUseDNS no\nPidFile none\n"
        );
        fs::write(self.path("sshd_config"), config).unwrap();
        // sshd executes itself for each connection, so it needs its absolute path.
        let which = Command::new("which").arg("sshd").output().unwrap();
        let program = String::from_utf8(which.stdout).unwrap();
        let mut command = self.hosts.on(name, program.trim());
        command
            .args(["-D", "-e", "-f"])
            .arg(self.path("sshd_config"));
        let mut sshd = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(sshd.stderr.take().unwrap()).lines();
        let listens = lines
            .by_ref()
            .map(Result::unwrap)
            .any(|line| line.contains("listening on"));
        assert!(listens);
        std::thread::spawn(move || lines.for_each(drop));
        sshd
    }

    /// Writes the client's configuration: the addresses of the hosts, and `far_options` for the host `far`.
    fn configure(&self, names: &[&str], far_options: &str) -> String {
        let mut text = String::new();
        for name in names {
            let address = self.hosts.address(name);
            text += &format!("Host {name}\nHostName {address}\n");
            if *name == "far" {
                text += far_options;
            }
        }
        text += &format!(
            "Host *\nUser root\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n\
             UserKnownHostsFile /dev/null\nLogLevel ERROR\n",
            self.path("user").display()
        );
        fs::write(self.path("config"), text).unwrap();
        format!("ssh -F {}", self.path("config").display())
    }

    fn nft(&self, host: &str, rules: &str) {
        for rule in rules.lines() {
            let mut nft = self.hosts.on(host, "nft");
            let done = nft.arg(rule).output().unwrap();
            assert!(done.status.success(), "{rule}: {done:?}");
        }
    }

    fn copy(&self, ssh: &str, from: &str, to: &str) -> Output {
        let program = longhaul_testbed::longhaul();
        let mut command = self.hosts.on("near", program);
        command.args(["copy", "--json", "--ssh", ssh, "--remote-program", program]);
        finish(capture_output(command.args([from, to])).spawn().unwrap())
    }

    /// Copies to the host `far` and back. Returns what was printed.
    fn copy_both_ways(&self, ssh: &str) -> String {
        let at = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let [from, there, back] = ["from/", "there", "back"].map(at);
        let mut printed = String::new();
        for (from, to) in [
            (from, format!("far:{there}")),
            (format!("far:{there}/"), back),
        ] {
            let output = self.copy(ssh, &from, &to);
            printed += &String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{printed}");
        }
        tree::assert_same(&self.path("from"), &self.path("back"), "back again");
        printed
    }
}

impl Drop for SshTestbed {
    fn drop(&mut self) {
        for sshd in &mut self.sshd {
            drop(sshd.kill());
            drop(sshd.wait());
        }
    }
}

fn ssh_processes(config: &Path) -> usize {
    let pattern = format!("ssh -F {}", config.display());
    let output = Command::new("pgrep")
        .args(["-f", "--", &pattern])
        .output()
        .unwrap();
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

/// An ssh that is killed leaves the ssh of its jump host, which ends when it reads the end of its input.
fn wait_for_no_ssh_process(config: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while ssh_processes(config) > 0 {
        assert!(Instant::now() < deadline, "ssh processes are left");
        sleep(Duration::from_millis(10));
    }
}

const HOSTS: [&str; 3] = ["near", "jump", "far"];

#[test]
fn data_goes_through_ssh_to_a_host_behind_a_jump_host() {
    let Some(testbed) = SshTestbed::new(&HOSTS) else {
        return;
    };
    let near = testbed.hosts.address("near");
    testbed.nft(
        "far",
        &format!(
            "add table ip wall\nadd chain ip wall in {{ type filter hook input priority 0; }}\n\
             add rule ip wall in ip saddr {near} drop"
        ),
    );
    let ssh = testbed.configure(&HOSTS, "ProxyJump jump\n");
    let printed = testbed.copy_both_ways(&ssh);
    let notes = printed.matches("the data goes through ssh").count();
    // A slow machine also prints its progress.
    let messages = printed
        .lines()
        .filter(|line| line.starts_with("longhaul: "));
    assert_eq!((notes, messages.count()), (2, 2), "{printed}");
    wait_for_no_ssh_process(&testbed.path("config"));
}

#[test]
fn a_jump_host_is_no_way_for_data_where_there_is_another() {
    let Some(testbed) = SshTestbed::new(&HOSTS) else {
        return;
    };
    let ssh = testbed.configure(&HOSTS, "ProxyJump jump\n");
    assert_eq!(testbed.copy_both_ways(&ssh), "");
}

#[test]
fn data_goes_through_ssh_past_a_firewall_that_lets_only_ssh_pass() {
    let Some(testbed) = SshTestbed::new(&["near", "far"]) else {
        return;
    };
    testbed.nft(
        "far",
        "add table ip wall\nadd chain ip wall in { type filter hook input priority 0; }\n\
         add rule ip wall in iif lo accept\n\
         add rule ip wall in ct state new tcp dport != 22 reject with tcp reset",
    );
    let ssh = testbed.configure(&["near", "far"], "");
    let printed = testbed.copy_both_ways(&ssh);
    for text in ["cannot connect to", "the data goes through ssh"] {
        assert_eq!(printed.matches(text).count(), 2, "{printed}");
    }
}
