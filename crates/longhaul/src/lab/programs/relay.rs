// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul relay` on a host of the testbed, with the rules that a transparent listener needs.

use super::{daemon::Daemon, flags, longhaul};
use crate::lab::scenario::Relay;
use anyhow::{Context, Result, ensure};
use host::{interface, netns::Netns, process};
use std::{
    io::Write,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};
use toml::Value;

/// Mark of packets that belong to the relay, and the routing table that hands them to it.
const MARK: u32 = 1;
const TABLE: u32 = 100;

/// Checks a relay's options.
pub(crate) fn check(relay: &Relay) -> Result<(), String> {
    let arguments = flags(&relay.options)?;
    crate::relay::check(&arguments).map_err(|error| error.to_string())?;
    match (transparent(relay)?, relay.intercept.is_empty()) {
        (Some(_), true) => Err("a transparent listener needs intercept = [ports]".to_owned()),
        (None, false) => Err("intercept needs a transparent listener".to_owned()),
        _ => Ok(()),
    }
}

/// The transparent listener's address, if it has one.
fn transparent(relay: &Relay) -> Result<Option<SocketAddr>, String> {
    let Some(value) = relay.options.get("transparent") else {
        return Ok(None);
    };
    let address = value.as_str().and_then(|text| text.parse().ok());
    address
        .map(Some)
        .ok_or_else(|| format!("transparent = {value} is no ADDRESS:PORT"))
}

/// Starts the relay with its rules; ready on return.
pub(crate) async fn start(relay: &Relay, netns: &Netns, directory: &Path) -> Result<Daemon> {
    if let Some(listener) = transparent(relay).map_err(anyhow::Error::msg)? {
        divert(netns, &relay.intercept, listener.port())?;
    }
    let host = netns.name().unwrap_or("host");
    let mut options = relay.options.clone();
    let counters = directory.join(format!("relay-{host}.jsonl"));
    options
        .entry("counters")
        .or_insert_with(|| Value::String(counters.display().to_string()));
    let mut command = longhaul()?;
    command
        .arg("relay")
        .args(flags(&options).map_err(anyhow::Error::msg)?);
    let mut daemon = Daemon::start(&format!("relay-{host}"), command, netns, directory)?;
    daemon.printed("listening").await?;
    Ok(daemon)
}

/// TPROXY as in Linux `Documentation/networking/tproxy.rst`: packets of sockets that exist are
/// marked and so stay on this host, new connections to the ports go to the listener.
fn divert(netns: &Netns, ports: &[u16], listener: u16) -> Result<()> {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    let rules = format!(
        "table ip longhaul {{\n\
           chain divert {{\n\
             type filter hook prerouting priority mangle; policy accept;\n\
             meta l4proto tcp socket transparent 1 meta mark set {MARK} accept\n\
             tcp dport {{ {ports} }} tproxy to :{listener} meta mark set {MARK} accept\n\
           }}\n\
         }}\n"
    );
    nft(netns, &rules)?;
    Ok(interface::deliver_marked_locally(netns, MARK, TABLE)?)
}

fn nft(netns: &Netns, rules: &str) -> Result<()> {
    let mut command = Command::new("nft");
    command
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = process::inside(&mut command, netns)
        .spawn()
        .context("cannot run nft")?;
    child
        .stdin
        .take()
        .context("nft has no input")?
        .write_all(rules.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "nft refused the TPROXY rules: {}",
        said.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(text: &str) -> Relay {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_transparent_listener_and_its_ports_go_together() {
        assert_eq!(
            check(&relay(
                "transparent = '0.0.0.0:3129'\nintercept = [80]\nallow_from = '10.9.0.0/16'"
            )),
            Ok(())
        );
        assert!(check(&relay("transparent = '0.0.0.0:3129'")).is_err());
        assert!(check(&relay("intercept = [80]")).is_err());
        assert!(check(&relay("transparent = 'here'\nintercept = [80]")).is_err());
    }
}
