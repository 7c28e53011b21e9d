// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenSSH traffic: a file to the server, then lines that are echoed one by one, like typing.

use crate::tap_peers::traffic::spawn;
use longhaul_testnet::{link_process::Testbed, ssh_server};
use longhaul_testprograms::process::Running;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdout, Command, Stdio},
};

const FILE_BYTES: usize = 1 << 20;
const LINES: usize = 20;

pub(crate) fn run(bed: &Testbed, directory: &Path) {
    ssh_server::create_keys(directory);
    let _sshd = ssh_server::start(&bed.right, directory);
    let key = directory.join("user");
    let mut file = client(bed, &key, "cat > /dev/null");
    let mut stdin = file.stdin.take().unwrap();
    stdin.write_all(&vec![7; FILE_BYTES]).unwrap();
    drop(stdin);
    succeed(file);
    let mut typed = client(bed, &key, "cat");
    let mut echo = BufReader::new(typed.stdout.take().unwrap());
    (0..LINES).for_each(|line| assert_echoed(&mut typed, &mut echo, &format!("line {line}\n")));
    drop(typed.stdin.take());
    succeed(typed);
}

fn assert_echoed(typed: &mut Running, echo: &mut BufReader<ChildStdout>, line: &str) {
    let stdin = typed.stdin.as_mut().unwrap();
    stdin.write_all(line.as_bytes()).unwrap();
    stdin.flush().unwrap();
    let mut answer = String::new();
    echo.read_line(&mut answer).unwrap();
    assert_eq!(answer, line);
}

fn client(bed: &Testbed, key: &Path, command: &str) -> Running {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-T", "-l", "root", "-i"]);
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
    let status = running.wait().unwrap();
    assert!(status.success(), "ssh: {status}");
}
