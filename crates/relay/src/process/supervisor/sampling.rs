// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples all open connections once a second on the supervisor's thread, while the admin endpoint
//! has readers.

use crate::{
    config::settings::Mode,
    process::workers::registry::Registry,
    records::{
        history::{INTERVAL, point},
        sampling::samples::{LegSample, Rates, Sample},
    },
    relay::Relay,
    session::{Session, Upstream},
};
use jiff::Timestamp;
use longhaul_admin::{
    record::{Connection, LegGauges, LegGroup, LegGroupKey, LegState, LegTotals, Snapshot},
    relay_record::Counts,
};
use longhaul_linux::{limiter::Limiter, tcp_info::TcpInfo};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval, sleep},
};

/// Sampling interval. With more than 5,000 connections it grows, so that sampling takes a few
/// hundredths of one core at most.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_PER_CONNECTION: Duration = Duration::from_micros(200);
/// Interval between the first two rounds; rates and limiters need two. Long enough for the kernel's
/// chronograph, which counts in jiffies.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// Connections that are sampled before other tasks of the supervisor run.
const SESSIONS_PER_YIELD: usize = 64;

/// Samples while there are readers, without end.
pub(crate) async fn run(relay: &Relay, sessions: &Registry) {
    let sampler = &relay.sampler;
    loop {
        sampler.wait_for_reader().await;
        sample_all(relay, sessions).await;
        sleep(FIRST_INTERVAL).await;
        while sampler.has_readers() {
            sleep(sample_and_publish(relay, sessions).await).await;
        }
    }
}

/// Publishes a round, and returns the pause after it.
async fn sample_and_publish(relay: &Relay, sessions: &Registry) -> Duration {
    let begin = Instant::now();
    let snapshot = sample_all(relay, sessions).await;
    let connections = snapshot.connections.len() as u32;
    let pause = INTERVAL_MIN.max(INTERVAL_PER_CONNECTION * connections);
    relay.sampler.publish(snapshot, begin + 2 * pause);
    pause
}

async fn sample_all(relay: &Relay, sessions: &Registry) -> Snapshot {
    let time = Timestamp::now();
    let sessions = sessions.all();
    // Weak references: a connection that ends in the meantime must close at once.
    let sessions: Vec<_> = sessions.iter().map(Arc::downgrade).collect();
    let (mut connections, mut gauges) = (Vec::new(), BTreeMap::new());
    for (n, session) in sessions.into_iter().enumerate() {
        if n % SESSIONS_PER_YIELD == SESSIONS_PER_YIELD - 1 {
            yield_now().await;
        }
        let Some(session) = session.upgrade() else {
            continue;
        };
        let upstream = session.upstream();
        let sample = session.sample(&upstream);
        if let Some((sample, rates)) = relay
            .sampler
            .record(sample, &session.records.final_sample_taken)
        {
            add_to_gauges(&sample, &rates, &mut gauges);
            connections.push(connection(&session, upstream, sample, &rates));
        }
    }
    Snapshot {
        time,
        connections,
        legs: leg_groups(relay, gauges),
    }
}

fn leg_groups(relay: &Relay, mut gauges: BTreeMap<LegGroupKey, GroupGauges>) -> Vec<LegGroup> {
    let (listeners, _) = relay.listeners.counts();
    let names: Vec<_> = listeners.into_iter().map(|l| l.name).collect();
    let totals = relay.sampler.totals(&names);
    let group = |(key, totals): (LegGroupKey, LegTotals)| LegGroup {
        gauges: gauges.remove(&key).unwrap_or_default().finish(),
        key,
        totals,
    };
    totals.into_iter().map(group).collect()
}

/// Adds a point per second to the history, without end.
pub(crate) async fn write_history(relay: &Relay) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut at, mut before) = (Instant::now(), Counts::default());
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (now, (_, total)) = (Instant::now(), relay.listeners.counts());
        relay.history.add(point(&before, &total, now - at));
        (at, before) = (now, total);
    }
}

/// Gauges of a group of open legs.
#[derive(Debug, Default)]
struct GroupGauges {
    gauges: LegGauges,
    rtts: u64,
    rtt_sum_us: f64,
}

impl GroupGauges {
    fn add(&mut self, leg: &LegSample, limited_by: Option<Limiter>) {
        let limiter = limited_by.map_or("unknown", Limiter::name);
        *self
            .gauges
            .limited_by
            .entry(limiter.to_owned())
            .or_default() += 1;
        self.gauges.buffered_bytes += leg.buffered_bytes;
        self.gauges.reading_paused += u64::from(leg.is_paused);
        leg.streams
            .iter()
            .for_each(|stream| self.add_stream(stream));
    }

    fn add_stream(&mut self, tcp: &TcpInfo) {
        self.gauges.streams_open += 1;
        self.gauges.delivery_rate_bytes_per_s += tcp.delivery_rate_bytes_per_s;
        // 0 and the largest number stand for "no sample yet".
        if tcp.rtt_us > 0 {
            self.rtts += 1;
            self.rtt_sum_us += f64::from(tcp.rtt_us);
        }
        let smallest = self.gauges.rtt_min_us.unwrap_or(u32::MAX);
        let smallest = smallest.min(tcp.rtt_min_us);
        self.gauges.rtt_min_us = (smallest < u32::MAX).then_some(smallest);
    }

    fn finish(self) -> LegGauges {
        LegGauges {
            rtt_mean_us: (self.rtts > 0).then(|| self.rtt_sum_us / self.rtts as f64),
            ..self.gauges
        }
    }
}

fn add_to_gauges(sample: &Sample, rates: &Rates, gauges: &mut BTreeMap<LegGroupKey, GroupGauges>) {
    let legs = [
        (&sample.downstream, rates.downstream),
        (&sample.upstream, rates.upstream),
    ];
    for (leg, limited_by) in legs {
        if let Some(leg) = leg {
            let gauge = gauges.entry(leg.group.clone()).or_default();
            gauge.add(leg, limited_by);
        }
    }
}

fn connection(session: &Session, upstream: Upstream, sample: Sample, rates: &Rates) -> Connection {
    let state = |leg: Option<LegSample>, limited_by| {
        leg.map(|leg| LegState {
            limited_by,
            reading_paused: leg.is_paused,
            reading_pauses: leg.pauses,
            buffered_bytes: leg.buffered_bytes,
            tcp: leg.streams[0],
            streams: if leg.is_striped {
                leg.streams
            } else {
                Vec::new()
            },
        })
    };
    Connection {
        id: session.records.number,
        listener: session.listener.name(),
        kind: session.setup.listener_config.kind.to_string(),
        client: session.client.address,
        next_hop: upstream.next_hop,
        peer: session.peer_label(&upstream),
        destination: upstream.destination,
        age_s: session.activity.started.elapsed().as_secs_f64(),
        mode: upstream.mode.map(|mode| mode_name(mode).to_owned()),
        bytes_up: sample.bytes_up,
        bytes_down: sample.bytes_down,
        bytes_up_per_s: rates.bytes_up_per_s,
        bytes_down_per_s: rates.bytes_down_per_s,
        downstream: state(sample.downstream, rates.downstream),
        upstream: state(sample.upstream, rates.upstream),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "auto",
        Mode::Splice => "splice",
        Mode::Copy => "copy",
    }
}
