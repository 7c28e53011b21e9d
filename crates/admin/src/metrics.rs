// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/metrics`: a [`Status`] as OpenMetrics, or as the classic text format. Labels are names from the configuration,
//! never data of clients, so that the configuration bounds the number of series.

use super::{
    format::{Format, classic_from_openmetrics},
    record::{
        Certificate, Distribution, HealthStatus, Leg, LegGroup, ListenerTimes, PeerState, Process,
        Reload, Status,
    },
};
use crate::relay_record::{ListenerCounts, PasswordCounts, RelayRecord};
use jiff::Timestamp;
use longhaul_linux::limiter::Limiter;
use longhaul_protocol::failure::Failure;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Metric, Registry, Unit},
};
use std::{fmt, sync::atomic::AtomicU64};

type Labels = Vec<(&'static str, String)>;
type CounterFamily = Family<Labels, Counter>;
type SecondsFamily = Family<Labels, Counter<f64, AtomicU64>>;
type GaugeFamily = Family<Labels, FloatGauge>;

/// Gauge of a floating-point number.
type FloatGauge = Gauge<f64, AtomicU64>;

/// Returns the metrics as text.
pub(super) fn encode(status: &Status, format: Format) -> Result<String, fmt::Error> {
    let mut all = Registry::default();
    let registry = all.sub_registry_with_prefix("longhaul");
    add_relay(status, registry);
    add_reload(&status.reload, registry);
    add_certificates(&status.certificates, registry);
    add_listeners(status, registry);
    add_peers(&status.peers, registry);
    add_legs(&status.legs, registry);
    if let Some(process) = &status.process {
        add_process(process, &mut all);
    }
    let mut text = String::new();
    text::encode(&mut text, &all)?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Classic => classic_from_openmetrics(&text),
    })
}

fn add_relay(status: &Status, registry: &mut Registry) {
    let build = Info::new(vec![
        ("version", status.version.clone()),
        ("commit", status.commit.clone()),
        ("arch", std::env::consts::ARCH.to_owned()),
    ]);
    registry.register("build", "Version of the program", build);
    let health = status.health.status;
    add_gauge(
        registry,
        "start_time",
        "Time of the start, since 1970",
        Some(Unit::Seconds),
        unix_seconds(status.started),
    );
    add_gauge(
        registry,
        "serving",
        "1: healthy and accepting connections",
        None,
        bool_value(health == HealthStatus::Serving),
    );
    add_gauge(
        registry,
        "draining",
        "1: about to end, accepts no connections",
        None,
        bool_value(health == HealthStatus::Draining),
    );
    add_gauge(
        registry,
        "memory",
        "Memory of all legs in sockets, pipes and buffers",
        Some(Unit::Bytes),
        status.relay.memory_bytes as f64,
    );
    if let Some(budget) = status.relay.memory_budget_bytes {
        add_gauge(
            registry,
            "memory_budget",
            "Memory at which new connections wait",
            Some(Unit::Bytes),
            budget as f64,
        );
    }
    add_limits(&status.relay, registry);
    let lost: Counter = register(
        registry,
        "records_lost",
        "Records that --counters could not write in time",
        None,
    );
    lost.inc_by(status.relay.records_lost);
}

/// Adds the limits at which new connections wait, and what counts against the number of connections.
fn add_limits(relay: &RelayRecord, registry: &mut Registry) {
    let (taken, limit) = (relay.connections_taken, relay.connections_limit);
    let help = "Connections that count against the limit";
    add_gauge(registry, "connections_taken", help, None, taken as f64);
    let help = "Connections that may be open at a time; more wait";
    add_gauge(registry, "connections_limit", help, None, limit as f64);
    let registry = registry.sub_registry_with_prefix("limit");
    let help = "1: new connections wait because of the limit";
    let reached: GaugeFamily = register(registry, "reached", help, None);
    let help = "Number of times that the limit was reached";
    let times: CounterFamily = register(registry, "times_reached", help, None);
    let help = "Waits of connections because of the limit";
    let waits: CounterFamily = register(registry, "waits", help, None);
    let limits = &relay.limits;
    for (name, counts) in [
        ("connections", &limits.connections),
        ("descriptors", &limits.descriptors),
        ("memory", &limits.memory),
    ] {
        let labels: Labels = vec![("limit", name.to_owned())];
        let is_reached = bool_value(counts.reached);
        reached.get_or_create(&labels).set(is_reached);
        times.get_or_create(&labels).inc_by(counts.times_reached);
        waits.get_or_create(&labels).inc_by(counts.waits);
    }
}

