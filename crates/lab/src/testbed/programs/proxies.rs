// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relay programs other than longhaul: HAProxy, Dante and Squid. Each takes some of the options of `longhaul relay`:
//! listeners, next relay and allowed clients. So a scenario exchanges the program by one parameter. Files of the programs'
//! own syntax in the scenarios would have to be written once for each place in a chain, because the last relay has no peer.
//!
//! HAProxy runs in TCP mode, configured as its manual advises for bulk relaying: splicing where possible, pipes of 1 MiB,
//! buffers of 64 KiB. Dante is a SOCKS server, Squid a proxy without a cache. Both connect directly or through another one.

use crate::scenario::{
    RelayProgram,
    config_error::{ConfigError, locate_error},
};
use longhaul_linux::programs;
use std::{
    fmt::{Display, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::Path,
    process::Command,
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

/// Returns the command that runs HAProxy in the foreground with this configuration file.
pub(super) fn haproxy_command(config_file: &Path) -> Command {
    let mut command = programs::command("haproxy");
    command.arg("-db").arg("-f").arg(config_file);
    command
}

/// Returns the contents of the configuration file.
pub(super) fn haproxy_config(config: &ProxyConfig) -> String {
    let mut text = String::from(
        "global\n\
         \x20   nbthread 2\n\
         \x20   maxconn 2000\n\
         \x20   maxpipes 64\n\
         \x20   tune.bufsize 65536\n\
         \x20   tune.pipesize 1048576\n\
         defaults\n\
         \x20   mode tcp\n\
         \x20   option splice-auto\n\
         \x20   timeout connect 10s\n\
         \x20   timeout client 1h\n\
         \x20   timeout server 1h\n",
    );
    let clients = config.allow_from.join(" ");
    for (number, (listen, destination)) in config.forward.iter().enumerate() {
        let _ = write!(text, "listen relay{number}\n    bind {listen}\n");
        if !clients.is_empty() {
            let _ = writeln!(
                text,
                "    tcp-request connection reject if !{{ src {clients} }}"
            );
        }
        let _ = writeln!(text, "    server next {destination}");
    }
    text
}

/// Runs Dante in the foreground with this configuration; `-N 2` starts two servers, one per core
/// here.
pub(super) fn dante_command(config_file: &Path, scratch: &Path) -> Command {
    let mut command = programs::command("danted");
    command.arg("-f").arg(config_file);
    command.arg("-p").arg(scratch.join("pid")).args(["-N", "2"]);
    command
}

/// Writes the configuration. `own` are the host's addresses, to which Dante binds its connections.
/// It runs as root, because a user namespace has no other user.
pub(super) fn dante_config(config: &ProxyConfig, own: &[Ipv4Addr]) -> String {
    let mut text = String::from(
        "logoutput: stderr\n\
         errorlog: stderr\n\
         socksmethod: none\n\
         clientmethod: none\n\
         user.privileged: root\n\
         user.unprivileged: root\n\
         external.rotation: route\n",
    );
    for listen in &config.socks5 {
        let _ = writeln!(text, "internal: {} port = {}", listen.ip(), listen.port());
    }
    for address in own {
        let _ = writeln!(text, "external: {address}");
    }
    for network in clients(config) {
        let _ = writeln!(
            text,
            "client pass {{ from: {network} to: 0.0.0.0/0 log: error }}"
        );
    }
    text.push_str("socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 log: error }\n");
    if let Some(peer) = config.peer {
        let (ip, port) = (peer.ip(), peer.port());
        let _ = writeln!(
            text,
            "route {{\n\
             \x20   from: 0.0.0.0/0 to: 0.0.0.0/0 via: {ip} port = {port}\n\
             \x20   proxyprotocol: socks_v5\n\
             \x20   command: connect\n\
             }}"
        );
    }
    text
}

fn clients(config: &ProxyConfig) -> Vec<String> {
    if config.allow_from.is_empty() {
        vec!["0.0.0.0/0".to_owned()]
    } else {
        config.allow_from.clone()
    }
}

/// Runs Squid in the foreground with this configuration. Its service name must be unique to the
/// host.
pub(super) fn squid_command(config_file: &Path, host: &str) -> Command {
    let service: String = host.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut command = programs::command("squid");
    command
        .args(["-N", "-d", "1", "-n", &service, "-f"])
        .arg(config_file);
    command
}

/// Writes the configuration. Squid refuses to serve as root, so it must be started by the machine's
/// root: a user namespace has no other user.
///
/// Squid detects loops by its own host name, here `relay`, so no two may have the same.
pub(super) fn squid_config(config: &ProxyConfig, relay: &str, scratch: &Path) -> String {
    let scratch = scratch.display();
    let mut text = format!(
        "visible_hostname {relay}\n\
         cache_effective_user nobody\n\
         pid_filename {scratch}/pid\n\
         coredump_dir {scratch}\n\
         cache_log /dev/null\n\
         access_log none\n\
         cache_store_log none\n\
         cache deny all\n\
         read_ahead_gap 1 MB\n\
         workers 1\n\
         shutdown_lifetime 0 seconds\n\
         pinger_enable off\n\
         acl CONNECT method CONNECT\n"
    );
    for listen in &config.http {
        let _ = writeln!(text, "http_port {listen}");
    }
    let clients = if config.allow_from.is_empty() {
        "all".to_owned()
    } else {
        config.allow_from.join(" ")
    };
    let _ = writeln!(
        text,
        "acl clients src {clients}\nhttp_access allow clients\nhttp_access deny all"
    );
    if let Some(peer) = config.peer {
        let (ip, port) = (peer.ip(), peer.port());
        let _ = writeln!(
            text,
            "cache_peer {ip} parent {port} 0 no-query no-digest default"
        );
        text.push_str("never_direct allow all\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::RelayProgram;

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

    #[test]
    fn each_forward_is_a_section_with_its_allowed_clients() {
        let options = "forward = ['10.9.0.2:80=10.9.1.2:81', '10.9.0.2:82=10.9.1.2:83']\n\
                       allow_from = ['10.9.0.0/30', '10.9.5.0/30']";
        let options = toml::from_str(options).unwrap();
        let text = haproxy_config(&ProxyConfig::of(RelayProgram::Haproxy, &options).unwrap());
        assert!(text.contains("option splice-auto"));
        let second = "listen relay1\n    bind 10.9.0.2:82\n    \
                      tcp-request connection reject if !{ src 10.9.0.0/30 10.9.5.0/30 }\n    \
                      server next 10.9.1.2:83\n";
        assert!(text.ends_with(second), "{text}");
    }

    #[test]
    fn peer_becomes_a_route() {
        let text = |peer: &str| {
            let options =
                toml::from_str(&format!("socks5 = '0.0.0.0:1080'\npeer = {peer}")).unwrap();
            let config = ProxyConfig::of(RelayProgram::Dante, &options).unwrap();
            dante_config(
                &config,
                &[Ipv4Addr::new(10, 9, 0, 2), Ipv4Addr::new(10, 9, 1, 1)],
            )
        };
        let chained = text("'10.9.1.2'");
        assert!(
            chained.contains(
                "internal: 0.0.0.0 port = 1080\nexternal: 10.9.0.2\nexternal: 10.9.1.1\n"
            )
        );
        assert!(
            chained.contains("via: 10.9.1.2 port = 1080\n    proxyprotocol: socks_v5\n"),
            "{chained}"
        );
        assert!(!text("[]").contains("route {"));
    }

    #[test]
    fn peer_receives_all_requests() {
        let text = |peer: &str| {
            let options = toml::from_str(&format!("http = '0.0.0.0:3128'\npeer = {peer}")).unwrap();
            let config = ProxyConfig::of(RelayProgram::Squid, &options).unwrap();
            squid_config(&config, "r1", Path::new("/run/relay-r1"))
        };
        let chained = text("'10.9.1.2'");
        let end = "cache_peer 10.9.1.2 parent 3128 0 no-query no-digest default\nnever_direct allow all\n";
        assert!(chained.ends_with(end), "{chained}");
        assert!(text("[]").ends_with("http_access deny all\n"));
        assert!(chained.contains("acl clients src all\n"));
    }
}
