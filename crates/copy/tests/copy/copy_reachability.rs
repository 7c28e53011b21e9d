// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reachability of the remote endpoint: behind network address translation, without the variables of ssh's connection, on
//! a single port that an old endpoint still uses, and behind a firewall that allows few connections.

use crate::copy_testbed::{
    finish,
    hosts::{Hosts, capture_output},
    kill, tree, wait_until,
};
use longhaul_testnet::namespace::{may_use_namespaces, run};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Output},
};

/// A local and a remote host.
struct RemoteTestbed {
    hosts: Hosts,
    folder: tempfile::TempDir,
    /// Listener to which the ssh script connects.
    _sshd: TcpListener,
}

impl RemoteTestbed {
    fn new() -> Option<Self> {
        if !may_use_namespaces() {
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

    /// Creates a script in place of ssh. The bash lines `connects` connect to the remote host, and export the variables that
    /// the remote program gets.
    fn ssh(&self, connects: &str) -> String {
        let far = self.hosts.of("far").name();
        let text = format!(
            "#!/bin/bash\nunset SSH_CONNECTION\nshift 2\n{connects}\nnsenter --net=/run/netns/{far} \"$@\" 3>&-\n"
        );
        let script = self.path("ssh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }

    /// Returns the variable that sshd sets for a connection.
    fn plain(&self) -> String {
        let [near, far] = ["near", "far"].map(|name| self.hosts.address(name));
        format!("export SSH_CONNECTION='{near} 1 {far} 22'")
    }

    fn on_far(&self, program: &str, arguments: &str) {
        run(self.hosts.of("far"), &format!("{program} {arguments}"));
    }

    fn start(&self, ssh: &str, options: &[&str], from: &str, to: &str) -> Child {
        let mut command = self.hosts.on("near", longhaul_testprograms::longhaul());
        let program = longhaul_testprograms::longhaul();
        command.args(["copy", "--json", "--streams", "3", "--idle-timeout", "1s"]);
        command.args(["--ssh", ssh, "--remote-program", program]);
        capture_output(command.args(options).args([from, to]))
            .spawn()
            .unwrap()
    }

    fn copy(&self, ssh: &str, options: &[&str], from: &str, to: &str) -> Output {
        finish(self.start(ssh, options, from, to))
    }

    /// Copies to the remote host and back.
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

    /// Starts a copy to the directory `to` of the remote host.
    fn push(&self, ssh: &str, options: &[&str], to: &str) -> Child {
        let from = self.path("from").join("");
        let to = format!("far:{}", self.path(to).display());
        self.start(ssh, options, from.to_str().unwrap(), &to)
    }
}

type StderrLines = Lines<BufReader<ChildStderr>>;

fn stderr_lines(child: &mut Child) -> StderrLines {
    BufReader::new(child.stderr.take().unwrap()).lines()
}

fn wait_for_line(stderr_lines: &mut StderrLines, text: &str) {
    let mut before = Vec::new();
    for line in stderr_lines {
        let line = line.unwrap();
        if line.contains(text) {
            return;
        }
        before.push(line);
    }
    panic!("{text:?} was never printed, but {before:#?}");
}

/// Waits until the target has an entry in `directory`. Then both endpoints are connected.
fn wait_until_filled(directory: &Path) {
    wait_until(|| fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()));
}

#[test]
fn reaches_a_host_behind_nat_at_the_address_of_ssh() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    let (near, far) = (testbed.hosts.address("near"), testbed.hosts.address("far"));
    testbed.on_far("ip", "address add 10.79.0.2/32 dev lo");
    testbed.on_far("nft", "add table ip cloud");
    testbed.on_far(
        "nft",
        "add chain ip cloud in { type nat hook prerouting priority -100 ; }",
    );
    let to = format!("add rule ip cloud in ip daddr {far} tcp dport != 22 dnat to 10.79.0.2");
    testbed.on_far("nft", &to);
    let ssh = testbed.ssh(&format!(
        "exec 3<>/dev/tcp/{far}/22\nexport SSH_CONNECTION='{near} 1 10.79.0.2 22'"
    ));
    testbed.copies(&ssh);
}

#[test]
fn reaches_a_host_without_ssh_variables_at_the_address_of_ssh() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    let far = testbed.hosts.address("far");
    testbed.copies(&testbed.ssh(&format!("exec 3<>/dev/tcp/{far}/22")));
}

#[test]
fn refuses_a_remote_host_without_a_known_address() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    let from = testbed.path("from");
    let to = format!("far:{}", testbed.path("to").display());
    let output = testbed.copy(&testbed.ssh(""), &[], from.to_str().unwrap(), &to);
    let stderr_lines = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr_lines}");
    assert!(
        stderr_lines.contains("keep SSH_CONNECTION"),
        "{stderr_lines}"
    );
    assert!(!testbed.path("to").exists());
}

