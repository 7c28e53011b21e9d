// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes of simulated flows: the links of each leg between relays, and the bottleneck of a leg
//! that all flows share.

use crate::{
    network::{Topology, link},
    scenario::{
        Flow, LinkKind, Scenario,
        config_error::{CheckResult, ConfigError, ensure, locate_error},
    },
};
use longhaul_netem::{Rate, ScheduledConfig, TrainLine, loss::Loss};
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
    pub(super) endpoints: Vec<String>,
    /// Relaying hosts on the route.
    pub(super) relays: Vec<String>,
    /// Links of each leg.
    leg_hops: Vec<Vec<Hop>>,
}

impl Route {
    pub(super) fn of(scenario: &Scenario, topology: &Topology, flow: &Flow) -> Self {
        let path = topology.path(&flow.from, &flow.to).unwrap_or_default();
        let mut route = Self {
            endpoints: vec![flow.from.clone()],
            relays: Vec::new(),
            leg_hops: vec![Vec::new()],
        };
        for pair in path.windows(2) {
            route.push_hop(scenario, topology, pair);
            if pair[1] != flow.to && scenario.relays_on(&pair[1]) {
                route.endpoints.push(pair[1].clone());
                route.relays.push(pair[1].clone());
                route.leg_hops.push(Vec::new());
            }
        }
        route.endpoints.push(flow.to.clone());
        route.remove_veth_legs(scenario);
        route
    }

    /// Removes legs that consist of veth links only. They never limit a flow: the relay takes the
    /// place of the host beyond.
    fn remove_veth_legs(&mut self, scenario: &Scenario) {
        let is_veth = |hop: &Hop| scenario.links[hop.link].kind == LinkKind::Veth;
        for leg in (0..self.leg_hops.len()).rev() {
            let last = leg + 1 == self.leg_hops.len();
            if self.leg_hops.len() > 1 && self.leg_hops[leg].iter().all(is_veth) {
                self.leg_hops.remove(leg);
                self.endpoints.remove(if last { leg + 1 } else { leg });
            }
        }
    }

    fn push_hop(&mut self, scenario: &Scenario, topology: &Topology, pair: &[String]) {
        if let (Some(link), Some(hops)) = (
            topology.between(&pair[0], &pair[1]),
            self.leg_hops.last_mut(),
        ) {
            let forward = scenario.links[link].endpoints[0] == pair[0];
            hops.push(Hop { link, forward });
        }
    }
}

/// Model of a link: `forward` for data, `reverse` for ACKs.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkModel {
    pub(super) forward: ScheduledConfig,
    pub(super) reverse: ScheduledConfig,
}

impl LinkModel {
    fn of(scenario: &Scenario, hop: Hop) -> Result<Self, String> {
        let link = &scenario.links[hop.link];
        if link.kind == LinkKind::Veth {
            return Ok(Self::default());
        }
        let [left, right] = link::configs(link)?;
        let (forward, reverse) = if hop.forward {
            (left, right)
        } else {
            (right, left)
        };
        Ok(Self { forward, reverse })
    }

    pub(super) fn rate(&self) -> Option<BitRate> {
        self.forward.initial.rate.mean()
    }

    pub(super) fn round_trip(&self) -> Time {
        self.forward.initial.delay + self.reverse.initial.delay
    }

    /// Describes a feature beyond delay, rate and loss; `None` without one.
    fn unsupported_feature(&self) -> Option<&'static str> {
        let changes = [&self.forward.schedule, &self.reverse.schedule];
        if changes
            .iter()
            .any(|changes| changes.iter().next().is_some())
        {
            return Some("changes with time");
        }
        let mut link_configs = [&self.forward.initial, &self.reverse.initial].into_iter();
        link_configs.find_map(|link_config| {
            let unsupported = TrainLine::new(link_config.clone(), 0).err()?;
            Some(unsupported.0)
        })
    }

    /// Adds the loss of another link, if this one has none in the same direction. The place of a
    /// loss on the path only matters for the queue that the lost packet did not enter.
    fn add_loss_of(&mut self, other: &Self) -> bool {
        let directions = [
            (&mut self.forward.initial, &other.forward.initial),
            (&mut self.reverse.initial, &other.reverse.initial),
        ];
        directions.into_iter().all(|(own, other)| {
            let can_take_loss = other.loss == Loss::None || own.loss == Loss::None;
            if can_take_loss && other.loss != Loss::None {
                own.loss = other.loss.clone();
            }
            can_take_loss
        })
    }

    fn has_loss(&self) -> bool {
        [&self.forward.initial, &self.reverse.initial]
            .iter()
            .any(|link_config| link_config.loss != Loss::None)
    }

    /// Removes the rate limit of the ACK direction if it is at least a tenth of the data's rate.
    /// ACKs use a small part of such a rate: they only have a delay and need not be simulated one
    /// by one.
    pub(super) fn with_unlimited_acks(mut self) -> Self {
        let is_fast_enough = match (
            self.forward.initial.rate.mean(),
            self.reverse.initial.rate.mean(),
        ) {
            (Some(forward), Some(reverse)) => reverse.bits() >= forward.bits() / 10,
            _ => false,
        };
        if is_fast_enough {
            self.reverse.initial.rate = Rate::Unlimited;
        }
        self
    }
}

