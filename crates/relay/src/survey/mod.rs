// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at all open connections once a second, as long as somebody wants to know. It runs on the
//! supervisor's thread, never in a worker; what a worker adds is one look at a connection that ends.
//!
//! A look costs four system calls a connection, so that nobody pays who does not ask: without
//! `--admin` nothing is seen at all, and a minute after the last question the rounds stop.

mod book;
mod glimpse;

use crate::{
    Relay,
    config::settings::Mode,
    session::{Session, WayOut},
    survey::{
        book::{Book, Verdict},
        glimpse::{Glimpse, LegGlimpse},
    },
};
use jiff::Timestamp;
use longhaul_admin::record::{Connection, Group, LegGauges, LegGroup, LegState, LegSums, Snapshot};
use longhaul_linux::limiter::Limiter;
use longhaul_linux::tcp_info::TcpInfo;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::yield_now, time::sleep};

/// Time between two rounds; with more than 5,000 connections it grows, so that rounds take a few
/// hundredths of one core at the most.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_PER_CONNECTION: Duration = Duration::from_micros(200);
/// Between the first two rounds, of which only the second can say what goes on *now*. Long enough
/// for the kernel's stopwatch, which ticks in jiffies.
const FIRST_PERIOD: Duration = Duration::from_millis(200);
/// Rounds go on for this long after the last question.
const ATTENTION: Duration = Duration::from_secs(60);
/// Connections that are looked at before the supervisor's other tasks have their turn.
const LOOKS_PER_TURN: usize = 64;

/// What is known of the open connections.
#[derive(Debug)]
pub(crate) struct Survey {
    wanted: bool,
    book: Mutex<Book>,
    asked: watch::Sender<Option<Instant>>,
    latest: watch::Sender<Option<Latest>>,
}

#[derive(Debug, Clone)]
struct Latest {
    snapshot: Arc<Snapshot>,
    good_until: Instant,
}