#[test]
fn reports_a_port_in_use_at_once() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    let other = testbed
        .hosts
        .of("far")
        .run(|| TcpListener::bind("0.0.0.0:7000"));
    let child = testbed.push(&testbed.ssh(&testbed.plain()), &["--ports", "7000"], "to");
    let output = finish(child);
    let stderr_lines = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr_lines}");
    assert!(
        stderr_lines.contains("no port from 7000 to 7000"),
        "{stderr_lines}"
    );
    drop(other);
}

#[test]
fn waits_for_a_port_that_an_old_endpoint_uses() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    let ssh = testbed.ssh(&testbed.plain());
    let options = ["--ports", "7000", "--limit", "40mbit"];
    let mut child = testbed.push(&ssh, &options, "to");
    wait_until_filled(&testbed.path("to"));
    // The stopped endpoint does not notice the end of the link.
    let old = testbed.hosts.of("far").processes();
    for pid in &old {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    }
    testbed.hosts.set_connected("far", false);
    let mut stderr_lines = stderr_lines(&mut child);
    wait_for_line(&mut stderr_lines, "retrying in");
    testbed.hosts.set_connected("far", true);
    wait_for_line(&mut stderr_lines, "no port from 7000 to 7000");
    old.into_iter().for_each(kill);
    let rest: Vec<_> = stderr_lines.map(Result::unwrap).collect();
    assert!(finish(child).status.success(), "{rest:?}");
    tree::assert_same(&testbed.path("from"), &testbed.path("to"), "one port");
}

/// Creates the chain `in` of the table `few`, which filters what arrives at the far host.
fn add_input_chain(testbed: &RemoteTestbed) {
    testbed.on_far("nft", "add table ip few");
    testbed.on_far(
        "nft",
        "add chain ip few in { type filter hook input priority 0 ; }",
    );
}

#[test]
fn reports_a_path_that_blocks_data_streams() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    add_input_chain(&testbed);
    // Five connections can be opened, and data connections are reset.
    testbed.on_far("sysctl", "-w net.netfilter.nf_conntrack_acct=1");
    let rule = "add rule ip few in tcp dport 7000";
    let new = "tcp flags & (syn|ack) == syn";
    testbed.on_far(
        "nft",
        &format!("{rule} {new} limit rate 1/day burst 5 packets accept"),
    );
    testbed.on_far("nft", &format!("{rule} {new} reject with tcp reset"));
    testbed.on_far(
        "nft",
        &format!("{rule} ct original bytes > 300000 reject with tcp reset"),
    );
    let ssh = testbed.ssh(&testbed.plain());
    let mut child = testbed.push(&ssh, &["--ports", "7000"], "to");
    wait_for_line(&mut stderr_lines(&mut child), "no stream can be opened");
    kill(child.id());
    child.wait().unwrap();
}

#[test]
fn suggests_a_firewall_that_blocks_udp() {
    let Some(testbed) = RemoteTestbed::new() else {
        return;
    };
    add_input_chain(&testbed);
    testbed.on_far("nft", "add rule ip few in meta l4proto udp drop");
    let ssh = testbed.ssh(&testbed.plain());
    let mut child = testbed.push(&ssh, &["--transport", "udt"], "to");
    wait_for_line(
        &mut stderr_lines(&mut child),
        "does a firewall let UDP pass?",
    );
    kill(child.id());
    child.wait().unwrap();
}
