// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which exposition format a request for metrics accepts (RFC 9110 §12.5.1).

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
}
