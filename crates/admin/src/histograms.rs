// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distributions of each listener as histograms.

use super::record::{Distribution, ListenerTimes};
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::fmt;

/// Adds connect, first byte and duration to a registry of listeners.
pub(super) fn register(listeners: &[ListenerTimes], registry: &mut Registry) {
    let mut add = |name: &str, help: &str, of: fn(&ListenerTimes) -> &Distribution| {
        let each = listeners.iter();
        let each = each.map(|l| (vec![("listener", l.listener.clone())], of(l).clone()));
        registry.register_with_unit(name, help, Unit::Seconds, Histograms(each.collect()));
    };
    add(
        "connect",
        "From a request until its outgoing leg stood; a ready connection takes no time",
        |times| &times.connect,
    );
    add(
        "first_byte",
        "From a request until the first byte of the answer",
        |times| &times.first_byte,
    );
    add(
        "connection_duration",
        "From accept to end, of connections that have ended",
        |times| &times.duration,
    );
}

#[derive(Debug)]
struct Histograms(Vec<(Vec<(&'static str, String)>, Distribution)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, found) in &self.0 {
            let bounds = found.bounds_s.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(found.counts.iter().copied()).collect();
            let count = found.counts.iter().sum();
            encoder
                .encode_family(labels)?
                .encode_histogram::<NoLabelSet>(found.sum_s, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
