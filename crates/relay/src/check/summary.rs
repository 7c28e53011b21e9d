// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a configuration for `--check-config`: values for `--json`, and the same as text.

use super::windows::{WindowSummary, autotuning_max};
use crate::config::{
    Config,
    file::{File, Location},
    listener::{Kind, ListenerConfig},
    location::Finding,
    peer::PeerConfig,
    policy::{Chain, RouteTarget, Rule},
    settings::Transport,
};
use longhaul_admission::{
    descriptors::{DESCRIPTOR_LIMIT_TOO_LOW, DescriptorBudget, DescriptorDemand},
    memory::{self, Basis},
};
use longhaul_units::{Bytes, Time};
use serde::Serialize;
use std::{
    fmt::{self, Display},
    net::SocketAddr,
};

/// Summary of a configuration.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    listeners: Vec<ListenerSummary>,
    /// The admin endpoint.
    admin: Option<SocketAddr>,
    health: Option<SocketAddr>,
    peers: Vec<PeerSummary>,
    /// Whether clients from other hosts may reach this host's own addresses.
    allow_local: bool,
    /// Routes in the order of evaluation; the last is the default.
    routes: Vec<RouteSummary>,
    limits: LimitSummary,
    memory: MemorySummary,
    windows: WindowSummary,
    descriptors: DescriptorSummary,
    /// Probable mistakes.
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Warning {
    /// Location in the file; `None` if it comes from a flag.
    location: Option<Location>,
    text: String,
}

#[derive(Debug, Serialize)]
struct ListenerSummary {
    name: String,
    kind: String,
    address: SocketAddr,
    /// Clients and restrictions, as text.
    clients: String,
    tls: bool,
    transport: Transport,
    profile: String,
}

#[derive(Debug, Serialize)]
struct PeerSummary {
    name: String,
    address: String,
    tls: bool,
    transport: Transport,
    /// Idle connections that each worker keeps open.
    pool: usize,
    profile: String,
}

#[derive(Debug, Serialize)]
struct RouteSummary {
    /// Conditions, as text.
    #[serde(rename = "match")]
    conditions: String,
    /// Chains of peers, or `refused`, as text.
    action: String,
}

#[derive(Debug, Serialize)]
struct LimitSummary {
    connections: u32,
    workers: usize,
    connect_timeout_s: f64,
    handshake_timeout_s: f64,
    http_idle_timeout_s: f64,
    response_timeout_s: f64,
    stall_timeout_s: f64,
    /// `None` if idle tunnels are never closed.
    tunnel_idle_timeout_s: Option<f64>,
    grace_s: f64,
    /// Limit for one client; `None` is three for each connection that is left for others.
    connections_per_client: Option<usize>,
    lookups_per_client: usize,
}

/// Memory in the worst case, in bytes: every buffer is full.
#[derive(Debug, Serialize)]
struct MemorySummary {
    pipes_max: usize,
    pipe_bytes: usize,
    pipes_bytes_max: u64,
    sockets_max: u64,
    /// Sum of the largest values of net.ipv4.tcp_rmem and tcp_wmem; `None` if they can't be read.
    socket_bytes_max: Option<u64>,
    sockets_bytes_max: Option<u64>,
    /// Budget above which new connections wait; `None` is unlimited.
    budget_bytes: Option<u64>,
    budget_is_default: bool,
    budget_basis: Option<Basis>,
}

#[derive(Debug, Serialize)]
struct DescriptorSummary {
    /// Descriptors for all connections while none moves bytes.
    needed_idle: usize,
    /// Descriptors for all connections while all move bytes both ways.
    needed_busy: usize,
    /// Soft limit of RLIMIT_NOFILE; `None` is unlimited.
    soft_limit: Option<u64>,
    hard_limit: Option<u64>,
    /// Connections that the hard limit allows; the relay raises the soft limit to it.
    connections: usize,
    pipes_per_worker: usize,
}

impl Summary {
    pub(crate) fn new(config: &Config) -> Self {
        let descriptors = DescriptorSummary::new(&config.descriptor_demand());
        Self {
            listeners: config.listeners.iter().map(ListenerSummary::new).collect(),
            admin: config.admin,
            health: config.health,
            peers: config.peers.values().map(|p| PeerSummary::new(p)).collect(),
            allow_local: config.allow_local,
            routes: routes(config),
            limits: LimitSummary::new(config),
            memory: MemorySummary::new(config, &descriptors),
            windows: WindowSummary::new(),
            descriptors,
            warnings: Vec::new(),
        }
    }

