// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes of simulated flows: the links of each leg between relays, and the bottleneck of a leg
//! that all flows share.

use crate::{
    network::{Topology, link},
    scenario::{
        Flow, LinkKind, Scenario,
        fault::{Checked, Fault, at, ensure},
    },
};
use longhaul_netem::{LinkConfig, Rate, Schedule, TrainLine, loss::Loss};
use longhaul_units::{BitRate, Time};

/// Link in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) link: usize,
    /// Whether data goes from its left end to its right end.
    forward: bool,
}

/// Route of one flow.
#[derive(Debug)]
pub(super) struct Route {
    /// Hosts that terminate a connection, from the source to the destination.
    pub(super) ends: Vec<String>,
    /// Relaying hosts on the route.
    pub(super) relays: Vec<String>,
    /// Links of each leg.
    stretches: Vec<Vec<Hop>>,
}

impl Route {
    pub(super) fn of(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Self {
        let path = topology.path(&flow.from, &flow.to).unwrap_or_default();
        let mut route = Self {
            ends: vec![flow.from.clone()],
            relays: Vec::new(),
            stretches: vec![Vec::new()],
        };
        for pair in path.windows(2) {
            route.go(scenario, topology, pair);
            if pair[1] != flow.to && scenario.relays_on(&pair[1]) {
                route.ends.push(pair[1].clone());
                route.relays.push(pair[1].clone());
                route.stretches.push(Vec::new());
            }
        }
        route.ends.push(flow.to.clone());
        route.leave_out_plain_wires(scenario);
        route
    }

    /// Removes legs that consist of veth links only. They never limit a flow: the relay takes the
    /// place of the host beyond.
    fn leave_out_plain_wires(&mut self, scenario: &Scenario) {
        let plain = |hop: &Hop| scenario.links[hop.link].kind == LinkKind::Veth;
        for leg in (0..self.stretches.len()).rev() {
            let last = leg + 1 == self.stretches.len();
            if self.stretches.len() > 1 && self.stretches[leg].iter().all(plain) {
                self.stretches.remove(leg);
                self.ends.remove(if last { leg + 1 } else { leg });
            }
        }
    }

    fn go(&mut self, scenario: &Scenario, topology: &Topology, pair: &[String]) {
        if let (Some(link), Some(stretch)) = (
            topology.between(&pair[0], &pair[1]),
            self.stretches.last_mut(),
        ) {
            let forward = scenario.links[link].between[0] == pair[0];
            stretch.push(Hop { link, forward });
        }
    }
}

/// Model of a link for data (forth) and for ACKs (back).
#[derive(Debug, Clone, Default)]
pub(super) struct Wire {
    pub(super) forth: LinkConfig,
    pub(super) forth_changes: Schedule,
    pub(super) back: LinkConfig,
    pub(super) back_changes: Schedule,
}

impl Wire {
    fn of(scenario: &Scenario, topology: &Topology, hop: Hop) -> Result<Self, String> {
        let link = &scenario.links[hop.link];
        if link.kind == LinkKind::Veth {
            return Ok(Self::default());
        }
        let [left, right] = link::ways(link, &topology.wires[hop.link])?;
        let (forth, back) = if hop.forward {
            (left, right)
        } else {
            (right, left)
        };
        Ok(Self {
            forth: forth.0,
            forth_changes: forth.1,
            back: back.0,
            back_changes: back.1,
        })
    }

    pub(super) fn rate(&self) -> Option<BitRate> {
        self.forth.rate.mean()
    }

    pub(super) fn round_trip(&self) -> Time {
        self.forth.delay + self.back.delay
    }

    /// Describes a feature beyond delay, rate and loss; `None` without one.
    fn more_than_delay(&self) -> Option<&'static str> {
        let changes = [&self.forth_changes, &self.back_changes];
        if changes
            .iter()
            .any(|changes| changes.iter().next().is_some())
        {
            return Some("changes with time");
        }
        let shapes = [&self.forth, &self.back];
        let plain = |shape: &&LinkConfig| TrainLine::new((*shape).clone(), 0).is_ok();
        (!shapes.iter().all(plain)).then_some("jitter, queue rules or the like")
    }

    /// Adds the loss of another link, if this one has none in the same direction. The place of a
    /// loss on the path only matters for the queue that the lost packet did not enter.
    fn lose_as(&mut self, other: &Self) -> bool {
        let ways = [
            (&mut self.forth, &other.forth),
            (&mut self.back, &other.back),
        ];
        ways.into_iter().all(|(own, other)| {
            let free = other.loss == Loss::None || own.loss == Loss::None;
            if free && other.loss != Loss::None {
                own.loss = other.loss.clone();
            }
            free
        })
    }

