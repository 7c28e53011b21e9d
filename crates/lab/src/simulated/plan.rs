// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of a scenario to a chain of simulated legs, with refusals of unsupported keys.

use super::route::{Route, SharedLeg};
use crate::{
    network::{
        SenderOptions, Topology,
        sockets::segment_size,
        tcp_settings::{receive_window, send_buffer, sender_control},
    },
    scenario::{
        Direction, Flow, Pacing, Program, Relay, RelayProgram, Scenario,
        config_error::{CheckResult, ConfigError, check_each, ensure, locate_error},
    },
};
use longhaul_congestion::math::simulated::algorithm;
use longhaul_tcpsim::{
    chain::Leg,
    receiver::AckPolicy,
    sender::SenderConfig,
    simulation::{FlowConfig, Path},
};
use longhaul_units::{Bytes, Time};

/// Simulation plan: the enabled flows with their routes, and the legs that all of them share.
pub(crate) struct Plan<'a> {
    scenario: &'a Scenario,
    pub(super) topology: Topology,
    pub(super) flows: Vec<&'a Flow>,
    routes: Vec<Route>,
    legs: Vec<SharedLeg>,
}

/// Simulated connection on one leg.
pub(super) struct Connection<'a> {
    /// Index into [`Plan::flows`].
    pub(super) flow: usize,
    pub(super) leg: usize,
    /// Sending host and receiving host.
    pub(super) endpoints: [&'a str; 2],
    /// Congestion control as the scenario names it.
    pub(super) control: String,
    pub(super) start: Time,
    pub(super) round_trip: Time,
    extra_rtt: Time,
    sender: SenderConfig,
    acks: AckPolicy,
}

impl Connection<'_> {
    /// Largest window of its receiver in bytes.
    pub(super) fn window(&self) -> u64 {
        self.sender.receive_window.get()
    }
}

/// Size of the pipe in which longhaul's relay holds bytes of a connection, beside its socket buffers.
const PIPE_BYTES: u64 = 1 << 20;

impl<'a> Plan<'a> {
    /// Plans the simulation of `scenario`.
    ///
    /// # Errors
    /// The scenario has something that cannot be simulated.
    pub(crate) fn of(scenario: &'a Scenario) -> Result<Self, ConfigError> {
        let flows: Vec<&Flow> = scenario.flows.iter().filter(|flow| flow.enabled).collect();
        let topology = Topology::of(scenario);
        locate_error("flows", check_each(&scenario.flows, check_flow))?;
        check_unsupported(scenario)?;
        let route = |flow: &&Flow| Route::of(scenario, &topology, flow);
        let routes: Vec<Route> = flows.iter().map(route).collect();
        let first = &routes.first().ok_or("no flow runs")?.endpoints;
        if routes.iter().any(|route| {
            route.endpoints.len() > 2 && route.endpoints != *first
                || route.endpoints.len() != first.len()
        }) {
            return Err("the flows connect different hosts, and some go through relays: give all flows the same hosts, or remove the relays".into());
        }
        check_relays(scenario, &routes[0].relays)?;
        let legs = 0..first.len() - 1;
        let legs = legs.map(|leg| SharedLeg::of(scenario, &routes, leg));
        let plan = Self {
            legs: legs.collect::<Result<_, _>>()?,
            scenario,
            topology,
            flows,
            routes,
        };
        // Congestion controls are checked when they are looked up.
        (0..plan.legs.len()).try_for_each(|leg| {
            let mut all = plan.connections(leg);
            all.try_for_each(|one| plan.check_control(&one))
        })?;
        Ok(plan)
    }

    /// Checks that the connection's congestion control exists.
    fn check_control(&self, connection: &Connection<'_>) -> CheckResult {
        let name = &self.flows[connection.flow].name;
        let mut flows = self.scenario.flows.iter();
        let number = flows.position(|flow| flow.name == *name);
        let control = new_control(&connection.control, false).map(drop);
        locate_error(
            "flows",
            locate_error(number.unwrap_or_default(), locate_error("cc", control)),
        )
    }