    /// Adds a warning, with its location if it comes from `file`.
    pub(crate) fn add_warning(&mut self, finding: &Finding, file: Option<&File>) {
        let location = |file: &File| file.location(&finding.table, finding.part.as_ref());
        let location = file.and_then(location);
        let text = finding.text.clone();
        self.warnings.push(Warning { location, text });
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) => write!(f, "{location}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl ListenerSummary {
    fn new(listener: &ListenerConfig) -> Self {
        Self {
            name: listener.name.clone(),
            kind: listener.kind.to_string(),
            address: listener.address,
            clients: describe_clients(listener),
            tls: listener.tls.is_some(),
            transport: listener.transport,
            profile: listener.profile.name.clone(),
        }
    }
}

/// Clients, restrictions and rate limits, as text.
fn describe_clients(listener: &ListenerConfig) -> String {
    let mut words = vec![allowed_clients(listener)];
    if !listener.deny_from.is_empty() {
        words.push(format!("not {}", list(&listener.deny_from)));
    }
    if listener.users.is_some() {
        words.push("with user and password".to_owned());
    }
    if listener.accept_proxy {
        words.push("as named by a PROXY header".to_owned());
    }
    match &listener.kind {
        Kind::Forward(destination) => words.push(format!("to {destination}")),
        Kind::Transparent { keep_source: true } => words.push("client addresses kept".to_owned()),
        Kind::Transparent { .. } if listener.direct_fallback => {
            words.push("directly while all peers of a route are down".to_owned());
        }
        _ => {}
    }
    if let Some(rate) = listener.rate {
        words.push(format!("{rate} in total"));
    }
    if let Some(rate) = listener.rate_per_client {
        words.push(format!("{rate} per client"));
    }
    words.join(", ")
}

fn allowed_clients(listener: &ListenerConfig) -> String {
    match (&listener.kind, &listener.intercept) {
        (Kind::Transparent { .. }, Some(intercept)) => {
            let origin = if intercept.local {
                "forwarded and own"
            } else {
                "forwarded"
            };
            let verification = if intercept.verify {
                ", held until answered"
            } else {
                ""
            };
            let targets = list(&intercept.targets);
            let exceptions = match &intercept.bypass[..] {
                [] => String::new(),
                bypass => format!(" but {}", list(bypass)),
            };
            format!("{origin} connections to {targets}{exceptions}{verification}")
        }
        (Kind::Transparent { .. }, None) => "whatever is diverted to it".to_owned(),
        _ if listener.allow_from.is_empty() => "this machine only".to_owned(),
        _ => format!("this machine and {}", list(&listener.allow_from)),
    }
}

impl PeerSummary {
    fn new(peer: &PeerConfig) -> Self {
        Self {
            name: peer.name.clone(),
            address: peer.destination.to_string(),
            tls: peer.tls.is_some(),
            transport: peer.transport,
            pool: peer.pool,
            profile: peer.profile.name.clone(),
        }
    }
}

fn routes(config: &Config) -> Vec<RouteSummary> {
    let default_route = RouteSummary {
        conditions: "everything else".to_owned(),
        action: describe_target(Some(&config.policy.default_target)),
    };
    let rules = config.policy.rules.iter().map(RouteSummary::new);
    rules.chain([default_route]).collect()
}

impl RouteSummary {
    fn new(rule: &Rule) -> Self {
        let conditions = [
            condition("through listener", &rule.listeners),
            condition("from", &rule.from),
            condition("to", &rule.to),
            condition("port", &rule.ports),
        ];
        let conditions: Vec<_> = conditions.into_iter().flatten().collect();
        let conditions = if conditions.is_empty() {
            "everything".to_owned()
        } else {
            conditions.join(", ")
        };
        let action = describe_target(rule.target.as_ref());
        Self { conditions, action }
    }
}

fn condition<T: Display>(word: &str, values: &[T]) -> Option<String> {
    let words: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| format!("{word} {}", words.join(" or ")))
}

fn describe_target(target: Option<&RouteTarget>) -> String {
    let Some(target) = target else {
        return "refused".to_owned();
    };
    let chains = target
        .chains
        .iter()
        .map(|chain| describe_chain(chain, target));
    chains.collect::<Vec<_>>().join(", else ")
}

