// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--verify-connect`: holds a client's SYN while the upstream leg is opened. Then the client gets
//! the answer that the destination gave.

use crate::{
    config::listener::Kind,
    faults::fault::Fault,
    listeners::listener::Listener,
    peers::{current::Setup, pool::PeerPools},
    relay::{ACCEPT_TIME, Phase, Relay},
    route::{
        Route,
        local::{LocalAccess, Origin},
        request::Request,
        upstream_leg::UpstreamLeg,
    },
};
use longhaul_admission::accounts::ClientNetwork;
use longhaul_interception::{
    flow::Flow,
    held::{Arrival, Decision, HeldSyns, PENDING_MAX},
};
use longhaul_linux::netfilter::marks::Marks;
use longhaul_linux::netfilter::queue::{AsyncQueue, Queue, QueuedPacket, Verdict};
use longhaul_linux::socket::dscp;
use longhaul_protocol::destination::Destination;
use longhaul_protocol::failure::Failure;
use std::{
    io,
    net::IpAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    select,
    sync::mpsc::{Sender, channel, error::SendError},
    task::yield_now,
    time::{MissedTickBehavior, interval, sleep},
};

/// Length of a listener's kernel queue in packets: the held SYNs, and as many that wait for a
/// decision.
const QUEUE_LEN: u32 = 2 * PENDING_MAX as u32;

/// Maximum SYNs that are handled before the results of connects are processed. During a flood the
/// queue is never empty.
const SYNS_PER_BATCH: usize = 64;

/// Interval of the search for upstream legs that no client has claimed.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(200);

/// Pause of this thread after which held SYNs are stale. The interception lease may have expired,
/// and clients may have connected directly. An answer to an older SYN would then connect one client
/// to two endpoints.
const STALE_AFTER: Duration = Duration::from_millis(800);

/// Number of queue numbers that are tried, upwards from the listener's port.
const QUEUE_NUMBERS_MAX: u16 = 16;

/// Verifier of one listener's SYNs, before its thread starts.
pub(crate) struct Verifier {
    listener: Arc<Listener>,
    queue: Queue,
}

impl Verifier {
    /// Opens a verifier: binds a kernel queue for the SYNs of the listener.
    ///
    /// # Errors
    ///
    /// No queue number is free, CAP_NET_ADMIN is missing, or nfnetlink_queue is missing.
    pub(crate) fn open(listener: Arc<Listener>) -> anyhow::Result<Self> {
        let port = listener.address.port();
        let mut outcome = Err(io::Error::other("no number tried"));
        for number in (0..QUEUE_NUMBERS_MAX).map(|n| port.wrapping_add(n)) {
            outcome = Queue::bind(number, QUEUE_LEN, listener.config().direct_fallback);
            if outcome.is_ok() {
                break;
            }
        }
        let queue = outcome.map_err(|error| {
            longhaul_command::exit::Refusal::unsupported(format!(
                "--verify-connect: NFQUEUE: {error} (it needs CAP_NET_ADMIN and nfnetlink_queue)"
            ))
        })?;
        Ok(Self { listener, queue })
    }

    /// Returns the listener.
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Returns the number of the kernel queue.
    pub(crate) fn queue(&self) -> u16 {
        self.queue.number()
    }

    /// Runs on its own thread until the relay stops. Sends heartbeats as thread number `thread`.
    pub(crate) fn run(self, relay: &Arc<Relay>, thread: usize) -> io::Result<()> {
        let runtime = longhaul_command::event_loop::current_thread()?;
        runtime.block_on(async {
            tokio::spawn(relay.heartbeats.clone().send(thread));
            self.serve(relay).await?;
            relay.lifecycle.wait_for(Phase::Stop).await;
            Ok(())
        })
    }

    /// Holds SYNs until the relay drains.
    async fn serve(self, relay: &Arc<Relay>) -> io::Result<()> {
        let (outcome_sender, mut outcomes) = channel(PENDING_MAX);
        let queue = AsyncQueue::new(self.queue)?;
        let mut holder = SynHolder {
            relay: relay.clone(),
            marks: Marks::of(self.listener.address.port()),
            listener: self.listener,
            held: HeldSyns::default(),
            stale_count: 0,
            outcome_sender,
        };
        let mut ticks = interval(EXPIRY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_wakeup, mut is_empty) = (Instant::now(), true);
        let mut draining = pin!(relay.lifecycle.wait_for(Phase::Drain));
        loop {
            let mut outcome = None;
            select! {
                () = &mut draining => break,
                ready = queue.readable(), if is_empty => ready?,
                () = yield_now(), if !is_empty => {}
                result = outcomes.recv() => outcome = result,
                _ = ticks.tick() => holder.listener.preconnected.expire(),
            }
            if std::mem::replace(&mut last_wakeup, Instant::now()).elapsed() > STALE_AFTER {
                holder.drop_all(queue.queue());
            }
            while let Some((flow, result)) = outcome {
                holder.answer_syn(queue.queue(), flow, result);
                outcome = outcomes.try_recv().ok();
            }
            is_empty = holder.handle_queue(queue.queue())?;
        }
        holder.drop_all(queue.queue());
        // Downstream legs of accepted SYNs may be in the accept queue.
        sleep(ACCEPT_TIME).await;
        holder.listener.preconnected.clear();
        Ok(())
    }
}