/// Adds the result of the last reload, so that an operator can alert on a rejected configuration.
fn add_reload(reload: &Reload, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("config");
    add_gauge(
        registry,
        "last_reload_successful",
        "1: the last configuration that was read was applied",
        None,
        bool_value(reload.successful),
    );
    add_gauge(
        registry,
        "last_reload_timestamp",
        "Time of the last reading of a configuration, since 1970",
        Some(Unit::Seconds),
        unix_seconds(reload.time),
    );
    add_gauge(
        registry,
        "last_reload_success_timestamp",
        "Time of the last application of a configuration, since 1970",
        Some(Unit::Seconds),
        unix_seconds(reload.success_time),
    );
}

/// Adds the expiry of each certificate, so that an operator can alert on it.
fn add_certificates(certificates: &[Certificate], registry: &mut Registry) {
    let expiries: GaugeFamily = register(
        registry,
        "certificate_expiry_timestamp",
        "Expiry of the certificate, since 1970",
        Some(Unit::Seconds),
    );
    for certificate in certificates {
        let labels = vec![
            ("used_by", certificate.used_by.clone()),
            ("name", certificate.name.clone()),
            ("role", certificate.role.clone()),
        ];
        let end = unix_seconds(certificate.not_after);
        expiries.get_or_create(&labels).set(end);
    }
}

fn add_listeners(status: &Status, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("listener");
    add_listener_times(&status.times, registry);
    add_listener_counts(&status.relay.listeners, registry);
}

/// Adds the times of connect, first byte and duration of each listener, as histograms.
fn add_listener_times(listeners: &[ListenerTimes], registry: &mut Registry) {
    let mut add = |name: &str, help: &str, times: fn(&ListenerTimes) -> &Distribution| {
        let each = listeners.iter();
        let each = each.map(|l| (vec![("listener", l.listener.clone())], times(l).clone()));
        registry.register_with_unit(name, help, Unit::Seconds, Histograms(each.collect()));
    };
    add(
        "connect",
        "Time from a request until its upstream leg is connected; 0 for a pooled connection",
        |times| &times.connect,
    );
    add(
        "first_byte",
        "Time from a request until the first byte of the response",
        |times| &times.first_byte,
    );
    add(
        "connection_duration",
        "Time from accept to end, of closed connections",
        |times| &times.duration,
    );
}

