// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMetrics as the classic text format: samples are the same, and metadata names a counter and an
//! info as their samples are named.

/// The classic text of an OpenMetrics exposition.
pub(super) fn from_openmetrics(text: &str) -> String {
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

    #[test]
    fn metadata_is_named_as_samples_are() {
        let open = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# TYPE\"} 1\n# HELP b What.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Now.\n# TYPE c gauge\nc 2.0\n# EOF\n";
        let classic = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\n\
                       a_bytes_total{x=\"# TYPE\"} 1\n# HELP b_info What.\n# TYPE b_info gauge\n\
                       b_info{v=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 2.0\n";
        assert_eq!(from_openmetrics(open), classic);
    }
}
