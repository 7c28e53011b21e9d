// SPDX-License-Identifier: MIT OR Apache-2.0
//! HAProxy in TCP mode, configured as its manual advises for bulk relaying: splicing where
//! possible, pipes of 1 MiB, buffers of 64 KiB.

use super::proxy_config::ProxyConfig;
use longhaul_linux::programs;
use std::{fmt::Write as _, path::Path, process::Command};

/// Returns the command that runs HAProxy in the foreground with this configuration file.
pub(super) fn command(config_file: &Path) -> Command {
    let mut command = programs::command("haproxy");
    command.arg("-db").arg("-f").arg(config_file);
    command
}

/// Returns the contents of the configuration file.
pub(super) fn config_file_text(config: &ProxyConfig) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::RelayProgram;

    #[test]
    fn each_forward_is_a_section_with_its_allowed_clients() {
        let options = "forward = ['10.9.0.2:80=10.9.1.2:81', '10.9.0.2:82=10.9.1.2:83']\n\
                       allow_from = ['10.9.0.0/30', '10.9.5.0/30']";
        let options = toml::from_str(options).unwrap();
        let text = config_file_text(&ProxyConfig::of(RelayProgram::Haproxy, &options).unwrap());
        assert!(text.contains("option splice-auto"));
        let second = "listen relay1\n    bind 10.9.0.2:82\n    \
                      tcp-request connection reject if !{ src 10.9.0.0/30 10.9.5.0/30 }\n    \
                      server next 10.9.1.2:83\n";
        assert!(text.ends_with(second), "{text}");
    }
}