/// Distributions with their labels, encoded as histograms.
#[derive(Debug)]
struct Histograms(Vec<(Labels, Distribution)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, distribution) in &self.0 {
            let bounds = distribution.bounds_s.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(distribution.counts.iter().copied()).collect();
            let count = distribution.counts.iter().sum();
            encoder
                .encode_family(labels)?
                .encode_histogram::<NoLabelSet>(distribution.sum_s, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Converts a cause to a label value, such as `connection_refused`.
fn snake_case(words: &str) -> String {
    words
        .to_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn add_listener_counts(listeners: &[ListenerCounts], registry: &mut Registry) {
    let opened: CounterFamily = register(registry, "connections", "Connections accepted", None);
    let bypassed: CounterFamily = register(
        registry,
        "bypassed",
        "Connections that were not intercepted but sent directly to their destinations, for lack of capacity",
        None,
    );
    let open: GaugeFamily = register(registry, "connections_open", "Connections open now", None);
    let failures: CounterFamily = register(
        registry,
        "failures",
        "Connections that could not be established, by cause",
        None,
    );
    let passwords: CounterFamily = register(
        registry,
        "passwords",
        "Passwords that were wrong, checked after a delay (delayed), or refused without a check (unchecked)",
        None,
    );
    let bytes: CounterFamily = register(
        registry,
        "relayed",
        "Bytes delivered, up towards destinations and down towards clients",
        Some(Unit::Bytes),
    );
    let pipes: GaugeFamily = register(
        registry,
        "pipe",
        "Bytes in pipes and copy buffers",
        Some(Unit::Bytes),
    );
    for listener in listeners {
        let labels = || -> Labels {
            vec![
                ("listener", listener.name.clone()),
                ("kind", listener.kind.clone()),
                ("address", listener.address.to_string()),
            ]
        };
        let with_label = |name, value: &str| [labels(), vec![(name, value.to_owned())]].concat();
        let counts = &listener.counts;
        opened.get_or_create(&labels()).inc_by(counts.accepted);
        bypassed.get_or_create(&labels()).inc_by(counts.bypassed);
        open.get_or_create(&labels()).inc_by(counts.active as f64);
        for cause in Failure::ALL.map(|failure| failure.to_string()) {
            let count = counts.failed.get(&cause).copied().unwrap_or(0);
            let label = snake_case(&cause);
            failures
                .get_or_create(&with_label("cause", &label))
                .inc_by(count);
        }
        let PasswordCounts {
            wrong,
            delayed,
            unchecked,
        } = counts.passwords;
        for (outcome, count) in [
            ("wrong", wrong),
            ("delayed", delayed),
            ("unchecked", unchecked),
        ] {
            passwords
                .get_or_create(&with_label("outcome", outcome))
                .inc_by(count);
        }
        for (direction, count) in [("up", counts.bytes_up), ("down", counts.bytes_down)] {
            bytes
                .get_or_create(&with_label("direction", direction))
                .inc_by(count);
        }
        pipes
            .get_or_create(&labels())
            .inc_by(counts.bytes_buffered as f64);
    }
}

fn add_peers(peers: &[PeerState], registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("peer");
    let up: GaugeFamily = register(
        registry,
        "up",
        "1: the last attempt to reach it succeeded",
        None,
    );
    let opened: CounterFamily = register(
        registry,
        "connections",
        "Client connections that used it",
        None,
    );
    let open: GaugeFamily = register(
        registry,
        "connections_open",
        "Client connections that use it now",
        None,
    );
    let failures: CounterFamily = register(
        registry,
        "failures",
        "Connections to it that failed, checks included",
        None,
    );
    let bytes: CounterFamily = register(
        registry,
        "relayed",
        "Bytes delivered over it",
        Some(Unit::Bytes),
    );
    let idle: GaugeFamily = register(
        registry,
        "pool_idle_connections",
        "Idle connections in its pool",
        None,
    );
    let requests: CounterFamily = register(
        registry,
        "pool_requests",
        "Requests that found an idle connection in the pool (hit), or an empty pool (miss)",
        None,
    );
    let missing: CounterFamily = register(
        registry,
        "streams_missing",
        "Streams that could not join the others of their connection",
        None,
    );
    for peer in peers {
        let (counts, usage) = (&peer.counts, &peer.usage);
        let labels = || -> Labels {
            vec![
                ("peer", counts.name.clone()),
                ("address", counts.address.to_string()),
            ]
        };
        let with_label = |name, value: &str| [labels(), vec![(name, value.to_owned())]].concat();
        let is_up = counts.down_s.is_none();
        up.get_or_create(&labels()).set(bool_value(is_up));
        opened.get_or_create(&labels()).inc_by(usage.connections);
        open.get_or_create(&labels()).set(usage.active as f64);
        failures.get_or_create(&labels()).inc_by(counts.failures);
        for (direction, count) in [("up", usage.bytes_up), ("down", usage.bytes_down)] {
            bytes
                .get_or_create(&with_label("direction", direction))
                .inc_by(count);
        }
        missing
            .get_or_create(&labels())
            .inc_by(counts.streams_missing);
        idle.get_or_create(&labels()).set(counts.pool_idle as f64);
        for (outcome, count) in [("hit", counts.pool_hits), ("miss", counts.pool_misses)] {
            requests
                .get_or_create(&with_label("outcome", outcome))
                .inc_by(count);
        }
    }
}

fn add_legs(legs: &[LegGroup], registry: &mut Registry) {
    add_open_legs(legs, registry);
    let registry = registry.sub_registry_with_prefix("leg");
    let pauses: CounterFamily = register(
        registry,
        "reading_pauses",
        "Pauses of reading from a leg because the other side accepted no more",
        None,
    );
    let segments: CounterFamily = register(
        registry,
        "retransmitted_segments",
        "Segments retransmitted",
        None,
    );
    let retransmitted: CounterFamily = register(
        registry,
        "retransmitted",
        "Payload bytes retransmitted",
        Some(Unit::Bytes),
    );
    let sent: CounterFamily = register(
        registry,
        "sent",
        "Payload bytes sent, retransmitted ones included",
        Some(Unit::Bytes),
    );
    let busy: SecondsFamily = register(
        registry,
        "busy",
        "Time with data in flight or queued, all legs together",
        Some(Unit::Seconds),
    );
    let limited: SecondsFamily = register(
        registry,
        "limited",
        "Part of the busy time in which the limiter limited sending",
        Some(Unit::Seconds),
    );
    for leg in legs {
        let (labels, totals) = (leg_labels(leg), &leg.totals);
        pauses.get_or_create(&labels).inc_by(totals.reading_pauses);
        segments
            .get_or_create(&labels)
            .inc_by(totals.retransmitted_segments);
        retransmitted
            .get_or_create(&labels)
            .inc_by(totals.retransmitted_bytes);
        sent.get_or_create(&labels).inc_by(totals.sent_bytes);
        busy.get_or_create(&labels).inc_by(seconds(totals.busy_us));
        for (limiter, us) in [
            (Limiter::ReceiveWindow, totals.receive_window_limited_us),
            (Limiter::SendBuffer, totals.send_buffer_limited_us),
        ] {
            let labels = with_limiter(&labels, limiter.name());
            limited.get_or_create(&labels).inc_by(seconds(us));
        }
    }
}

/// Adds the gauges of open legs.
fn add_open_legs(legs: &[LegGroup], registry: &mut Registry) {
    let open: GaugeFamily = register(
        registry,
        "legs_open",
        "Legs open now, by what limits their sending",
        None,
    );
    let registry = registry.sub_registry_with_prefix("leg");
    let streams: GaugeFamily = register(
        registry,
        "streams_open",
        "TCP connections of the open legs: several for a striped leg",
        None,
    );
    let buffered: GaugeFamily = register(
        registry,
        "buffered",
        "Kernel memory of the legs' sockets",
        Some(Unit::Bytes),
    );
    let paused: GaugeFamily = register(
        registry,
        "reading_paused",
        "Legs whose reading is paused now because the other side accepts no more",
        None,
    );
    let rtt: GaugeFamily = register(
        registry,
        "rtt_mean",
        "Mean of the legs' smoothed round-trip times",
        Some(Unit::Seconds),
    );
    let rtt_min: GaugeFamily = register(
        registry,
        "rtt_min",
        "Smallest round-trip time of the open legs",
        Some(Unit::Seconds),
    );
    let unit = || Some(Unit::Other("bytes_per_second".to_owned()));
    let rate: GaugeFamily = register(
        registry,
        "delivery_rate",
        "Sum of the legs' latest delivery-rate samples",
        unit(),
    );
    for leg in legs {
        let (labels, gauges) = (leg_labels(leg), &leg.gauges);
        let all = Limiter::ALL.map(Limiter::name);
        for limiter in all.into_iter().chain(["unknown"]) {
            let count = gauges.limited_by.get(limiter).copied().unwrap_or(0);
            open.get_or_create(&with_limiter(&labels, limiter))
                .set(count as f64);
        }
        streams
            .get_or_create(&labels)
            .set(gauges.streams_open as f64);
        buffered
            .get_or_create(&labels)
            .set(gauges.buffered_bytes as f64);
        paused
            .get_or_create(&labels)
            .set(gauges.reading_paused as f64);
        rate.get_or_create(&labels)
            .set(gauges.delivery_rate_bytes_per_s as f64);
        // Without a leg there is no round-trip time.
        if let Some(us) = gauges.rtt_mean_us {
            rtt.get_or_create(&labels).set(us / 1e6);
        }
        if let Some(us) = gauges.rtt_min_us {
            rtt_min.get_or_create(&labels).set(seconds(us.into()));
        }
    }
}

fn leg_labels(leg: &LegGroup) -> Labels {
    let side = match leg.key.leg {
        Leg::Downstream => "downstream",
        Leg::Upstream => "upstream",
    };
    vec![
        ("listener", leg.key.listener.clone()),
        ("leg", side.to_owned()),
        ("peer", leg.key.peer.clone().unwrap_or_default()),
    ]
}

fn with_limiter(labels: &Labels, limiter: &str) -> Labels {
    [labels.clone(), vec![("limiter", limiter.to_owned())]].concat()
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Adds the resource use of the process, under the standard names of exporters, which have no prefix.
fn add_process(process: &Process, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("process");
    let help = "Processor time, user and system";
    let cpu: Counter<f64, AtomicU64> = register(registry, "cpu", help, Some(Unit::Seconds));
    cpu.inc_by(process.cpu_s);
    let [resident, address_space] =
        [process.resident_bytes, process.virtual_bytes].map(|n| n as f64);
    let [threads, open] = [process.threads, process.open_fds].map(|n| n as f64);
    let (s, bytes) = (|| Some(Unit::Seconds), || Some(Unit::Bytes));
    let mut add = |name, help, unit, value| add_gauge(registry, name, help, unit, value);
    let started = unix_seconds(process.started);
    add(
        "start_time",
        "Time of the process's start, since 1970",
        s(),
        started,
    );
    add("resident_memory", "Memory in RAM", bytes(), resident);
    add("virtual_memory", "Address space", bytes(), address_space);
    add("threads", "Threads", None, threads);
    add("open_fds", "Open descriptors", None, open);
    if let Some(max) = process.max_fds {
        let help = "Limit of open descriptors (RLIMIT_NOFILE)";
        add("max_fds", help, None, max as f64);
    }
}

/// Adds a gauge. A unit becomes the suffix of the name.
fn add_gauge(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, value: f64) {
    register::<FloatGauge>(registry, name, help, unit).set(value);
}

/// Registers a metric without a value, and returns it.
fn register<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    unit: Option<Unit>,
) -> M {
    let metric = M::default();
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric.clone()),
        None => registry.register(name, help, metric.clone()),
    }
    metric
}

/// Converts a boolean to 0 or 1.
fn bool_value(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Converts a time to seconds since 1970.
fn unix_seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}
