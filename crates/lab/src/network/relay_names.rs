// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of hosts in the options of relays: `forward = "0.0.0.0:5201=far:5201"`. A testbed has no name servers, so each
//! name becomes the address at which the relay's host reaches that host.

use super::Topology;
use crate::scenario::{
    Relay, Scenario,
    config_error::{CheckResult, locate_error},
};
use std::net::IpAddr;
use toml::{Table, Value};

/// Replaces the names of hosts in every relay.
pub(crate) fn resolve(scenario: &mut Scenario) -> CheckResult {
    let topology = Topology::of(scenario);
    for (name, relay) in &mut scenario.relays {
        let host = relay.host.clone().unwrap_or_else(|| name.clone());
        let resolved = resolve_relay(
            relay,
            &Resolver {
                topology: &topology,
                host: &host,
            },
        );
        locate_error("relays", locate_error(name.as_str(), resolved))?;
    }
    Ok(())
}

/// Addresses of hosts as one host reaches them.
struct Resolver<'a> {
    topology: &'a Topology,
    host: &'a str,
}

fn resolve_relay(relay: &mut Relay, resolver: &Resolver<'_>) -> CheckResult {
    resolver.replace_all(&mut relay.options);
    resolver.replace_all(&mut relay.config);
    let forward = relay.options.get("forward");
    let targets = forward
        .into_iter()
        .flat_map(texts)
        .filter_map(|text| text.split_once('='));
    for (_, target) in targets {
        locate_error("forward", check_target(target))?;
    }
    Ok(())
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// Refuses a name that nothing in the testbed could resolve.
fn check_target(target: &str) -> CheckResult {
    let Some((name, _)) = target.rsplit_once(':') else {
        return Ok(());
    };
    let address = name.trim_matches(['[', ']']);
    if address.parse::<IpAddr>().is_ok() || address == "localhost" {
        Ok(())
    } else {
        Err(format!("{name:?} is neither an address nor a host of the testbed").into())
    }
}

impl Resolver<'_> {
    fn replace_all(&self, table: &mut Table) {
        table.iter_mut().for_each(|(_, value)| self.replace(value));
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.resolved(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.replace(one)),
            Value::Table(table) => self.replace_all(table),
            _ => {}
        }
    }

    /// Replaces each `HOST:PORT` of a text, such as `LISTEN=HOST:PORT`.
    fn resolved(&self, text: &str) -> String {
        let parts = text.split('=').map(|part| match part.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => match self.address(name) {
                Some(address) => format!("{address}:{port}"),
                None => part.to_owned(),
            },
            _ => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join("=")
    }

    fn address(&self, name: &str) -> Option<IpAddr> {
        let host = self.topology.hosts.get(name)?;
        let own = || self.topology.addresses(host).first().copied();
        let address = self.topology.address(self.host, host).or_else(own)?;
        Some(address.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(target: &str) -> Result<String, String> {
        let mut scenario: Scenario = toml::from_str(&format!(
            "title = 't'\nquestion = 'q'\nflows = []\nlinks = [{{ name = 'lan', endpoints = ['a', 'b'] }}, \
             {{ name = 'wan', endpoints = ['b', 'c'] }}]\n\
             [relays.near]\nhost = 'b'\nforward = ['0.0.0.0:80={target}']\npeer = 'c:5124'"
        ))
        .unwrap();
        resolve(&mut scenario).map_err(|error| error.to_string())?;
        let relay = &scenario.relays["near"];
        assert!(
            !relay.options["peer"].to_string().contains("c:"),
            "{relay:?}"
        );
        Ok(texts(&relay.options["forward"])[0].to_owned())
    }

    #[test]
    fn replaces_hosts_by_their_addresses() {
        let target = forward("c:5201").unwrap();
        let (_, target) = target.split_once('=').unwrap();
        assert!(target.parse::<std::net::SocketAddrV4>().is_ok(), "{target}");
        assert_eq!(
            forward("10.0.0.1:5201").unwrap(),
            "0.0.0.0:80=10.0.0.1:5201"
        );
    }

    #[test]
    fn refuses_names_that_are_no_hosts() {
        let error = forward("d:5201").unwrap_err();
        assert!(
            error.contains("\"d\" is neither an address nor a host"),
            "{error}"
        );
    }
}