    /// Number of legs.
    pub(super) fn leg_count(&self) -> usize {
        self.legs.len()
    }

    /// All connections of one leg, flow by flow.
    pub(super) fn connections(&self, leg: usize) -> impl Iterator<Item = Connection<'_>> {
        let flows = self.flows.iter().enumerate();
        flows.flat_map(move |(number, flow)| {
            (0..flow.streams).map(move |_| self.connection(leg, number, flow))
        })
    }

    fn connection(&self, leg: usize, number: usize, flow: &'a Flow) -> Connection<'_> {
        let endpoints = &self.routes[number].endpoints;
        let control = sender_control(self.scenario, &endpoints[leg], flow);
        Connection {
            flow: number,
            leg,
            endpoints: [&endpoints[leg], &endpoints[leg + 1]],
            start: self.start(leg, number, flow),
            round_trip: self.round_trip(leg, number),
            extra_rtt: self.legs[leg].extra_rtt[number],
            sender: self.sender(leg, number, flow),
            acks: ack_policy(flow),
            control,
        }
    }

    /// Builds the legs of the simulation. Random decisions depend on `seed`.
    pub(super) fn chain(&self, seed: u64) -> Result<Vec<Leg>, String> {
        (0..self.legs.len())
            .map(|leg| self.leg(leg, seed))
            .collect()
    }

    fn leg(&self, number: usize, seed: u64) -> Result<Leg, String> {
        let SharedLeg { link, model, .. } = &self.legs[number];
        let flows = self.connections(number).map(|one| flow_config(&one));
        Ok(Leg {
            path: Path {
                forward: model.forward.initial.clone(),
                reverse: model.reverse.initial.clone(),
                forward_changes: model.forward.schedule.clone(),
                reverse_changes: model.reverse.schedule.clone(),
                seed: seed.wrapping_add(*link as u64),
                per_packet: false,
            },
            flows: flows.collect::<Result<_, _>>()?,
            relay_buffer: self.relay_buffer(number),
        })
    }

    /// Packets that the relay after the leg can hold for a connection: the buffers of both its
    /// sockets, and a pipe.
    fn relay_buffer(&self, leg: usize) -> u64 {
        let endpoints = &self.routes[0].endpoints;
        let Some(relay) = endpoints.get(leg + 1) else {
            return 0;
        };
        let bytes = receive_window(self.scenario, [&endpoints[leg], relay]).get()
            + send_buffer(self.scenario, relay).get()
            + PIPE_BYTES;
        bytes / u64::from(self.mss())
    }

    /// Payload of a full packet. All legs use the smallest.
    pub(super) fn mss(&self) -> u32 {
        let segments = self.flows.iter();
        let segments = segments.map(|flow| segment_size(self.scenario, &self.topology, flow));
        segments.min().unwrap_or(1448)
    }

    fn round_trip(&self, leg: usize, flow: usize) -> Time {
        let shared = &self.legs[leg];
        shared.model.round_trip() + shared.extra_rtt[flow]
    }

    /// Start of a connection on a leg. A relay connects to the next hop once the incoming
    /// connection is established: one and a half round trips after its SYN.
    fn start(&self, leg: usize, number: usize, flow: &Flow) -> Time {
        let before = match flow.direction {
            Direction::Download => leg + 1..self.legs.len(),
            Direction::Upload => 0..leg,
        };
        let handshakes = before.map(|leg| {
            let round = self.round_trip(leg, number);
            round + Time::from_nanos(round.as_nanos() / 2)
        });
        handshakes.fold(flow.start, |sum, handshake| sum + handshake)
    }

    fn sender(&self, leg: usize, number: usize, flow: &Flow) -> SenderConfig {
        let route = &self.routes[number];
        let (sends, receives) = (&route.endpoints[leg], &route.endpoints[leg + 1]);
        let from_source = *sends == flow.from;
        let to_destination = *receives == flow.to;
        let mss = self.mss();
        let window = flow.window.filter(|_| to_destination);
        let buffer = flow.window.filter(|_| from_source);
        let sender_options = SenderOptions::of(self.scenario, &self.topology, flow);
        let has_rate =
            matches!(flow.pacing, Some(Pacing::Rate(_))) || flow.inter_packet_gap.is_some();
        SenderConfig {
            mss,
            receive_window: window
                .unwrap_or_else(|| receive_window(self.scenario, [sends, receives])),
            send_buffer: buffer.unwrap_or_else(|| send_buffer(self.scenario, sends)),
            paced: from_source && sender_options.pacing_rate.is_some(),
            pacing_rate_max: sender_options
                .pacing_rate
                .filter(|_| from_source && has_rate),
            initial_window: flow.model.clone().unwrap_or_default().initial_window,
            packets: flow.size.map(|size| packets(size, flow.streams, mss)),
        }
    }
}

