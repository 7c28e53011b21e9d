// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of other relay programs, with the options of `longhaul relay`: listeners, next
//! relay and allowed clients. Each program supports some of them.

use crate::scenario::{
    RelayProgram,
    config_error::{ConfigError, locate_error},
};
use std::{
    fmt::Display,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};
use toml::{Table, Value};

/// Options of a relay. A key with an empty list counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProxyConfig {
    /// Listening address and destination of its connections.
    pub(crate) forward: Vec<(SocketAddrV4, SocketAddrV4)>,
    pub(crate) socks5: Vec<SocketAddrV4>,
    pub(crate) http: Vec<SocketAddrV4>,
    /// Next relay of the same kind.
    pub(crate) peer: Option<SocketAddrV4>,
    /// Networks of allowed clients.
    pub(crate) allow_from: Vec<String>,
}

/// Usual proxy ports, for a peer without a port.
const SOCKS_PORT: u16 = 1080;
const HTTP_PORT: u16 = 3128;

impl ProxyConfig {
    /// Parses a relay's options.
    ///
    /// # Errors
    /// One line with the invalid key.
    pub(crate) fn of(program: RelayProgram, options: &Table) -> Result<Self, ConfigError> {
        let list = |key: &str| locate_error(key, texts(options, key));
        let listen = |key: &str| locate_error(key, parsed(key, &list(key)?, address));
        let port = if program == RelayProgram::Dante {
            SOCKS_PORT
        } else {
            HTTP_PORT
        };
        let peers = parsed("peer", &list("peer")?, |text| peer(text, port));
        let config = Self {
            forward: locate_error("forward", parsed("forward", &list("forward")?, forward))?,
            socks5: listen("socks5")?,
            http: listen("http")?,
            peer: locate_error("peer", peers.and_then(only))?,
            allow_from: list("allow_from")?,
        };
        let listens = config.listeners().next().is_some();
        if listens {
            Ok(config)
        } else {
            Err(format!("{} has no listener", program.name()).into())
        }
    }

    /// Addresses of all listeners, each with its option.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let forward = self.forward.iter().map(|(listen, _)| ("forward", listen));
        let socks5 = self.socks5.iter().map(|listen| ("socks5", listen));
        let http = self.http.iter().map(|listen| ("http", listen));
        let all = forward.chain(socks5).chain(http);
        all.map(|(option, listen)| (option, SocketAddr::V4(*listen)))
    }
}

/// Texts of a key with one text or a list of texts.
fn texts(options: &Table, key: &str) -> Result<Vec<String>, String> {
    let text = |value: &Value| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("{key} must be a text or a list of texts"))
    };
    match options.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => all.iter().map(text).collect(),
        Some(one) => Ok(vec![text(one)?]),
    }
}

fn parsed<T>(
    key: &str,
    texts: &[String],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let wrong = |text: &dyn Display| {
        let form = if key == "forward" {
            "LISTEN:PORT=ADDRESS:PORT"
        } else {
            "ADDRESS:PORT"
        };
        format!("{key} = {text}: expected {form} (IPv4)")
    };
    let each = |text: &String| parse(text).ok_or_else(|| wrong(text));
    texts.iter().map(each).collect()
}

fn address(text: &str) -> Option<SocketAddrV4> {
    text.parse().ok()
}

fn forward(text: &str) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let (listen, destination) = text.split_once('=')?;
    Some((address(listen)?, address(destination)?))
}

fn peer(text: &str, port: u16) -> Option<SocketAddrV4> {
    let alone = || Some(SocketAddrV4::new(text.parse::<Ipv4Addr>().ok()?, port));
    address(text).or_else(alone)
}

fn only<T>(mut all: Vec<T>) -> Result<Option<T>, String> {
    match all.len() {
        0 | 1 => Ok(all.pop()),
        _ => Err("peer: give the next relay only".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(program: RelayProgram, text: &str) -> Result<ProxyConfig, String> {
        let config = ProxyConfig::of(program, &toml::from_str(text).unwrap());
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn reads_the_options_of_longhaul_relay() {
        let forward = of(
            RelayProgram::Haproxy,
            "forward = '0.0.0.0:80=10.9.1.2:8080'",
        )
        .unwrap();
        assert_eq!(forward.forward[0].1, "10.9.1.2:8080".parse().unwrap());
        let listens: Vec<_> = forward.listeners().collect();
        assert_eq!(listens, [("forward", "0.0.0.0:80".parse().unwrap())]);
        let socks = of(
            RelayProgram::Dante,
            "socks5 = ['0.0.0.0:1080']\npeer = '10.9.1.2'",
        )
        .unwrap();
        assert_eq!(socks.peer, Some("10.9.1.2:1080".parse().unwrap()));
        let last = of(RelayProgram::Squid, "http = ['0.0.0.0:3128']\npeer = []").unwrap();
        assert_eq!(last.peer, None);
    }

    #[test]
    fn names_the_invalid_option() {
        let error = |program, text| of(program, text).unwrap_err();
        assert!(
            error(RelayProgram::Haproxy, "forward = '80'").contains("LISTEN:PORT=ADDRESS:PORT")
        );
        assert!(error(RelayProgram::Squid, "http = 3128").contains("http must be"));
        assert!(error(RelayProgram::Dante, "peer = '10.9.0.1'").contains("no listener"));
        let two = "socks5 = '0.0.0.0:1'\npeer = ['10.9.0.1', '10.9.0.2']";
        assert!(error(RelayProgram::Dante, two).contains("next relay only"));
    }
}
