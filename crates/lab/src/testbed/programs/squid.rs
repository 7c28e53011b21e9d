// SPDX-License-Identifier: MIT OR Apache-2.0
//! Squid as a proxy without a cache, connecting directly or through another one.

use super::proxy_config::ProxyConfig;
use longhaul_linux::programs;
use std::{fmt::Write as _, path::Path, process::Command};

/// Runs Squid in the foreground with this configuration. Its service name must be unique to the
/// host.
pub(super) fn command(config_file: &Path, host: &str) -> Command {
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
pub(super) fn config_file_text(config: &ProxyConfig, relay: &str, scratch: &Path) -> String {
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

    #[test]
    fn peer_receives_all_requests() {
        let text = |peer: &str| {
            let options = toml::from_str(&format!("http = '0.0.0.0:3128'\npeer = {peer}")).unwrap();
            let config = ProxyConfig::of(RelayProgram::Squid, &options).unwrap();
            config_file_text(&config, "r1", Path::new("/run/relay-r1"))
        };
        let chained = text("'10.9.1.2'");
        let end = "cache_peer 10.9.1.2 parent 3128 0 no-query no-digest default\nnever_direct allow all\n";
        assert!(chained.ends_with(end), "{chained}");
        assert!(text("[]").ends_with("http_access deny all\n"));
        assert!(chained.contains("acl clients src all\n"));
    }
}
