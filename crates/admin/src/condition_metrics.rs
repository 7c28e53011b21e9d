// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator must act on in time: a configuration that was not taken, certificates that end.

use super::{
    record::{Certificate, Reload},
    registration::{Value, family, flag, gauge, moment},
};
use prometheus_client::{
    metrics::family::Family,
    registry::{Registry, Unit},
};

/// Adds the outcome of the last reload.
pub(super) fn register_reload(reload: &Reload, registry: &mut Registry) {
    let registry = registry.sub_registry_with_prefix("config");
    gauge(
        registry,
        "last_reload_successful",
        "1: the last configuration that was read was taken",
        None,
        flag(reload.successful),
    );
    gauge(
        registry,
        "last_reload_timestamp",
        "When a configuration was read last, since 1970",
        Some(Unit::Seconds),
        moment(reload.time),
    );
    gauge(
        registry,
        "last_reload_success_timestamp",
        "When a configuration was taken last, since 1970",
        Some(Unit::Seconds),
        moment(reload.success_time),
    );
}

/// Adds the end of each certificate.
pub(super) fn register_certificates(certificates: &[Certificate], registry: &mut Registry) {
    let family: Family<Vec<(&'static str, String)>, Value> = family(
        registry,
        "certificate_expiry_timestamp",
        "When the certificate ends, since 1970",
        Some(Unit::Seconds),
    );
    for certificate in certificates {
        let labels = vec![
            ("user", certificate.user.clone()),
            ("name", certificate.name.clone()),
            ("role", certificate.role.clone()),
        ];
        let end = moment(certificate.not_after);
        family.get_or_create(&labels).set(end);
    }
}