impl Survey {
    /// One that sees nothing unless it is `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            book: Mutex::default(),
            asked: watch::Sender::new(None),
            latest: watch::Sender::new(None),
        }
    }

    /// All connections as they were at most some two seconds ago.
    pub(crate) async fn latest(&self) -> Arc<Snapshot> {
        let now = Instant::now();
        self.asked.send_replace(Some(now));
        let mut latest = self.latest.subscribe();
        let good = |l: &Option<Latest>| l.as_ref().is_some_and(|l| l.good_until > now);
        // An error would mean that the sender is gone, but `self` is the sender.
        let found = latest.wait_for(good).await.ok();
        let snapshot = found.and_then(|found| Some(found.as_ref()?.snapshot.clone()));
        snapshot.expect("it was waited for")
    }

    /// Counts a connection that ends; it is not looked at again.
    pub(super) fn see_last_of(&self, session: &Session) {
        if !self.wanted {
            return;
        }
        let glimpse = Glimpse::of(session, &session.last_way_out());
        let mut book = self.book();
        session.seen_last.store(true, Relaxed);
        book.note(glimpse);
        book.forget(session.number);
    }

    /// Counts the outgoing leg of now, if there is one, before another takes its place.
    pub(super) fn see_last_of_far(&self, session: &Session) {
        let way_out = session.last_way_out();
        if self.wanted && way_out.far.is_some() {
            self.look_at(session, &way_out);
        }
    }

    /// Rounds for ever, while there are questions.
    pub(super) async fn go_round(&self, relay: &Relay) {
        let mut asked = self.asked.subscribe();
        loop {
            // As above.
            let _ = asked.wait_for(is_recent).await;
            self.round(relay).await;
            sleep(FIRST_PERIOD).await;
            while is_recent(&self.asked.borrow()) {
                sleep(self.publish(relay).await).await;
            }
        }
    }

    /// A round for others to read. Returns the pause until the next.
    async fn publish(&self, relay: &Relay) -> Duration {
        let begin = Instant::now();
        let snapshot = self.round(relay).await;
        let connections = snapshot.connections.len() as u32;
        let pause = PERIOD.max(PERIOD_PER_CONNECTION * connections);
        self.latest.send_replace(Some(Latest {
            snapshot: snapshot.into(),
            good_until: begin + 2 * pause,
        }));
        pause
    }

    async fn round(&self, relay: &Relay) -> Snapshot {
        let time = Timestamp::now();
        let sessions = relay.sessions.all();
        // A connection that ends in the meantime must close at once.
        let sessions: Vec<_> = sessions.iter().map(Arc::downgrade).collect();
        let (mut connections, mut gauges) = (Vec::new(), BTreeMap::new());
        for (n, session) in sessions.into_iter().enumerate() {
            if n % LOOKS_PER_TURN == LOOKS_PER_TURN - 1 {
                yield_now().await;
            }
            let Some(session) = session.upgrade() else {
                continue;
            };
            let way_out = session.last_way_out();
            if let Some((glimpse, verdict)) = self.look_at(&session, &way_out) {
                gauge(&glimpse, &verdict, &mut gauges);
                connections.push(connection(&session, way_out, glimpse, &verdict));
            }
        }
        Snapshot {
            time,
            connections,
            legs: self.groups(relay, gauges),
        }
    }

    /// System calls first, then the lock.
    fn look_at(&self, session: &Session, way_out: &WayOut) -> Option<(Glimpse, Verdict)> {
        let glimpse = Glimpse::of(session, way_out);
        let mut book = self.book();
        let is_over = session.seen_last.load(Relaxed);
        (!is_over).then(|| (glimpse.clone(), book.note(glimpse)))
    }

    fn groups(&self, relay: &Relay, mut gauges: BTreeMap<Group, Gauge>) -> Vec<LegGroup> {
        let (listeners, _) = relay.doors.counts();
        let names: Vec<_> = listeners.into_iter().map(|l| l.name).collect();
        let sums = self.book().sums(&names);
        let group = |(group, sums): (Group, LegSums)| LegGroup {
            now: gauges.remove(&group).unwrap_or_default().finish(),
            group,
            sums,
        };
        sums.into_iter().map(group).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(asked: &Option<Instant>) -> bool {
    asked.is_some_and(|asked| asked.elapsed() < ATTENTION)
}

/// Sums over the open legs of a group.
#[derive(Debug, Default)]
struct Gauge {
    now: LegGauges,
    rtts: u64,
    rtt_sum_us: f64,
}

impl Gauge {
    fn add(&mut self, leg: &LegGlimpse, limited_by: Option<Limiter>) {
        let limiter = limited_by.map_or("unknown", Limiter::name);
        *self.now.limited_by.entry(limiter.to_owned()).or_default() += 1;
        self.now.buffered_bytes += leg.buffered_bytes;
        self.now.reading_paused += u64::from(leg.is_paused);
        leg.streams
            .iter()
            .for_each(|stream| self.add_stream(stream));
    }

    fn add_stream(&mut self, tcp: &TcpInfo) {
        self.now.streams_open += 1;
        self.now.delivery_rate_bytes_per_s += tcp.delivery_rate_bytes_per_s;
        // 0 and the largest number are before the first sample.
        if tcp.rtt_us > 0 {
            self.rtts += 1;
            self.rtt_sum_us += f64::from(tcp.rtt_us);
        }
        let smallest = self.now.rtt_min_us.unwrap_or(u32::MAX);
        let smallest = smallest.min(tcp.rtt_min_us);
        self.now.rtt_min_us = (smallest < u32::MAX).then_some(smallest);
    }

    fn finish(self) -> LegGauges {
        LegGauges {
            rtt_mean_us: (self.rtts > 0).then(|| self.rtt_sum_us / self.rtts as f64),
            ..self.now
        }
    }
}

fn gauge(glimpse: &Glimpse, verdict: &Verdict, gauges: &mut BTreeMap<Group, Gauge>) {
    let legs = [(&glimpse.near, verdict.near), (&glimpse.far, verdict.far)];
    for (leg, limited_by) in legs {
        if let Some(leg) = leg {
            let gauge = gauges.entry(leg.group.clone()).or_default();
            gauge.add(leg, limited_by);
        }
    }
}

fn connection(
    session: &Session,
    way_out: WayOut,
    glimpse: Glimpse,
    verdict: &Verdict,
) -> Connection {
    let state = |leg: Option<LegGlimpse>, limited_by| {
        leg.map(|leg| LegState {
            limited_by,
            reading_paused: leg.is_paused,
            reading_pauses: leg.pauses,
            buffered_bytes: leg.buffered_bytes,
            tcp: leg.streams[0],
            streams: match leg.is_striped {
                true => leg.streams,
                false => Vec::new(),
            },
        })
    };
    Connection {
        id: session.number,
        listener: session.door.name(),
        kind: session.listener.kind.to_string(),
        client: session.client_address,
        next_hop: way_out.next_hop,
        peer: glimpse::peer(session, &way_out),
        destination: way_out.destination,
        age_s: session.started.elapsed().as_secs_f64(),
        mode: way_out.mode.map(|mode| mode_name(mode).to_owned()),
        bytes_up: glimpse.bytes_up,
        bytes_down: glimpse.bytes_down,
        bytes_up_per_s: verdict.bytes_up_per_s,
        bytes_down_per_s: verdict.bytes_down_per_s,
        near: state(glimpse.near, verdict.near),
        far: state(glimpse.far, verdict.far),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "auto",
        Mode::Splice => "splice",
        Mode::Copy => "copy",
    }
}