fn describe_chain(chain: &Chain, target: &RouteTarget) -> String {
    let names: Vec<_> = chain.iter().map(|peer| peer.name.as_str()).collect();
    if names.is_empty() {
        format!("directly (profile {})", target.profile.name)
    } else {
        format!("through {}", names.join(" and "))
    }
}

impl LimitSummary {
    fn new(config: &Config) -> Self {
        let limits = &config.limits;
        Self {
            connections: limits.connections_max,
            workers: limits.workers,
            connect_timeout_s: limits.connect_timeout.as_secs_f64(),
            handshake_timeout_s: limits.handshake_timeout.as_secs_f64(),
            http_idle_timeout_s: limits.http_idle_timeout.as_secs_f64(),
            response_timeout_s: limits.response_timeout.as_secs_f64(),
            stall_timeout_s: limits.stall_timeout.as_secs_f64(),
            tunnel_idle_timeout_s: limits.tunnel_idle_timeout.map(|time| time.as_secs_f64()),
            grace_s: limits.grace.as_secs_f64(),
            connections_per_client: limits.connections_per_client,
            lookups_per_client: limits.lookups_per_client,
        }
    }
}

impl MemorySummary {
    fn new(config: &Config, descriptors: &DescriptorSummary) -> Self {
        let pipes_max = descriptors.pipes_per_worker * config.limits.workers;
        let sockets = config.descriptor_demand().per_connection();
        let sockets_max = (sockets * descriptors.connections) as u64;
        let socket_bytes_max =
            autotuning_max("net.ipv4.tcp_rmem").zip(autotuning_max("net.ipv4.tcp_wmem"));
        let socket_bytes_max = socket_bytes_max.map(|(read, write)| read + write);
        let budget = memory::budget(config.limits.memory);
        Self {
            pipes_max,
            pipe_bytes: config.pool.pipe_bytes,
            pipes_bytes_max: pipes_max as u64 * config.pool.pipe_bytes as u64,
            sockets_max,
            socket_bytes_max,
            sockets_bytes_max: socket_bytes_max.map(|bytes| bytes.saturating_mul(sockets_max)),
            budget_bytes: budget.map(|budget| budget.bytes),
            budget_is_default: config.limits.memory.is_none(),
            budget_basis: budget.map(|budget| budget.basis),
        }
    }
}

impl DescriptorSummary {
    fn new(demand: &DescriptorDemand) -> Self {
        let (soft_limit, hard_limit) = longhaul_linux::descriptors::limits();
        let budget = DescriptorBudget::new(hard_limit, demand);
        Self {
            needed_idle: demand.idle(),
            needed_busy: demand.busy(),
            soft_limit,
            hard_limit,
            connections: budget.map_or(0, |budget| budget.connections),
            pipes_per_worker: budget.map_or(0, |budget| budget.pipes_per_worker),
        }
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "listeners", &self.listeners)?;
        if let Some(address) = self.admin {
            writeln!(f, "  admin {address}, for every user of this machine")?;
        }
        if let Some(address) = self.health {
            writeln!(f, "  health {address}, for everyone")?;
        }
        section(f, "peers", &self.peers)?;
        writeln!(f, "routes")?;
        let (access, key) = if self.allow_local {
            ("as the routes say", "true")
        } else {
            ("refused", "false")
        };
        writeln!(
            f,
            "  to this host's own addresses, from elsewhere: {access} (allow_local = {key})"
        )?;
        for (n, route) in self.routes.iter().enumerate() {
            writeln!(f, "  {}  {route}", n + 1)?;
        }
        write!(f, "limits\n{}{}", self.limits, self.memory)?;
        write!(f, "{}", self.windows)?;
        write!(f, "descriptors\n{}", self.descriptors)?;
        section(f, "warnings", &self.warnings)?;
        self.write_verdict(f)
    }
}

impl Summary {
    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (room, wanted) = (self.descriptors.connections, self.limits.connections);
        match room {
            0 => writeln!(f, "{DESCRIPTOR_LIMIT_TOO_LOW}"),
            _ if room < wanted as usize => writeln!(
                f,
                "RLIMIT_NOFILE has room for {room} connections at once, not {wanted}: others wait"
            ),
            _ => writeln!(f, "the configuration is valid"),
        }
    }
}

