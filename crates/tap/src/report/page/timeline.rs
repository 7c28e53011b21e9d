// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timelines above the charts, on the charts' time axis: the limits of one direction of a flow, and its phases.
//! `tap.js` moves the spans of a timeline when the charts are zoomed.

use super::units;
use longhaul_flow::{
    record::{Direction, Limit, LimitPeriod, Phase, PhaseKind},
    verdict::limit_shares,
};
use maud::{Markup, html};

/// Maximum number of spans of a timeline: more would be too small to see.
const SPANS_MAX: usize = 200;

/// Span of a timeline, in ns from its beginning.
struct Span {
    class: &'static str,
    name: &'static str,
    from_ns: u64,
    to_ns: u64,
}

impl Span {
    fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Time axis: its start, in ns since 1970, and its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) from_ns: u64,
    pub(super) length_ns: u64,
}

impl Axis {
    /// Converts a time, in ns since 1970, to ns from the start of the axis. Times outside the axis are moved to its
    /// ends.
    fn offset(self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.from_ns).min(self.length_ns)
    }
}

/// Returns both timelines, and the legend of the limits. A timeline without spans is left out.
pub(super) fn timelines(direction: &Direction, axis: Axis) -> Markup {
    let limits: Vec<Span> = direction
        .limits
        .iter()
        .map(|l| limit_span(l, axis))
        .collect();
    let phases: Vec<Span> = direction
        .phases
        .iter()
        .map(|p| phase_span(p, axis))
        .collect();
    html! {
        @if !limits.is_empty() { (timeline("Limited by", &limits, axis)) (legend(&limits)) }
        @if !phases.is_empty() { (timeline("Phases", &phases, axis)) }
    }
}

fn timeline(title: &str, spans: &[Span], axis: Axis) -> Markup {
    let visible = longest(spans);
    let descriptions: Vec<String> = visible.iter().map(|span| describe_span(span)).collect();
    html! {
        div.timeline role="img" aria-label={ (title) ": " (descriptions.join(", ")) } {
            span.title { (title) }
            div.parts { @for span in visible { (render_span(span, axis)) } }
        }
    }
}

/// Returns the longest spans, in order of time. Of equally long ones it may leave out all.
fn longest(spans: &[Span]) -> Vec<&Span> {
    let mut lengths: Vec<u64> = spans.iter().map(Span::length_ns).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let length_min = lengths.get(SPANS_MAX).copied().unwrap_or(0);
    let visible = spans.iter().filter(|span| span.length_ns() > length_min);
    visible.collect()
}

