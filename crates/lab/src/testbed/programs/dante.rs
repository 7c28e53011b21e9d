// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dante's SOCKS server, connecting directly or through another one.

use super::proxy_config::ProxyConfig;
use longhaul_linux::programs;
use std::{fmt::Write as _, net::Ipv4Addr, path::Path, process::Command};

/// Runs Dante in the foreground with this configuration; `-N 2` starts two servers, one per core
/// here.
pub(super) fn command(config_file: &Path, scratch: &Path) -> Command {
    let mut command = programs::command("danted");
    command.arg("-f").arg(config_file);
    command.arg("-p").arg(scratch.join("pid")).args(["-N", "2"]);
    command
}

/// Writes the configuration. `own` are the host's addresses, to which Dante binds its connections.
/// It runs as root, because a user namespace has no other user.
pub(super) fn config_file_text(config: &ProxyConfig, own: &[Ipv4Addr]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::RelayProgram;

    #[test]
    fn peer_becomes_a_route() {
        let text = |peer: &str| {
            let options =
                toml::from_str(&format!("socks5 = '0.0.0.0:1080'\npeer = {peer}")).unwrap();
            let config = ProxyConfig::of(RelayProgram::Dante, &options).unwrap();
            config_file_text(
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
}