    fn loses(&self) -> bool {
        [&self.forth, &self.back]
            .iter()
            .any(|shape| shape.loss != Loss::None)
    }

    /// Removes the rate limit of the ACK direction if it is at least a tenth of the data's rate.
    /// ACKs use a small part of such a rate: they only have a delay and need not be simulated one
    /// by one.
    pub(super) fn with_simple_way_back(mut self) -> Self {
        let wide = match (self.forth.rate.mean(), self.back.rate.mean()) {
            (Some(forth), Some(back)) => back.bits() >= forth.bits() / 10,
            _ => false,
        };
        if wide {
            self.back.rate = Rate::Unlimited;
        }
        self
    }
}

/// Leg that all flows share: its bottleneck link, and the additional round-trip time of each flow.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) link: usize,
    pub(super) wire: Wire,
    /// Additional round-trip time by flow.
    pub(super) extra_rtt: Vec<Time>,
}

impl Shared {
    /// Shared model of leg number `leg` of all routes.
    pub(super) fn of(
        scenario: &Scenario,
        topology: &Topology,
        routes: &[Route],
        leg: usize,
    ) -> Result<Self, Fault> {
        let stretches: Vec<&Vec<Hop>> = routes.iter().map(|route| &route.stretches[leg]).collect();
        let (hop, wire) = bottleneck(scenario, topology, &stretches)?.ok_or_else(|| {
            let ends = &routes[0].ends[leg..leg + 2];
            format!(
                "no emulated link with a rate is common to all flows, in the same direction, between {} and {}",
                ends[0], ends[1]
            )
        })?;
        let mut shared = wire.clone();
        let mut lossy = Vec::new();
        let mut extra = |stretch: &&Vec<Hop>| {
            let mut others = stretch.iter().filter(|other| **other != hop);
            others.try_fold(Time::ZERO, |sum, other| {
                let other_wire = Wire::of(scenario, topology, *other)?;
                beside(scenario, *other, &other_wire, hop, &wire)?;
                if other_wire.loses() && !lossy.contains(other) {
                    let common = stretches.iter().all(|stretch| stretch.contains(other));
                    if !(common && shared.lose_as(&other_wire)) {
                        return two_losses(scenario, *other, hop);
                    }
                    lossy.push(*other);
                }
                Ok::<_, Fault>(sum + other_wire.round_trip())
            })
        };
        let extra_rtt = stretches.iter().map(&mut extra).collect::<Result<_, _>>()?;
        Ok(Self {
            link: hop.link,
            wire: shared.with_simple_way_back(),
            extra_rtt,
        })
    }
}

/// Slowest link that all flows use; the first of equals.
fn bottleneck(
    scenario: &Scenario,
    topology: &Topology,
    stretches: &[&Vec<Hop>],
) -> Result<Option<(Hop, Wire)>, String> {
    let common = |hop: &&Hop| stretches.iter().all(|stretch| stretch.contains(hop));
    let mut slowest: Option<(Hop, Wire)> = None;
    for hop in stretches[0].iter().filter(common) {
        let wire = Wire::of(scenario, topology, *hop)?;
        let least = slowest.as_ref().and_then(|(_, wire)| wire.rate());
        let slower = wire
            .rate()
            .is_some_and(|rate| least.is_none_or(|least| rate < least));
        if slower {
            slowest = Some((*hop, wire));
        }
    }
    Ok(slowest)
}

fn two_losses<T>(scenario: &Scenario, hop: Hop, bottleneck: Hop) -> Result<T, Fault> {
    let problem = format!(
        "link {:?} has loss: beside the bottleneck {:?} one link may, if all flows go over it and the bottleneck has none",
        scenario.links[hop.link].name, scenario.links[bottleneck.link].name
    );
    at("links", at(hop.link, at("loss", Err(problem))))
}

/// Checks a link other than the bottleneck. It adds its delay; nothing may queue or be lost there.
fn beside(scenario: &Scenario, hop: Hop, wire: &Wire, bottleneck: Hop, slowest: &Wire) -> Checked {
    let name = &scenario.links[hop.link].name;
    let bottleneck = &scenario.links[bottleneck.link].name;
    let more = wire.more_than_delay();
    let simple = ensure(more.is_none(), || {
        let what = more.unwrap_or_default();
        format!("link {name:?} has {what}, which only the bottleneck {bottleneck:?} may have")
    });
    at("links", at(hop.link, simple))?;
    let faster = ensure(
        wire.rate().is_none() || wire.rate() >= slowest.rate(),
        || {
            format!(
                "link {name:?} is slower than {bottleneck:?}, the slowest that all flows share: data would queue at both"
            )
        },
    );
    at("links", at(hop.link, at("rate", faster)))
}
