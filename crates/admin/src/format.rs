// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of metrics: negotiation by Accept (RFC 9110 §12.5.1), and conversion of OpenMetrics to the classic format.

/// Format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus text format, version 0.0.4.
    Classic,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the value of the field Content-Type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Chooses the format by the values of Accept fields. OpenMetrics must be named, with no lower quality than the
    /// classic format; all other clients get the classic format, also those that accept neither.
    pub(super) fn negotiate<'a>(fields: impl Iterator<Item = &'a str>) -> Self {
        let ranges: Vec<MediaRange<'_>> = fields
            .flat_map(|field| field.split(','))
            .filter_map(MediaRange::parse)
            .collect();
        let open = quality(&ranges, MediaRange::is_openmetrics);
        let classic = ["text/plain", "text/*", "*/*"]
            .iter()
            .find_map(|kind| quality(&ranges, |range| range.kind.eq_ignore_ascii_case(kind)));
        match open {
            Some(open) if open > 0.0 && open >= classic.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Classic,
        }
    }
}

/// Media range of an Accept field.
struct MediaRange<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    quality: f64,
}

impl<'a> MediaRange<'a> {
    /// Parses a media range; `None` if it is invalid.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            kind: parts.next().filter(|kind| !kind.is_empty())?,
            version: None,
            quality: 1.0,
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if key.trim().eq_ignore_ascii_case("q") {
                range.quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?;
            } else if key.trim().eq_ignore_ascii_case("version") {
                range.version = Some(value);
            }
        }
        Some(range)
    }

    fn is_openmetrics(&self) -> bool {
        let kind = "application/openmetrics-text";
        self.kind.eq_ignore_ascii_case(kind) && matches!(self.version, None | Some("1.0.0"))
    }
}

/// Returns the best quality among the ranges that fit; `None` if none does.
fn quality<'a>(ranges: &[MediaRange<'a>], fits: impl Fn(&MediaRange<'a>) -> bool) -> Option<f64> {
    let fitting = ranges.iter().filter(|range| fits(range));
    fitting.map(|range| range.quality).reduce(f64::max)
}

/// Converts an OpenMetrics exposition to the classic text: samples are equal, and metadata names a counter and an
/// info like their samples.
pub(super) fn classic_from_openmetrics(text: &str) -> String {
    let (mut classic, mut help) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        match line.strip_prefix("# ") {
            None => classic.extend([line, "\n"]),
            Some(metadata) => match metadata.split_once(' ') {
                Some(("HELP", rest)) => help = rest.split_once(' '),
                Some(("TYPE", rest)) => classic += &metadata_lines(rest, help.take()),
                // Units are in the names, and the classic format has no end marker.
                _ => {}
            },
        }
    }
    classic
}

/// Returns `HELP` and `TYPE` of a family. `HELP` precedes `TYPE`, which determines the samples' suffix.
fn metadata_lines(family_and_type: &str, help: Option<(&str, &str)>) -> String {
    let (family, kind) = family_and_type
        .split_once(' ')
        .unwrap_or((family_and_type, "unknown"));
    let (suffix, kind) = match kind {
        "counter" => ("_total", kind),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    };
    let help = help.filter(|(name, _)| *name == family);
    let help = help.map(|(_, text)| format!("# HELP {family}{suffix} {text}\n"));
    format!(
        "{}# TYPE {family}{suffix} {kind}\n",
        help.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(field: &str) -> Format {
        Format::negotiate([field].into_iter())
    }

    #[test]
    fn serves_openmetrics_to_clients_that_prefer_it() {
        for field in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "Application/OpenMetrics-Text;Version=\"1.0.0\"",
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "text/plain;q=0.5, application/openmetrics-text;q=0.5",
            "*/*, text/plain;q=0.3, application/openmetrics-text;q=0.4",
        ] {
            assert_eq!(negotiate(field), Format::OpenMetrics, "{field}");
        }
    }

    #[test]
    fn serves_classic_format_to_other_clients() {
        for field in [
            "",
            "*/*",
            "text/plain",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain;version=0.0.4, application/openmetrics-text;q=0.9",
            "application/openmetrics-text;q=0.2, text/*;q=0.3",
            "application/openmetrics-text;q=0, */*",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=high",
            "application/json",
            ";;,,=",
        ] {
            assert_eq!(negotiate(field), Format::Classic, "{field}");
        }
        assert_eq!(Format::negotiate(std::iter::empty()), Format::Classic);
    }

    #[test]
    fn merges_several_accept_fields() {
        let fields = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(Format::negotiate(fields.into_iter()), Format::OpenMetrics);
    }

    #[test]
    fn classic_metadata_has_the_names_of_samples() {
        let open = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# TYPE\"} 1\n# HELP b What.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Now.\n# TYPE c gauge\nc 2.0\n# EOF\n";
        let classic = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\n\
                       a_bytes_total{x=\"# TYPE\"} 1\n# HELP b_info What.\n# TYPE b_info gauge\n\
                       b_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 2.0\n";
        assert_eq!(classic_from_openmetrics(open), classic);
    }
}
