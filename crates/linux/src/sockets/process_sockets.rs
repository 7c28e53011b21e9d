// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP sockets of another process (pidfd_getfd(2), Linux 5.6). Needs the rights to trace it
//! (`PTRACE_MODE_ATTACH_REALCREDS`, ptrace(2)); without them no socket is returned.

use rustix::{
    fs::readlink,
    net::{AddressFamily, SocketType, ipproto, sockopt},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use std::{fs, os::fd::OwnedFd};

/// Returns the TCP sockets of a process whose name (`socket:[INODE]`, proc_pid_fd(5)) is `wanted`, duplicated into this
/// process.
pub fn tcp(pid: u32, mut wanted: impl FnMut(&[u8]) -> bool) -> impl Iterator<Item = OwnedFd> {
    let process = Pid::from_raw(pid.cast_signed());
    let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = readlink(entry.path(), Vec::new()).ok()?.into_bytes();
        if !name.starts_with(b"socket:") || !wanted(&name) {
            return None;
        }
        let socket = pidfd_getfd(process.as_ref()?, number, PidfdGetfdFlags::empty()).ok()?;
        is_tcp(&socket).then_some(socket)
    })
}

fn is_tcp(socket: &OwnedFd) -> bool {
    let family = sockopt::socket_domain(socket);
    sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6))
        && sockopt::socket_protocol(socket).is_ok_and(|p| p == Some(ipproto::TCP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        os::fd::OwnedFd,
    };

    #[test]
    fn finds_tcp_sockets_of_another_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(OwnedFd::from(TcpStream::connect(address).unwrap()))
            .spawn();
        let mut child = child.unwrap();
        let peers: Vec<_> = tcp(child.id(), |_| true)
            .map(|socket| TcpStream::from(socket).peer_addr().unwrap())
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(peers, [address]);
        assert_eq!(tcp(child.id(), |_| true).count(), 0);
    }
}
