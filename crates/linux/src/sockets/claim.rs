// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims of processes on a resource of their network namespace. They are abstract UNIX sockets, which the kernel removes
//! with the process.

use super::socket::abstract_names;
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
};

/// A claim of this process. Several processes may have one on the same resource. It costs a descriptor.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held for its lifetime only")] UnixDatagram);

impl Claim {
    /// Claims the resource of this name, until the claim is dropped. The socket's name ends in a random number: in
    /// containers that share a network namespace, processes may have the same process ID.
    pub fn new(resource: &str) -> io::Result<Self> {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{}{}-{random:016x}", prefix(resource), process::id());
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self)
    }
}

/// Returns the IDs of the processes that claim the resource of this name, each in its own PID namespace.
pub fn claimants(resource: &str) -> io::Result<Vec<u32>> {
    let names = abstract_names(&prefix(resource))?;
    let pid = |name: &String| name.split('-').next()?.parse().ok();
    Ok(names.iter().filter_map(pid).collect())
}

fn prefix(resource: &str) -> String {
    format!("longhaul-{resource}-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        thread,
        time::{Duration, Instant},
    };

    #[test]
    fn ends_when_it_is_dropped() {
        // A name of our own: other tests run beside this one.
        let resource = format!("test-{}", process::id());
        let claim = Claim::new(&resource).unwrap();
        assert_eq!(claimants(&resource).unwrap(), [process::id()]);
        assert!(claimants(&format!("{resource}0")).unwrap().is_empty());
        drop(claim);
        // A child that a test beside this one has just forked holds a copy of the socket until its exec.
        let begin = Instant::now();
        while !claimants(&resource).unwrap().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{resource}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// An older process that drains keeps its rules.
    #[test]
    fn sees_claims_of_older_versions() {
        let resource = format!("test-older-{}", process::id());
        let name = format!("{}{}", prefix(&resource), process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let _claim = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(claimants(&resource).unwrap(), [process::id()]);
    }

    /// Processes of two containers may have the same process ID.
    #[test]
    fn allows_two_claims_of_one_process_id() {
        let resource = format!("test-twice-{}", process::id());
        let _claims = [
            Claim::new(&resource).unwrap(),
            Claim::new(&resource).unwrap(),
        ];
        assert_eq!(claimants(&resource).unwrap(), [process::id(); 2]);
    }
}
