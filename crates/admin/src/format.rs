// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of metrics: which one a request accepts (RFC 9110 §12.5.1), and one written as the other.

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The text format that everything reads, version 0.0.4.
    Classic,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// For the field Content-Type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What the values of Accept fields ask for. OpenMetrics is for those who name it and want
    /// nothing else more; all others get the classic format, also who accepts neither.
    pub(super) fn accepted<'a>(fields: impl Iterator<Item = &'a str>) -> Self {
        let ranges: Vec<Range<'_>> = fields
            .flat_map(|field| field.split(','))
            .filter_map(Range::parse)
            .collect();
        let open = quality(&ranges, Range::is_openmetrics);
        let classic = ["text/plain", "text/*", "*/*"]
            .iter()
            .find_map(|kind| quality(&ranges, |range| range.kind.eq_ignore_ascii_case(kind)));
        match open {
            Some(open) if open > 0.0 && open >= classic.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Classic,
        }
    }
}

/// One media range of an Accept field.
struct Range<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    quality: f64,
}

impl<'a> Range<'a> {
    /// What can't be understood asks for nothing.
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

/// The best quality among those ranges that fit; `None` if none does.
fn quality<'a>(ranges: &[Range<'a>], fits: impl Fn(&Range<'a>) -> bool) -> Option<f64> {
    let fitting = ranges.iter().filter(|range| fits(range));
    fitting.map(|range| range.quality).reduce(f64::max)
}

/// The classic text of an OpenMetrics exposition: samples are the same, and metadata names a counter and an
/// info as their samples are named.
pub(super) fn classic_from_openmetrics(text: &str) -> String {
    let (mut classic, mut help) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        match line.strip_prefix("# ") {
            None => classic.extend([line, "\n"]),
            Some(metadata) => match metadata.split_once(' ') {
                Some(("HELP", rest)) => help = rest.split_once(' '),
                Some(("TYPE", rest)) => classic += &metadata_lines(rest, help.take()),
                // Units are in the names; the end is the end.
                _ => {}
            },
        }
    }
    classic
}

/// `HELP` stands before `TYPE`, and only the latter says how samples are named.
fn metadata_lines(of_type: &str, help: Option<(&str, &str)>) -> String {
    let (family, kind) = of_type.split_once(' ').unwrap_or((of_type, "unknown"));
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

    fn accepted(field: &str) -> Format {
        Format::accepted([field].into_iter())
    }

    #[test]
    fn openmetrics_is_for_those_who_want_it() {
        for field in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "Application/OpenMetrics-Text;Version=\"1.0.0\"",
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "text/plain;q=0.5, application/openmetrics-text;q=0.5",
            "*/*, text/plain;q=0.3, application/openmetrics-text;q=0.4",
        ] {
            assert_eq!(accepted(field), Format::OpenMetrics, "{field}");
        }
    }

    #[test]
    fn everybody_else_gets_the_classic_format() {
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
            assert_eq!(accepted(field), Format::Classic, "{field}");
        }
        assert_eq!(Format::accepted(std::iter::empty()), Format::Classic);
    }

    #[test]
    fn several_fields_are_one_list() {
        let fields = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(Format::accepted(fields.into_iter()), Format::OpenMetrics);
    }

    #[test]
    fn metadata_is_named_as_samples_are() {
        let open = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# TYPE\"} 1\n# HELP b What.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Now.\n# TYPE c gauge\nc 2.0\n# EOF\n";
        let classic = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\n\
                       a_bytes_total{x=\"# TYPE\"} 1\n# HELP b_info What.\n# TYPE b_info gauge\n\
                       b_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 2.0\n";
        assert_eq!(classic_from_openmetrics(open), classic);
    }
}
