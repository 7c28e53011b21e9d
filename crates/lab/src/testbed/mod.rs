// SPDX-License-Identifier: MIT OR Apache-2.0
//! Testbed of one run: a network namespace for each host, the links between them, routes, kernel
//! settings and relays. It exists inside the sandbox, which removes everything that is left.

pub(crate) mod controls;
pub(crate) mod payload;
pub(crate) mod programs;
pub(crate) mod transfers;

use crate::{
    command_check::longhaul,
    network::{
        AddressedLink, Topology,
        link::{self, arguments, capture_file, counters_file},
    },
    scenario::{Decp, Flow, Link, LinkKind, Program, Scenario, value::flags},
};
use anyhow::{Context, Result};
use indexmap::IndexMap;
use longhaul_linux::{
    clock, ethtool,
    interface::{self, VethEndpoint},
    netns::Netns,
    sysctl,
};
use longhaul_units::Time;
use programs::daemon::Daemon;
use std::{collections::BTreeMap, path::Path};

/// Testbed of one run.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) topology: Topology,
    hosts: IndexMap<String, Netns>,
    links: Vec<Daemon>,
    /// Time at which each link was started. Its schedule counts from then.
    pub(crate) link_started_at: Vec<Time>,
    /// Processes of relays and of `longhaul decp`.
    daemons: Vec<Daemon>,
}

/// Kernel settings for hosts that forward packets. Reverse-path filtering would drop packets that
/// transparent relays send with the client's address.
const FORWARDING: [(&str, &str); 3] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

impl Testbed {
    /// Builds the testbed of `scenario`. Programs log into `directory`. The links' random decisions
    /// depend on `seed`.
    pub(crate) async fn build(scenario: &Scenario, seed: u64, directory: &Path) -> Result<Self> {
        let topology = Topology::of(scenario);
        let mut testbed = Self {
            hosts: IndexMap::new(),
            links: Vec::new(),
            link_started_at: Vec::new(),
            daemons: Vec::new(),
            topology,
        };
        match testbed.set_up(scenario, seed, directory).await {
            Ok(()) => Ok(testbed),
            Err(error) => {
                // The started parts must be removed before the next testbed is built.
                testbed.tear_down().await?;
                Err(error)
            }
        }
    }

    async fn set_up(&mut self, scenario: &Scenario, seed: u64, directory: &Path) -> Result<()> {
        self.make_hosts(scenario)?;
        let addressed_links = self.topology.addressed_links.clone();
        for (index, (link, addressed_link)) in
            scenario.links.iter().zip(addressed_links).enumerate()
        {
            let seed = seed.wrapping_add(link::seed_index(&scenario.links, index) as u64);
            self.make_link(link, &addressed_link, seed, directory)
                .await?;
            self.link_started_at.push(clock::now());
        }
        self.make_routes(scenario)?;
        for (name, host, relay) in scenario.relays().filter(|(_, _, relay)| relay.enabled) {
            let addresses = self.topology.addresses(host);
            let relay_host = programs::relay::RelayHost {
                name,
                netns: self.host(host)?,
                addresses: &addresses,
                directory,
            };
            let daemon = programs::relay::start(relay, &relay_host).await?;
            self.daemons.push(daemon);
        }
        for (host, decp) in scenario.decp.iter().filter(|(_, decp)| decp.enabled) {
            let daemon = start_decp(host, decp, self.host(host)?, directory).await?;
            self.daemons.push(daemon);
        }
        Ok(())
    }

    /// Returns the namespace of a host.
    pub(crate) fn host(&self, name: &str) -> Result<&Netns> {
        self.hosts
            .get(name)
            .with_context(|| format!("the testbed has no host {name:?}"))
    }

    /// Returns every host with its namespace.
    pub(crate) fn hosts(&self) -> Vec<(String, Netns)> {
        self.hosts
            .iter()
            .map(|(name, netns)| (name.clone(), netns.clone()))
            .collect()
    }

    /// Offload settings of every link at its left end, such as `cable tso` → `on`.
    pub(crate) fn offloads(&self) -> Result<BTreeMap<String, String>> {
        let mut offloads = BTreeMap::new();
        for addressed_link in &self.topology.addressed_links {
            let host = self.host(&addressed_link.ends[0].0)?;
            for (offload, on) in host.run(|| ethtool::offloads(&addressed_link.name))? {
                let state = if on { "on" } else { "off" };
                offloads.insert(
                    format!("{} {offload}", addressed_link.name),
                    state.to_owned(),
                );
            }
        }
        Ok(offloads)
    }

