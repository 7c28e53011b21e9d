// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the far end of a copy is reached, whatever stands between: network address translation, a sudo that says
//! nothing of ssh's connection, one port and an old far end that still has it, a path that lets few connections through.

use crate::copy_testbed::{
    finish,
    hosts::{Hosts, kept},
    kill, tree,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Output},
};

struct Ground {
    hosts: Hosts,
    folder: tempfile::TempDir,
    /// What the stand-in for ssh connects to.
    _sshd: TcpListener,
}

impl Ground {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            longhaul_testbed::skip::because("namespaces take root");
            return None;
        }
        let hosts = Hosts::new(&["near", "far"], "400mbit");
        let sshd = hosts.of("far").run(|| TcpListener::bind("0.0.0.0:22"));
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("from"), 4);
        Some(Self {
            hosts,
            folder,
            _sshd: sshd.unwrap(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What stands for ssh: `connects` are lines of bash, and what the far end hears of them is what they export.
    fn ssh(&self, connects: &str) -> String {
        let far = self.hosts.of("far").name().unwrap();
        let text = format!(
            "#!/bin/bash\nunset SSH_CONNECTION\nshift 2\n{connects}\nnsenter --net=/run/netns/{far} \"$@\" 3>&-\n"
        );
        let script = self.path("ssh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }

    /// A connection, and what sshd says of it.
    fn plain(&self) -> String {
        let [near, far] = ["near", "far"].map(|name| self.hosts.address(name));
        format!("export SSH_CONNECTION='{near} 1 {far} 22'")
    }

    fn on_far(&self, program: &str, arguments: &str) {
        let mut command = self.hosts.on("far", program);
        let done = command.args(arguments.split_whitespace()).output().unwrap();
        assert!(done.status.success(), "{program} {arguments}: {done:?}");
    }

    fn start(&self, ssh: &str, options: &[&str], from: &str, to: &str) -> Child {
        let mut command = self.hosts.on("near", longhaul_testbed::longhaul());
        let program = longhaul_testbed::longhaul();
        command.args(["copy", "--json", "--streams", "3", "--silence", "1s"]);
        command.args(["--ssh", ssh, "--remote-program", program]);
        kept(command.args(options).args([from, to]))
            .spawn()
            .unwrap()
    }

    fn copy(&self, ssh: &str, options: &[&str], from: &str, to: &str) -> Output {
        finish(self.start(ssh, options, from, to))
    }

    /// There and back again.
    fn copies(&self, ssh: &str) {
        let at = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let [from, there, back] = ["from", "there", "back"].map(at);
        for (from, to) in [
            (from, format!("far:{there}")),
            (format!("far:{there}"), back),
        ] {
            let output = self.copy(ssh, &[], &from, &to);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
        tree::assert_same(&self.path("from"), &self.path("back"), "back again");
    }

    /// A copy to the far end's `to`.
    fn push(&self, ssh: &str, options: &[&str], to: &str) -> Child {
        let from = self.path("from").join("");
        let to = format!("far:{}", self.path(to).display());
        self.start(ssh, options, from.to_str().unwrap(), &to)
    }
}

type Said = Lines<BufReader<ChildStderr>>;

fn said(child: &mut Child) -> Said {
    BufReader::new(child.stderr.take().unwrap()).lines()
}

fn wait_until_said(said: &mut Said, words: &str) {
    let mut before = Vec::new();
    for line in said {
        let line = line.unwrap();
        if line.contains(words) {
            return;
        }
        before.push(line);
    }
    panic!("{words:?} was never said, but {before:#?}");
}

/// Waits until the target has something in `directory`: then both ends are connected.
fn wait_until_filled(directory: &Path) {
    while !fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_host_that_knows_itself_by_another_address_is_reached_where_ssh_reached_it() {
    let Some(ground) = Ground::new() else { return };
    let (near, far) = (ground.hosts.address("near"), ground.hosts.address("far"));
    ground.on_far("ip", "address add 10.79.0.2/32 dev lo");
    ground.on_far("nft", "add table ip cloud");
    ground.on_far(
        "nft",
        "add chain ip cloud in { type nat hook prerouting priority -100 ; }",
    );
    let to = format!("add rule ip cloud in ip daddr {far} tcp dport != 22 dnat to 10.79.0.2");
    ground.on_far("nft", &to);
    let ssh = ground.ssh(&format!(
        "exec 3<>/dev/tcp/{far}/22\nexport SSH_CONNECTION='{near} 1 10.79.0.2 22'"
    ));
    ground.copies(&ssh);
}

#[test]
fn without_a_word_of_sshd_the_far_end_is_reached_where_ssh_reached_it() {
    let Some(ground) = Ground::new() else { return };
    let far = ground.hosts.address("far");
    ground.copies(&ground.ssh(&format!("exec 3<>/dev/tcp/{far}/22")));
}

#[test]
fn a_far_end_that_nobody_knows_the_address_of_is_a_clear_refusal() {
    let Some(ground) = Ground::new() else { return };
    let from = ground.path("from");
    let to = format!("far:{}", ground.path("to").display());
    let output = ground.copy(&ground.ssh(""), &[], from.to_str().unwrap(), &to);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("keep SSH_CONNECTION"), "{said}");
    assert!(!ground.path("to").exists());
}

#[test]
fn a_port_that_something_else_has_is_said_at_once() {
    let Some(ground) = Ground::new() else { return };
    let other = ground
        .hosts
        .of("far")
        .run(|| TcpListener::bind("0.0.0.0:7000"));
    let child = ground.push(&ground.ssh(&ground.plain()), &["--ports", "7000"], "to");
    let output = finish(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no port from 7000 to 7000"), "{said}");
    drop(other);
}

#[test]
fn a_port_that_an_old_far_end_still_has_is_waited_for() {
    let Some(ground) = Ground::new() else { return };
    let ssh = ground.ssh(&ground.plain());
    let options = ["--ports", "7000", "--limit", "40mbit"];
    let mut child = ground.push(&ssh, &options, "to");
    wait_until_filled(&ground.path("to"));
    // It hears nothing of the link's end.
    let old = ground.hosts.processes("far");
    for pid in &old {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    }
    ground.hosts.plug("far", false);
    let mut said = said(&mut child);
    wait_until_said(&mut said, "retrying in");
    ground.hosts.plug("far", true);
    wait_until_said(&mut said, "no port from 7000 to 7000");
    old.into_iter().for_each(kill);
    let rest: Vec<_> = said.map(Result::unwrap).collect();
    assert!(finish(child).status.success(), "{rest:?}");
    tree::assert_same(&ground.path("from"), &ground.path("to"), "one port");
}

#[test]
fn a_path_that_lets_no_streams_through_is_not_waited_for_in_silence() {
    let Some(ground) = Ground::new() else { return };
    ground.on_far("nft", "add table ip few");
    ground.on_far(
        "nft",
        "add chain ip few in { type filter hook input priority 0 ; }",
    );
    // Five connections open, and those that carry data don't stay.
    ground.on_far("sysctl", "-w net.netfilter.nf_conntrack_acct=1");
    let rule = "add rule ip few in tcp dport 7000";
    let new = "tcp flags & (syn|ack) == syn";
    ground.on_far(
        "nft",
        &format!("{rule} {new} limit rate 1/day burst 5 packets accept"),
    );
    ground.on_far("nft", &format!("{rule} {new} reject with tcp reset"));
    ground.on_far(
        "nft",
        &format!("{rule} ct original bytes > 300000 reject with tcp reset"),
    );
    let ssh = ground.ssh(&ground.plain());
    let mut child = ground.push(&ssh, &["--ports", "7000"], "to");
    wait_until_said(&mut said(&mut child), "no stream can be opened");
    kill(child.id());
    child.wait().unwrap();
}

#[test]
fn a_firewall_that_lets_no_udp_through_is_named() {
    let Some(ground) = Ground::new() else { return };
    ground.on_far("nft", "add table ip few");
    ground.on_far(
        "nft",
        "add chain ip few in { type filter hook input priority 0 ; }",
    );
    ground.on_far("nft", "add rule ip few in meta l4proto udp drop");
    let ssh = ground.ssh(&ground.plain());
    let mut child = ground.push(&ssh, &["--transport", "udt"], "to");
    wait_until_said(&mut said(&mut child), "does a firewall let UDP pass?");
    kill(child.id());
    child.wait().unwrap();
}
