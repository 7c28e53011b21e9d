// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections are meant: `dport 5201 and dst 10.9.0.0/16`.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Conditions that must all hold; none: every connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Matching(Vec<Condition>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    LocalPort(u16),
    RemotePort(u16),
    Port(u16),
    Local(Network),
    Remote(Network),
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Matching {
    /// Whether a connection is meant.
    pub(super) fn takes(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.0.iter().all(|condition| match *condition {
            Condition::LocalPort(port) => local.port() == port,
            Condition::RemotePort(port) => remote.port() == port,
            Condition::Port(port) => [local.port(), remote.port()].contains(&port),
            Condition::Local(network) => network.holds(local.ip()),
            Condition::Remote(network) => network.holds(remote.ip()),
        })
    }
}

impl FromStr for Matching {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let conditions = text.split(" and ").map(str::parse);
        conditions.collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{:?}: say 'sport N', 'dport N', 'port N', 'src ADDRESS[/LENGTH]' or 'dst \
                 ADDRESS[/LENGTH]', joined by 'and'",
                text.trim()
            )
        };
        let (what, value) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let port = || value.trim().parse().map_err(|_| wrong());
        let network = || value.trim().parse().map_err(|()| wrong());
        Ok(match what {
            "sport" => Self::LocalPort(port()?),
            "dport" => Self::RemotePort(port()?),
            "port" => Self::Port(port()?),
            "src" => Self::Local(network()?),
            "dst" => Self::Remote(network()?),
            _ => return Err(wrong()),
        })
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), str::parse).map_err(drop)?;
        match prefix <= most {
            true => Ok(Self { address, prefix }),
            false => Err(()),
        }
    }
}

impl Network {
    fn holds(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let differ = u128::from(ours.to_bits() ^ other.to_bits());
                differ >> (32 - self.prefix) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let differ = ours.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(matching: &str, local: &str, remote: &str) -> bool {
        let matching: Matching = matching.parse().unwrap();
        matching.takes(local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn all_conditions_must_hold() {
        let (local, remote) = ("10.0.0.1:999", "10.9.0.2:5201");
        assert!(takes("dport 5201", local, remote));
        assert!(!takes("sport 5201", local, remote));
        assert!(takes("port 5201 and src 10.0.0.1", local, remote));
        assert!(!takes("dport 5201 and dst 10.8.0.0/16", local, remote));
        assert!(takes("dport 5201 and dst 10.9.0.0/16", local, remote));
        assert!(takes("dst 0.0.0.0/0", local, remote));
        assert!(!takes("dst ::/0", local, remote));
        assert!(takes(
            "dst ::/0 and src fe80::/10",
            "[fe80::1]:1",
            "[2001::1]:2"
        ));
        assert!(!takes("src fe80::/10", "[fec0::1]:1", "[2001::1]:2"));
        assert!(Matching::default().takes(local.parse().unwrap(), remote.parse().unwrap()));
    }

    #[test]
    fn what_is_no_condition_is_named() {
        for bad in [
            "",
            "dport",
            "dport x",
            "dport 65536",
            "dst 10.0.0.0/33",
            "to 1.2.3.4",
            "dst host",
        ] {
            let error = bad.parse::<Matching>().unwrap_err();
            assert!(error.contains("say 'sport N'"), "{error}");
        }
    }
}