    /// Checks that all relays, links and `longhaul decp` still run.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.links
            .iter_mut()
            .chain(&mut self.daemons)
            .try_for_each(Daemon::check_running)
    }

    /// Stops all programs, so that they write their last records, and removes the hosts.
    pub(crate) async fn tear_down(mut self) -> Result<()> {
        for daemon in std::mem::take(&mut self.daemons) {
            daemon.stop().await?;
        }
        let mut ended = Ok(());
        for link in std::mem::take(&mut self.links) {
            ended = ended.and(link.stop_cleanly().await);
        }
        for (name, _) in std::mem::take(&mut self.hosts) {
            Netns::delete(&name).with_context(|| format!("cannot remove the namespace {name}"))?;
        }
        ended
    }

    fn make_hosts(&mut self, scenario: &Scenario) -> Result<()> {
        for name in &self.topology.hosts {
            let netns =
                Netns::create(name).with_context(|| format!("cannot make the namespace {name}"))?;
            self.hosts.insert(name.clone(), netns.clone());
            interface::bring_up(&netns, "lo")?;
            write_sysctls(
                &netns,
                FORWARDING.map(|(name, value)| (name, value.to_owned())),
            )?;
            let host_sysctls = scenario.hosts.get(name).map(|host| &host.sysctl);
            let settings = scenario
                .sysctl
                .iter()
                .chain(host_sysctls.into_iter().flatten());
            write_sysctls(
                &netns,
                settings.map(|(name, value)| (name.as_str(), value.to_string())),
            )?;
        }
        Ok(())
    }

    async fn make_link(
        &mut self,
        link: &Link,
        addressed_link: &AddressedLink,
        seed: u64,
        directory: &Path,
    ) -> Result<()> {
        match link.kind {
            LinkKind::Veth => self.make_veth(link, addressed_link),
            LinkKind::Emulated => {
                let daemon = start_link(link, addressed_link, seed, directory).await?;
                self.links.push(daemon);
                Ok(())
            }
        }
    }

    fn make_veth(&self, link: &Link, addressed_link: &AddressedLink) -> Result<()> {
        let end = |(host, address): &(String, super::scenario::Address)| -> Result<VethEndpoint> {
            let (netns, name) = (self.host(host)?, addressed_link.name.as_str());
            Ok(VethEndpoint {
                netns,
                name,
                address: address.ip.into(),
                prefix: address.prefix,
            })
        };
        Ok(interface::create_veth(
            &end(&addressed_link.ends[0])?,
            &end(&addressed_link.ends[1])?,
            link.mtu,
        )?)
    }

    fn make_routes(&self, scenario: &Scenario) -> Result<()> {
        for (name, netns) in &self.hosts {
            let congestion = host_control(scenario, name);
            if needs_reno(scenario, name) {
                set_default_reno(netns)?;
            }
            for route in self.topology.routes(name) {
                let (network, prefix) = (route.network, route.prefix);
                interface::add_route(netns, network, prefix, route.gateway, congestion)?;
            }
            if let Some(congestion) = congestion {
                self.set_congestion_control(name, netns, congestion)?;
            }
        }
        Ok(())
    }

    fn set_congestion_control(&self, host: &str, netns: &Netns, algorithm: &str) -> Result<()> {
        for addressed_link in &self.topology.addressed_links {
            if let Some(address) = addressed_link.address_of(host) {
                let (network, prefix) = (address.network(), address.prefix);
                interface::set_congestion_control(
                    netns,
                    &addressed_link.name,
                    network,
                    prefix,
                    address.ip,
                    algorithm,
                )?;
            }
        }
        Ok(())
    }
}

/// Starts the emulator, which creates both interfaces; ready on return. `seed` applies to a link
/// without a seed of its own.
async fn start_link(
    link: &Link,
    addressed_link: &AddressedLink,
    seed: u64,
    directory: &Path,
) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("link")
        .args(arguments(link, addressed_link).map_err(anyhow::Error::msg)?)
        .arg("--counters")
        .arg(counters_file(link, directory));
    if !link.options.contains_key("seed") {
        command.args(["--seed", &seed.to_string()]);
    }
    let name = format!("link-{}", link.name);
    if link.capture {
        command.arg("--capture").arg(capture_file(link, directory));
    }
    let mut daemon = Daemon::start(&name, command, &Netns::current()?, directory)?;
    daemon.wait_until_printed("ready").await?;
    Ok(daemon)
}

