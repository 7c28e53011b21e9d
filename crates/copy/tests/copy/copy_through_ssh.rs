// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies by OpenSSH to hosts that nothing but ssh reaches: behind a jump host, or a firewall.

use crate::copy_testbed::{
    finish,
    hosts::{Hosts, capture_output},
    tree, wait_until,
};
use longhaul_testnet::{
    namespace::{may_use_namespaces, run},
    ssh_server,
};
use longhaul_testprograms::process::Running;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

struct SshTestbed {
    hosts: Hosts,
    folder: TempDir,
    _sshd: Vec<Running>,
}

impl SshTestbed {
    /// Hosts with sshd; that called `near` has none.
    fn new(names: &[&str]) -> Option<Self> {
        if !may_use_namespaces() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("from"), 4);
        ssh_server::create_keys(folder.path());
        let hosts = Hosts::new(names, "400mbit");
        let start = |name: &&str| ssh_server::start(hosts.of(name), folder.path());
        let sshd = names[1..].iter().map(start).collect();
        Some(Self {
            hosts,
            folder,
            _sshd: sshd,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
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
            run(self.hosts.of(host), &format!("nft {rule}"));
        }
    }

    fn copy(&self, ssh: &str, from: &str, to: &str) -> Output {
        let program = longhaul_testprograms::longhaul();
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
    wait_until(|| ssh_processes(config) == 0);
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
