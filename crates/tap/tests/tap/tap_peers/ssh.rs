// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenSSH traffic: a file to the server, then lines that are echoed one by one, like typing.

use crate::tap_peers::traffic::{Running, spawn};
use longhaul_testnet::link_process::Testbed;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

const PORT: &str = "2222";
const FILE_BYTES: usize = 1 << 20;
const LINES: usize = 20;

pub(crate) fn run(bed: &Testbed, directory: &Path) {
    let keys = ["host", "user"].map(|name| key(&directory.join(name)));
    let _sshd = sshd(bed, directory, &keys);
    let mut file = client(bed, &keys[1], "cat > /dev/null");
    let mut stdin = file.0.stdin.take().unwrap();
    stdin.write_all(&vec![7; FILE_BYTES]).unwrap();
    drop(stdin);
    succeed(file);
    let mut typed = client(bed, &keys[1], "cat");
    let mut echo = BufReader::new(typed.0.stdout.take().unwrap());
    (0..LINES).for_each(|line| assert_echoed(&mut typed, &mut echo, &format!("line {line}\n")));
    drop(typed.0.stdin.take());
    succeed(typed);
}

fn assert_echoed(typed: &mut Running, echo: &mut BufReader<ChildStdout>, line: &str) {
    let stdin = typed.0.stdin.as_mut().unwrap();
    stdin.write_all(line.as_bytes()).unwrap();
    stdin.flush().unwrap();
    let mut answer = String::new();
    echo.read_line(&mut answer).unwrap();
    assert_eq!(answer, line);
}

/// Creates a key pair without a passphrase.
fn key(file: &Path) -> PathBuf {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let output = command.arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    file.to_owned()
}

/// Starts sshd and returns when it listens.
fn sshd(bed: &Testbed, directory: &Path, [host, user]: &[PathBuf; 2]) -> Running {
    // The unprivileged part runs in this directory, which the distribution creates when the service starts.
    fs::create_dir_all("/run/sshd").unwrap();
    let address = bed.right_address();
    let config = format!(
        "Port {PORT}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}.pub\n\
         PermitRootLogin yes\nPasswordAuthentication no\nStrictModes no\nUsePAM no\nUseDNS no\nPidFile none\n",
        host.display(),
        user.display(),
    );
    let file = directory.join("sshd_config");
    fs::write(&file, config).unwrap();
    // sshd executes itself for each connection, so it needs its absolute path.
    let which = Command::new("which").arg("sshd").output().unwrap();
    let mut command = Command::new(String::from_utf8(which.stdout).unwrap().trim());
    command.args(["-D", "-e", "-f"]).arg(&file);
    let mut running = spawn(&bed.right, command.stderr(Stdio::piped()));
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let mut earlier_lines = Vec::new();
    let listens = stderr.by_ref().map(Result::unwrap).any(|line| {
        earlier_lines.push(line);
        earlier_lines[earlier_lines.len() - 1].contains("listening on")
    });
    assert!(listens, "sshd did not begin: {earlier_lines:?}");
    std::thread::spawn(move || stderr.for_each(drop));
    running
}

fn client(bed: &Testbed, key: &Path, command: &str) -> Running {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-T", "-p", PORT, "-l", "root", "-i"]);
    ssh.arg(key);
    for option in [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
    ] {
        ssh.args(["-o", option]);
    }
    ssh.arg(bed.right_address().to_string()).arg(command);
    spawn(&bed.left, ssh.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

fn succeed(mut running: Running) {
    let status = running.0.wait().unwrap();
    assert!(status.success(), "ssh: {status}");
}