/// Starts `longhaul decp`; it samples connections on return.
async fn start_decp(host: &str, decp: &Decp, netns: &Netns, directory: &Path) -> Result<Daemon> {
    let mut command = longhaul()?;
    command
        .arg("decp")
        .args(flags(&decp.options).map_err(anyhow::Error::msg)?);
    let mut daemon = Daemon::start(&format!("decp-{host}"), command, netns, directory)?;
    // Any line: the first one follows the first sample.
    daemon.wait_until_printed("").await?;
    Ok(daemon)
}

/// Kernel setting of the initial congestion control of connections.
const CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Congestion control of all connections of `host`; `None` for the machine's. The control of an FTP
/// flow can only be set this way, because FTP's server and client open their own sockets.
fn host_control<'a>(scenario: &'a Scenario, host: &str) -> Option<&'a str> {
    let sends = |flow: &&Flow| flow.enabled && flow.program == Program::Ftp && flow.from == host;
    let mut ftp = scenario.flows.iter().filter(sends);
    let ftp = ftp.find_map(|flow| flow.cc.as_ref()?.name());
    let of_host = (scenario.hosts.get(host)).and_then(|host| host.congestion_control.as_deref());
    ftp.or(of_host).or(scenario.congestion_control.as_deref())
}

/// Whether a flow sends from `host` with its own congestion control, and no other setting applies.
fn needs_reno(scenario: &Scenario, host: &str) -> bool {
    let has_control = |flow: &Flow| {
        flow.cc
            .as_ref()
            .is_some_and(|control| control.name().is_some())
    };
    let sends = |flow: &Flow| flow.enabled && flow.from == host && has_control(flow);
    let host_sysctls = scenario.hosts.get(host).map(|host| &host.sysctl);
    let mut settings = host_sysctls.into_iter().chain([&scenario.sysctl]);
    let is_set = settings.any(|all| all.contains_key(CONTROL));
    !is_set && host_control(scenario, host).is_none() && scenario.flows.iter().any(sends)
}

/// Removes the namespaces of a testbed that could not be finished, so that their names are free.
impl Drop for Testbed {
    fn drop(&mut self) {
        for name in self.hosts.keys() {
            let _ = Netns::delete(name);
        }
    }
}

/// Sets reno as the initial control.
///
/// iperf3 sets its control only after the connection is established, and effects of bbr until then
/// remain: a socket that once used it paces for good (`sk_pacing_status`, net/ipv4/tcp_bbr.c). reno
/// has no such effect. A route would override the option of a listening socket
/// (`tcp_ca_openreq_child`), so it is a kernel setting.
fn set_default_reno(netns: &Netns) -> Result<()> {
    write_sysctls(
        netns,
        [("net.ipv4.tcp_congestion_control", "reno".to_owned())],
    )
}

fn write_sysctls<'a>(
    netns: &Netns,
    settings: impl IntoIterator<Item = (&'a str, String)>,
) -> Result<()> {
    for (name, value) in settings {
        sysctl::write(netns, name, &value)
            .with_context(|| format!("host {}", netns.name().unwrap_or_default()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_uses_reno_if_flows_set_their_control() {
        let scenario = |keys: &str| -> Scenario {
            let rest = r#"
                title = "t"
                question = "q"
                links = [{ name = "wan", endpoints = ["a", "b"] }]
                flows = [{ name = "f", program = "iperf3", from = "a", to = "b", size = "1MB", cc = "cubic" }]
            "#;
            toml::from_str(&format!("{keys}\n{rest}")).unwrap()
        };
        assert!(needs_reno(&scenario(""), "a"));
        assert!(!needs_reno(&scenario(""), "b"));
        let is_set = scenario("congestion_control = 'bbr'");
        assert!(!needs_reno(&is_set, "a"));
        assert_eq!(host_control(&is_set, "a"), Some("bbr"));
    }

    #[test]
    fn ftp_flow_sets_the_control_of_its_host() {
        let scenario = |when: &str| -> Scenario {
            toml::from_str(&format!(
                "title = 't'\nquestion = 'q'\ncongestion_control = 'bbr'\n\
                 links = [{{ name = 'wan', endpoints = ['a', 'b'] }}]\n\
                 hosts.a.congestion_control = 'cubic'\n\
                 flows = [{{ name = 'f', program = 'ftp', from = 'a', to = 'b', size = '1MB', cc = 'reno', {when} }}]"
            ))
            .unwrap()
        };
        assert_eq!(host_control(&scenario("enabled = true"), "a"), Some("reno"));
        assert_eq!(host_control(&scenario("enabled = true"), "b"), Some("bbr"));
        assert_eq!(
            host_control(&scenario("enabled = false"), "a"),
            Some("cubic")
        );
        assert!(!needs_reno(&scenario("enabled = true"), "a"));
    }
}
