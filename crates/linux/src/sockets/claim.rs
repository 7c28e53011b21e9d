// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims of processes on something of their network namespace: abstract UNIX sockets, which the kernel removes with the
//! process.

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
pub struct Claim(#[expect(dead_code, reason = "only its life counts")] UnixDatagram);

impl Claim {
    /// A claim on the resource of this name, until it is dropped. The name of its socket ends in a random number: in
    /// containers that share a network namespace, processes may have the same process number.
    pub fn new(resource: &str) -> io::Result<Self> {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{}{}-{random:016x}", prefix(resource), process::id());
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self)
    }
}

/// The numbers of the processes that have a claim on the resource of this name, each in its own PID namespace.
pub fn claimants(resource: &str) -> io::Result<Vec<u32>> {
    let names = abstract_names(&prefix(resource))?;
    // Older versions wrote no random number, and one of them may drain beside this process.
    let pid = |name: &String| name.split('-').next()?.parse().ok();
    Ok(names.iter().filter_map(pid).collect())
}

fn prefix(resource: &str) -> String {
    format!("longhaul-{resource}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_its_owner_drops_it() {
        // A name of our own: other tests run beside this one.
        let resource = format!("test-{}", process::id());
        let claim = Claim::new(&resource).unwrap();
        assert_eq!(claimants(&resource).unwrap(), [process::id()]);
        assert!(claimants(&format!("{resource}0")).unwrap().is_empty());
        drop(claim);
        assert!(claimants(&resource).unwrap().is_empty());
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

    /// Processes of two containers may have the same number.
    #[test]
    fn allows_two_claims_of_one_process_number() {
        let resource = format!("test-twice-{}", process::id());
        let _claims = [
            Claim::new(&resource).unwrap(),
            Claim::new(&resource).unwrap(),
        ];
        assert_eq!(claimants(&resource).unwrap(), [process::id(); 2]);
    }
}