fn section<T: Display>(f: &mut fmt::Formatter<'_>, title: &str, lines: &[T]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}

fn list<T: Display>(values: &[T]) -> String {
    let words: Vec<_> = values.iter().map(ToString::to_string).collect();
    words.join(", ")
}

impl Display for ListenerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, .. } = self;
        let tls = match (self.transport, self.tls) {
            (Transport::Udt, _) => " over TLS over UDT",
            (Transport::Tcp, true) => " over TLS",
            (Transport::Tcp, false) => "",
        };
        let (address, clients, profile) = (self.address, &self.clients, &self.profile);
        let name = if *name == address.to_string() {
            ""
        } else {
            name
        };
        let separator = if name.is_empty() { "" } else { ": " };
        write!(
            f,
            "{name}{separator}{kind} {address}{tls}, for {clients} (profile {profile})"
        )
    }
}

impl Display for PeerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = match (self.transport, self.tls) {
            (Transport::Udt, _) => "TLS over UDT",
            (Transport::Tcp, true) => "TLS",
            (Transport::Tcp, false) => "plain",
        };
        let Self {
            name,
            address,
            pool,
            profile,
            ..
        } = self;
        write!(
            f,
            "{name}: {address}, {tls}, pool of {pool} per worker (profile {profile})"
        )
    }
}

impl Display for RouteSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.conditions, self.action)
    }
}

impl Display for LimitSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connections,
            workers,
            ..
        } = self;
        writeln!(f, "  connections  {connections} at once, {workers} workers")?;
        let connections = match self.connections_per_client {
            Some(connections) => connections.to_string(),
            None => "three quarters of the".to_owned(),
        };
        let lookups = self.lookups_per_client;
        writeln!(
            f,
            "  a client     {connections} connections at most, {lookups} lookups of names"
        )?;
        let [connect, handshake, idle, response, stall, grace] = [
            self.connect_timeout_s,
            self.handshake_timeout_s,
            self.http_idle_timeout_s,
            self.response_timeout_s,
            self.stall_timeout_s,
            self.grace_s,
        ]
        .map(Time::from_secs_f64);
        writeln!(
            f,
            "  times        connect {connect}, handshake {handshake}, idle HTTP client {idle}, response {response}, stall {stall}, grace {grace}"
        )?;
        match self.tunnel_idle_timeout_s.map(Time::from_secs_f64) {
            Some(time) => writeln!(f, "  tunnels      close after {time} without data"),
            None => writeln!(f, "  tunnels      are never closed for inactivity"),
        }
    }
}

impl Display for MemorySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipes = Bytes::new(self.pipes_bytes_max);
        let pipe = Bytes::new(self.pipe_bytes as u64).exact();
        writeln!(
            f,
            "  pipes        {} of {pipe}, {pipes} if all are full",
            self.pipes_max
        )?;
        if let (Some(each), Some(all)) = (self.socket_bytes_max, self.sockets_bytes_max) {
            let (each, all) = (Bytes::new(each), Bytes::new(all));
            writeln!(
                f,
                "  sockets      {} of up to {each}, {all} if all are full",
                self.sockets_max
            )?;
        }
        self.write_budget(f)
    }
}

impl MemorySummary {
    fn write_budget(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((budget, basis)) = self.budget_bytes.zip(self.budget_basis) else {
            return writeln!(
                f,
                "  memory       no limit: set one with limits.memory (--memory)"
            );
        };
        let (budget, why) = (Bytes::new(budget), describe_basis(basis));
        writeln!(
            f,
            "  memory       at {budget} in sockets, new connections wait{why}"
        )
    }
}

fn describe_basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Configured => "",
        Basis::TcpMem => " (half of net.ipv4.tcp_mem's second value)",
        Basis::Cgroup => " (a quarter of the control group's memory; limits.memory sets another)",
        Basis::Machine => {
            " (1/32 of the machine's memory, since net.ipv4.tcp_mem can't be read here; \
             limits.memory sets another)"
        }
    }
}

impl Display for DescriptorSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |n| n.to_string());
        let (soft, hard) = (limit(self.soft_limit), limit(self.hard_limit));
        let Self {
            needed_idle,
            needed_busy,
            connections,
            pipes_per_worker,
            ..
        } = self;
        writeln!(
            f,
            "  needed       {needed_idle} when idle, {needed_busy} when all move bytes"
        )?;
        writeln!(f, "  RLIMIT_NOFILE {soft}, raised at the start to {hard}")?;
        writeln!(
            f,
            "  room for     {connections} connections and {pipes_per_worker} pipes per worker"
        )
    }
}