/// Leg that all flows share: its bottleneck link, and the additional round-trip time of each flow.
#[derive(Debug)]
pub(super) struct SharedLeg {
    pub(super) link: usize,
    pub(super) model: LinkModel,
    /// Additional round-trip time by flow.
    pub(super) extra_rtt: Vec<Time>,
}

impl SharedLeg {
    /// Shared model of leg number `leg` of all routes.
    pub(super) fn of(
        scenario: &Scenario,
        routes: &[Route],
        leg: usize,
    ) -> Result<Self, ConfigError> {
        let leg_hops: Vec<&Vec<Hop>> = routes.iter().map(|route| &route.leg_hops[leg]).collect();
        let (hop, model) = bottleneck(scenario, &leg_hops)?.ok_or_else(|| {
            let endpoints = &routes[0].endpoints[leg..leg + 2];
            format!(
                "no emulated link with a rate is common to all flows, in the same direction, between {} and {}",
                endpoints[0], endpoints[1]
            )
        })?;
        let mut shared = model.clone();
        let mut hops_with_loss = Vec::new();
        let mut extra = |hops: &&Vec<Hop>| {
            let mut others = hops.iter().filter(|other| **other != hop);
            others.try_fold(Time::ZERO, |sum, other| {
                let other_model = LinkModel::of(scenario, *other)?;
                check_other_link(scenario, *other, &other_model, hop, &model)?;
                if other_model.has_loss() && !hops_with_loss.contains(other) {
                    let common = leg_hops.iter().all(|hops| hops.contains(other));
                    if !(common && shared.add_loss_of(&other_model)) {
                        return refuse_second_loss(scenario, *other, hop);
                    }
                    hops_with_loss.push(*other);
                }
                Ok::<_, ConfigError>(sum + other_model.round_trip())
            })
        };
        let extra_rtt = leg_hops.iter().map(&mut extra).collect::<Result<_, _>>()?;
        Ok(Self {
            link: hop.link,
            model: shared.with_unlimited_acks(),
            extra_rtt,
        })
    }
}

/// Slowest link that all flows use; the first of equals.
fn bottleneck(
    scenario: &Scenario,
    leg_hops: &[&Vec<Hop>],
) -> Result<Option<(Hop, LinkModel)>, String> {
    let common = |hop: &&Hop| leg_hops.iter().all(|hops| hops.contains(hop));
    let mut slowest: Option<(Hop, LinkModel)> = None;
    for hop in leg_hops[0].iter().filter(common) {
        let model = LinkModel::of(scenario, *hop)?;
        let least = slowest.as_ref().and_then(|(_, model)| model.rate());
        let slower = model
            .rate()
            .is_some_and(|rate| least.is_none_or(|least| rate < least));
        if slower {
            slowest = Some((*hop, model));
        }
    }
    Ok(slowest)
}

fn refuse_second_loss<T>(scenario: &Scenario, hop: Hop, bottleneck: Hop) -> Result<T, ConfigError> {
    let problem = format!(
        "link {:?} has loss: beside the bottleneck {:?}, only one link may have loss, and only if all flows cross it and the bottleneck has no loss",
        scenario.links[hop.link].name, scenario.links[bottleneck.link].name
    );
    locate_error(
        "links",
        locate_error(hop.link, locate_error("loss", Err(problem))),
    )
}

/// Checks a link other than the bottleneck. It adds its delay; nothing may queue or be lost there.
fn check_other_link(
    scenario: &Scenario,
    hop: Hop,
    model: &LinkModel,
    bottleneck: Hop,
    slowest: &LinkModel,
) -> CheckResult {
    let name = &scenario.links[hop.link].name;
    let bottleneck = &scenario.links[bottleneck.link].name;
    let unsupported = model.unsupported_feature();
    let supported = ensure(unsupported.is_none(), || {
        let what = unsupported.unwrap_or_default();
        format!("link {name:?} has {what}, which only the bottleneck {bottleneck:?} may have")
    });
    locate_error("links", locate_error(hop.link, supported))?;
    let faster = ensure(
        model.rate().is_none() || model.rate() >= slowest.rate(),
        || {
            format!(
                "link {name:?} is slower than {bottleneck:?}, the slowest link that all flows share, so data would queue at both: give it at least that rate"
            )
        },
    );
    locate_error(
        "links",
        locate_error(hop.link, locate_error("rate", faster)),
    )
}