fn render_span(span: &Span, axis: Axis) -> Markup {
    let percent = |ns: u64| format!("{:.3}%", share_of(ns, axis.length_ns) * 100.0);
    let style = format!(
        "left:{};width:{}",
        percent(span.from_ns),
        percent(span.length_ns())
    );
    html! {
        span class=(span.class) style=(style) title=(describe_span(span))
            data-from=(seconds(span.from_ns)) data-to=(seconds(span.to_ns)) { (span.name) }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn share_of(ns: u64, total_ns: u64) -> f64 {
    ns as f64 / total_ns.max(1) as f64
}

/// Describes a span: "bottleneck bandwidth from 24 s to 26 s".
fn describe_span(span: &Span) -> String {
    let Span {
        name,
        from_ns,
        to_ns,
        ..
    } = span;
    let [from, to] = [*from_ns, *to_ns].map(units::duration);
    format!("{name} from {from} to {to}")
}

/// Returns the legend: each limit with its share of the time, the largest share first.
fn legend(spans: &[Span]) -> Markup {
    let total: u64 = spans.iter().map(Span::length_ns).sum();
    let mut sums: Vec<(&Span, u64)> = Vec::new();
    for span in spans {
        match sums.iter_mut().find(|(other, _)| other.class == span.class) {
            Some((_, length)) => *length += span.length_ns(),
            None => sums.push((span, span.length_ns())),
        }
    }
    sums.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    html! {
        ul.legend {
            @for (limit, length) in sums {
                li {
                    span class={ "key " (limit.class) } {} (limit.name)
                    (format!(" {:.0} %", share_of(length, total) * 100.0))
                }
            }
        }
    }
}

fn limit_span(period: &LimitPeriod, axis: Axis) -> Span {
    let (class, name) = limit_labels(period.limit);
    Span {
        class,
        name,
        from_ns: axis.offset(period.from_ns),
        to_ns: axis.offset(period.to_ns),
    }
}

fn phase_span(phase: &Phase, axis: Axis) -> Span {
    let (class, name) = phase_labels(phase.kind);
    Span {
        class,
        name,
        from_ns: axis.offset(phase.from_ns),
        to_ns: axis.offset(phase.to_ns),
    }
}

/// Returns the CSS class in `tap.css` and the name of a limit.
pub(super) fn limit_labels(limit: Limit) -> (&'static str, &'static str) {
    match limit {
        Limit::Application => ("application", "application"),
        Limit::ReceiveWindow => ("receive-window", "receive window"),
        Limit::CongestionWindow => ("congestion-window", "congestion window"),
        Limit::BottleneckBandwidth => ("bottleneck-bandwidth", "bottleneck bandwidth"),
        Limit::AckStream => ("ack-stream", "ACK stream"),
    }
}

/// Returns the CSS class in `tap.css` and the name of a phase.
pub(super) fn phase_labels(kind: PhaseKind) -> (&'static str, &'static str) {
    match kind {
        PhaseKind::RampUp => ("ramp-up", "ramp-up"),
        PhaseKind::Peak => ("peak", "peak"),
        PhaseKind::Steady => ("steady", "steady"),
        PhaseKind::Recovery => ("recovery", "recovery"),
        PhaseKind::Idle => ("idle", "idle"),
    }
}

/// Returns the limit that was in effect for the longest time, and its share of the time with a known limit.
pub(super) fn dominant_limit(direction: &Direction) -> Option<(&'static str, f64)> {
    let (limit, share) = *limit_shares(&direction.limits).first()?;
    Some((limit_labels(limit).1, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: Axis = Axis {
        from_ns: 1_000,
        length_ns: 10_000_000_000,
    };

    fn period(limit: Limit, from_s: u64, to_s: u64) -> LimitPeriod {
        LimitPeriod {
            limit,
            from_ns: 1_000 + from_s * 1_000_000_000,
            to_ns: 1_000 + to_s * 1_000_000_000,
        }
    }

    fn direction(limits: Vec<LimitPeriod>) -> Direction {
        Direction {
            limits,
            ..Direction::default()
        }
    }

    #[test]
    fn places_spans_by_time() {
        let direction = direction(vec![
            period(Limit::CongestionWindow, 0, 2),
            period(Limit::AckStream, 2, 5),
        ]);
        let page = timelines(&direction, AXIS).into_string();
        assert!(page.contains("left:20.000%;width:30.000%"), "{page}");
        assert!(page.contains("ACK stream from 2 s to 5 s"), "{page}");
        assert!(!page.contains("Phases"), "{page}");
    }

    #[test]
    fn legend_sums_limits_and_dominant_limit_is_first() {
        let direction = direction(vec![
            period(Limit::BottleneckBandwidth, 0, 2),
            period(Limit::Application, 2, 5),
            period(Limit::BottleneckBandwidth, 5, 7),
        ]);
        let page = timelines(&direction, AXIS).into_string();
        let (bandwidth, application) = (
            page.find("bottleneck bandwidth 57 %"),
            page.find("application 43 %"),
        );
        assert!(bandwidth.is_some() && bandwidth < application, "{page}");
        let (limit, share) = dominant_limit(&direction).unwrap();
        assert_eq!(
            (limit, (share * 7.0).round()),
            ("bottleneck bandwidth", 4.0)
        );
    }

    #[test]
    fn draws_only_the_longest_of_many_spans() {
        let mut limits: Vec<LimitPeriod> = (0..1000)
            .map(|n| LimitPeriod {
                limit: Limit::Application,
                from_ns: 1_000 + n,
                to_ns: 1_000 + n + 1,
            })
            .collect();
        limits.push(period(Limit::BottleneckBandwidth, 1, 9));
        let page = timelines(&direction(limits), AXIS).into_string();
        assert_eq!(page.matches("data-from").count(), 1);
    }
}
