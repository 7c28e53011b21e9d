// SPDX-License-Identifier: MIT OR Apache-2.0
//! `process_…`: what the relay uses of the machine, under the names that every exporter has.

use super::{
    record::Process,
    registration::{family, gauge, moment},
};
use prometheus_client::{
    metrics::counter::Counter,
    registry::{Registry, Unit},
};
use std::sync::atomic::AtomicU64;

/// Adds them to a registry without a prefix.
pub(super) fn register(process: &Process, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("process");
    let help = "Time on a processor, user's and kernel's";
    let cpu: Counter<f64, AtomicU64> = family(registry, "cpu", help, Some(Unit::Seconds));
    cpu.inc_by(process.cpu_s);
    let [resident, whole] = [process.resident_bytes, process.virtual_bytes].map(|n| n as f64);
    let [threads, open] = [process.threads, process.open_fds].map(|n| n as f64);
    let (s, bytes) = (|| Some(Unit::Seconds), || Some(Unit::Bytes));
    let mut add = |name, help, unit, now| gauge(registry, name, help, unit, now);
    let started = moment(process.started);
    add(
        "start_time",
        "When the process started, since 1970",
        s(),
        started,
    );
    add("resident_memory", "Memory in RAM", bytes(), resident);
    add("virtual_memory", "Address space", bytes(), whole);
    add("threads", "Threads", None, threads);
    add("open_fds", "Open descriptors", None, open);
    if let Some(most) = process.max_fds {
        let help = "Descriptors that may be open (RLIMIT_NOFILE)";
        add("max_fds", help, None, most as f64);
    }
}