/// Result of opening an upstream leg.
type Outcome = Result<UpstreamLeg, Fault>;

struct SynHolder {
    relay: Arc<Relay>,
    listener: Arc<Listener>,
    marks: Marks,
    /// SYNs whose upstream legs are being opened.
    held: HeldSyns,
    /// Number of packets at the head of the queue that may have arrived before the last pause of
    /// this thread.
    stale_count: u32,
    outcome_sender: Sender<(Flow, Outcome)>,
}

impl SynHolder {
    /// Handles the packets in the queue, [`SYNS_PER_BATCH`] at most. Returns whether the queue is
    /// empty.
    fn handle_queue(&mut self, queue: &Queue) -> io::Result<bool> {
        for _ in 0..SYNS_PER_BATCH {
            match queue.receive() {
                Ok(packets) => packets.iter().for_each(|queued| match self.stale_count {
                    0 => self.handle_syn(queue, queued),
                    _ => {
                        self.stale_count -= 1;
                        set_verdict(queue, queued.id, Verdict::Drop);
                    }
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stale_count = 0;
                    return Ok(true);
                }
                // The socket's buffer overflowed. The kernel has accepted the packets that did not
                // fit, or dropped them without `direct_fallback`.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Handles one SYN. TCP retransmits an unanswered SYN; retransmissions of a held SYN are
    /// dropped.
    fn handle_syn(&mut self, queue: &Queue, queued: &QueuedPacket) {
        let drop = || set_verdict(queue, queued.id, Verdict::Drop);
        let Some(flow) = Flow::of_packet(&queued.packet) else {
            return drop();
        };
        if self.listener.preconnected.has(flow) {
            return set_verdict(queue, queued.id, self.accept_verdict());
        }
        if self.is_denied(flow) {
            self.listener.counters.count_failure(Failure::NotAllowed);
            return set_verdict(
                queue,
                queued.id,
                self.verdict_for(&Failure::NotAllowed.into()),
            );
        }
        match self.decide(flow, queued) {
            Decision::Hold => self.spawn_open(flow, dscp(&queued.packet).unwrap_or(0)),
            Decision::Drop => drop(),
            Decision::BypassAgain => self.pass_through(queue, queued),
            Decision::BypassForClientBound => {
                self.count_bypass(Some(flow.client().ip()));
                self.pass_through(queue, queued);
            }
            Decision::BypassForTotalBound => {
                self.count_bypass(None);
                self.pass_through(queue, queued);
            }
        }
    }

    fn is_denied(&self, flow: Flow) -> bool {
        let listener = self.listener.config();
        let client = flow.client().ip();
        let mut denied = listener.deny_from.iter();
        denied.any(|network| network.contains(client))
    }

    fn decide(&mut self, flow: Flow, queued: &QueuedPacket) -> Decision {
        let (legs_waiting, client_legs_waiting) =
            self.listener.preconnected.counts(flow.client().ip());
        // Each SYN may become a connection, so it takes a part of the budget of descriptors.
        let free_permits = self.relay.connection_permits.available_permits();
        let left = free_permits.saturating_sub(1 + legs_waiting + self.held.count());
        let client = ClientNetwork::new(flow.client().ip(), false);
        let client_max = Relay::connections_max(&self.relay.config(), client, left);
        let open = self.relay.accounts.connections(client);
        let arrival = Arrival {
            flow,
            is_local: queued.device == LOOPBACK_INDEX,
            may_bypass: queued.device != LOOPBACK_INDEX && self.listener.config().direct_fallback,
            legs_waiting,
            client_legs_waiting,
            client_connections_left: client_max.saturating_sub(open),
            connections_left: free_permits,
        };
        self.held.admit(arrival, queued.id, Instant::now())
    }

    /// Accepts a packet unchanged: the client connects directly.
    fn pass_through(&self, queue: &Queue, queued: &QueuedPacket) {
        set_verdict(queue, queued.id, Verdict::Accept);
    }

    /// Counts a direct connection, and logs at intervals that `client` connects directly, or that
    /// all clients do (`None`).
    fn count_bypass(&self, client: Option<IpAddr>) {
        self.listener.counters.count_bypass();
        self.listener
            .warnings
            .log_bypass(&self.listener.name(), client);
    }

    fn spawn_open(&self, flow: Flow, dscp: u8) {
        let (relay, listener) = (self.relay.clone(), self.listener.clone());
        tokio::spawn(open_and_send_outcome(
            relay,
            listener,
            flow,
            dscp,
            self.outcome_sender.clone(),
        ));
    }

    /// Gives the client the answer of the destination.
    fn answer_syn(&mut self, queue: &Queue, flow: Flow, outcome: Outcome) {
        let id = self.held.remove(flow);
        let verdict = match outcome {
            // The SYN was dropped while the leg was opened.
            Ok(upstream) if id.is_none() => return upstream.leg.transport().reset_on_close(),
            Ok(upstream) => {
                self.listener.preconnected.insert(flow, upstream);
                self.accept_verdict()
            }
            Err(fault) => {
                self.listener.counters.count_failure(fault.failure);
                self.verdict_for(&fault)
            }
        };
        if let Some(id) = id {
            set_verdict(queue, id, verdict);
        }
    }

    fn accept_verdict(&self) -> Verdict {
        Verdict::Mark(self.marks.accepted())
    }

    /// Returns the verdict for a failed connect. After a timeout the SYN is dropped, so that the
    /// client times out too.
    fn verdict_for(&self, fault: &Fault) -> Verdict {
        let mark = match fault.failure {
            Failure::TimedOut | Failure::Exhausted => return Verdict::Drop,
            // To the client, an unreachable relay is an unreachable network.
            Failure::Refused | Failure::Reset if fault.is_at_relay() => {
                self.marks.network_unreachable()
            }
            Failure::Refused | Failure::Reset | Failure::NotAllowed => self.marks.refused(),
            Failure::NetworkUnreachable => self.marks.network_unreachable(),
            Failure::Prohibited => self.marks.prohibited(),
            _ => self.marks.host_unreachable(),
        };
        Verdict::Mark(mark)
    }

    fn drop_all(&mut self, queue: &Queue) {
        self.stale_count = QUEUE_LEN;
        for id in self.held.drain() {
            set_verdict(queue, id, Verdict::Drop);
        }
    }
}

/// Interface index of `lo` in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Gives the verdict on a packet. An error means that the kernel no longer holds the packet.
fn set_verdict(queue: &Queue, id: u32, verdict: Verdict) {
    let _ = queue.set_verdict(id, verdict);
}

async fn open_and_send_outcome(
    relay: Arc<Relay>,
    listener: Arc<Listener>,
    flow: Flow,
    dscp: u8,
    outcome_sender: Sender<(Flow, Outcome)>,
) {
    let outcome = open_upstream_leg(&relay, &listener, flow, dscp).await;
    // The receiver is closed when the relay drains.
    if let Err(SendError((_, Ok(upstream)))) = outcome_sender.send((flow, outcome)).await {
        upstream.leg.transport().reset_on_close();
    }
}

/// Opens the upstream leg as the client's session would.
async fn open_upstream_leg(relay: &Relay, listener: &Listener, flow: Flow, dscp: u8) -> Outcome {
    relay.memory.wait_for_room(flow.client().ip()).await;
    let (listener_config, Setup { config, peers }) = (listener.config(), relay.setup());
    let (client, to) = (flow.client(), flow.destination());
    let keep_source = matches!(
        listener_config.kind,
        Kind::Transparent { keep_source: true }
    );
    let origin = Origin::Addresses(&listener_config, [client; 2]);
    let route = Route {
        config: &config,
        peers: &peers,
        // Pooled connections belong to the workers.
        peer_pools: &PeerPools::default(),
        listener: &listener_config.name,
        client: client.ip(),
        // The destination is an address: no name is looked up.
        lookup_quota: None,
        direct_fallback: listener_config.direct_fallback,
        local: LocalAccess::new(origin, config.allow_local, relay.listeners.addresses()),
    };
    let request = Request {
        source: keep_source.then_some(client),
        may_stripe: true,
        dscp,
        ..Request::to(Destination::from_ip(to.ip(), to.port()), Vec::new())
    };
    let opened = route.open(&request).await;
    if opened.as_ref().is_err_and(Fault::is_own_refusal) {
        let name = &listener_config.name;
        let warnings = &listener.warnings;
        warnings.log_refused_destination(name, client.ip(), &request.destination);
    }
    let mut upstream = opened?;
    loop {
        let Err(fault) = upstream.answer().await else {
            return Ok(upstream);
        };
        if !route.may_repeat(&upstream, &request).await {
            return Err(fault);
        }
        upstream = route.open(&request).await?;
    }
}
