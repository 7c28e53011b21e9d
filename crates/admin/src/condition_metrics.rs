// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator must act on in time: a configuration that was not taken, certificates that end.

use super::record::{Certificate, Reload};
use jiff::Timestamp;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use std::sync::atomic::AtomicU64;

type Value = Gauge<f64, AtomicU64>;

/// Adds the outcome of the last reload.
pub(super) fn register_reload(reload: &Reload, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("config");
    let value = |value: f64| {
        let gauge = Value::default();
        gauge.set(value);
        gauge
    };
    registry.register(
        "last_reload_successful",
        "1: the last configuration that was read was taken",
        value(f64::from(u8::from(reload.successful))),
    );
    registry.register_with_unit(
        "last_reload_timestamp",
        "When a configuration was read last, since 1970",
        Unit::Seconds,
        value(seconds(reload.time)),
    );
    registry.register_with_unit(
        "last_reload_success_timestamp",
        "When a configuration was taken last, since 1970",
        Unit::Seconds,
        value(seconds(reload.success_time)),
    );
}

/// Adds the end of each certificate.
pub(super) fn register_certificates(certificates: &[Certificate], registry: &mut Registry) {
    let family = Family::<Vec<(&'static str, String)>, Value>::default();
    registry.register_with_unit(
        "certificate_expiry_timestamp",
        "When the certificate ends, since 1970",
        Unit::Seconds,
        family.clone(),
    );
    for certificate in certificates {
        let labels = vec![
            ("user", certificate.user.clone()),
            ("name", certificate.name.clone()),
            ("role", certificate.role.clone()),
        ];
        let end = seconds(certificate.not_after);
        family.get_or_create(&labels).set(end);
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}
