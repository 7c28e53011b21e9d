// SPDX-License-Identifier: MIT OR Apache-2.0
//! How metrics come into a registry.

use jiff::Timestamp;
use prometheus_client::{
    metrics::gauge::Gauge,
    registry::{Metric, Registry, Unit},
};
use std::sync::atomic::AtomicU64;

/// A value of now.
pub(super) type Value = Gauge<f64, AtomicU64>;

/// Adds a value of now. A unit becomes the end of the name.
pub(super) fn gauge(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, now: f64) {
    family::<Value>(registry, name, help, unit).set(now);
}

/// Adds a metric and returns it, to be filled.
pub(super) fn family<M: Metric + Clone + Default>(
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

/// Of a switch.
pub(super) fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Of a moment: seconds since 1970.
pub(super) fn moment(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}
