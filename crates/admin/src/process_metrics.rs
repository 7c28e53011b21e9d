// SPDX-License-Identifier: MIT OR Apache-2.0
//! `process_…`: what the relay uses of the machine, under the names that every exporter has.

use super::record::Process;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};
use std::sync::atomic::AtomicU64;

/// Adds them to a registry without a prefix.
pub(super) fn register(process: &Process, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("process");
    let cpu = Counter::<f64, AtomicU64>::default();
    cpu.inc_by(process.cpu_s);
    let help = "Time on a processor, user's and kernel's";
    registry.register_with_unit("cpu", help, Unit::Seconds, cpu);
    let mut gauge = |name: &str, help: &str, unit: Option<Unit>, value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, gauge),
            None => registry.register(name, help, gauge),
        }
    };
    let started = process.started.as_millisecond() as f64 / 1000.0;
    let [resident, whole] = [process.resident_bytes, process.virtual_bytes].map(|n| n as f64);
    gauge(
        "start_time",
        "When the process started, since 1970",
        Some(Unit::Seconds),
        started,
    );
    gauge(
        "resident_memory",
        "Memory in RAM",
        Some(Unit::Bytes),
        resident,
    );
    gauge("virtual_memory", "Address space", Some(Unit::Bytes), whole);
    gauge("threads", "Threads", None, process.threads as f64);
    gauge(
        "open_fds",
        "Open descriptors",
        None,
        process.open_fds as f64,
    );
    if let Some(most) = process.max_fds {
        let help = "Descriptors that may be open (RLIMIT_NOFILE)";
        gauge("max_fds", help, None, most as f64);
    }
}