fn flow_config(connection: &Connection<'_>) -> Result<FlowConfig, String> {
    Ok(FlowConfig {
        start: connection.start,
        extra_rtt: connection.extra_rtt,
        control: new_control(&connection.control, connection.sender.paced)?,
        sender: connection.sender,
        acks: connection.acks,
    })
}

fn ack_policy(flow: &Flow) -> AckPolicy {
    let model = flow.model.clone().unwrap_or_default();
    AckPolicy {
        packets: model.ack_ratio,
        gro_interval: model.gro,
        ..AckPolicy::default()
    }
}

/// Creates a simulated congestion control.
fn new_control(
    name: &str,
    paced: bool,
) -> Result<Box<dyn longhaul_tcpsim::congestion_control::CongestionControl>, String> {
    algorithm(name, paced).map_err(|reason| format!("congestion control {name:?}: {reason}"))
}

/// Packets of one of several connections that share `size`.
fn packets(size: Bytes, connections: u32, mss: u32) -> u64 {
    let each = size.get().div_ceil(u64::from(connections));
    each.div_ceil(u64::from(mss)).max(1)
}

fn check_flow(flow: &Flow) -> CheckResult {
    let name = &flow.name;
    match flow.program {
        _ if !flow.enabled => Ok(()),
        Program::Iperf3 => locate_error(
            "proxy",
            ensure(flow.proxy.is_none(), || {
                format!("flow {name:?} goes through a proxy; remove the key")
            }),
        ),
        other => locate_error(
            "program",
            Err(format!(
                "flow {name:?} has program {:?}: only flows of \"iperf3\" can be simulated",
                other.name()
            )),
        ),
    }
}

/// Refuses `decp` and captures, which are not simulated.
fn check_unsupported(scenario: &Scenario) -> CheckResult {
    for (host, decp) in &scenario.decp {
        let off = ensure(!decp.enabled, || {
            format!("decp.{host} is on; set enabled = false")
        });
        locate_error("decp", locate_error(host, off))?;
    }
    let links = check_each(&scenario.links, |link| {
        let uncaptured = ensure(!link.capture, || {
            format!("link {:?} has a capture; set capture = false", link.name)
        });
        locate_error("capture", uncaptured)
    });
    locate_error("links", links)
}

/// Checks the enabled relays: they must be on the path of the flows and do nothing but split their
/// connections.
fn check_relays(scenario: &Scenario, on_path: &[String]) -> CheckResult {
    for (name, host, relay) in scenario.relays().filter(|(_, _, relay)| relay.enabled) {
        let problem = match unsupported_feature(relay) {
            _ if !on_path.contains(host) => "is not on the path of the flows".to_owned(),
            Some(what) => format!("has {what}"),
            None => continue,
        };
        let problem = format!("relay {name:?} {problem}");
        return locate_error("relays", locate_error(name, Err(problem)));
    }
    Ok(())
}

fn unsupported_feature(relay: &Relay) -> Option<&'static str> {
    let streams =
        relay.options.contains_key("streams") || relay.config.to_string().contains("streams");
    match relay.program {
        _ if streams => Some("streams"),
        _ if relay.config.contains_key("profile") => Some("profiles of its own"),
        RelayProgram::Longhaul | RelayProgram::Haproxy => None,
        RelayProgram::Dante | RelayProgram::Squid => Some("a program that iperf3 cannot use"),
    }
}
