// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenSSH server in a network namespace, and its keys.

use longhaul_linux::{netns::Netns, process::inside};
use longhaul_testprograms::{process::Running, wait::wait_for_line};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Creates the key pairs of the server and of its user, `host` and `user`, in a directory.
pub fn create_keys(directory: &Path) {
    for key in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        let made = command.arg(directory.join(key)).status().unwrap();
        assert!(made.success());
    }
}

/// Starts sshd on port 22, with the keys in a directory. Root may log in with the user's key. It listens on return.
pub fn start(netns: &Netns, directory: &Path) -> Running {
    // The unprivileged part runs in this directory, which the distribution creates when the service starts.
    fs::create_dir_all("/run/sshd").unwrap();
    let [host, user] = ["host", "user"].map(|key| directory.join(key).display().to_string());
    let config = format!(
        "Port 22\nHostKey {host}\nAuthorizedKeysFile {user}.pub\nPermitRootLogin yes\nPasswordAuthentication no\n\
         StrictModes no\nUsePAM no\nUseDNS no\nPidFile none\n"
    );
    let file = directory.join("sshd_config");
    fs::write(&file, config).unwrap();
    // sshd executes itself for each connection, so it needs its absolute path.
    let which = Command::new("which").arg("sshd").output().unwrap();
    let program = String::from_utf8(which.stdout).unwrap();
    let mut command = Command::new(program.trim());
    command.args(["-D", "-e", "-f"]).arg(file);
    command.stderr(Stdio::piped());
    let mut sshd = Running(inside(&mut command, netns).spawn().unwrap());
    wait_for_line(sshd.stderr.take().unwrap(), "listening on");
    sshd
}
