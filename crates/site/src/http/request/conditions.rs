// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditional headers of a request: If (RFC 4918 §10.4), If-Match and If-None-Match (RFC 9110 §13).

use super::target::single_value;
use crate::http::response::{Outcome, Rejection};
use hyper::{
    HeaderMap,
    header::{
        HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE,
    },
};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

const IF: HeaderName = HeaderName::from_static("if");

/// Most conditions in a request. Each may cost an access to a file.
const CONDITIONS_MAX: usize = 64;

/// State that a condition tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceState {
    /// Locked with this token.
    Locked(String),
    /// Has this entity tag, as sent.
    Tagged(String),
}

/// State, and whether it must or must not hold.
type Condition = (ResourceState, bool);

/// Lists of an If header, one of which must hold: the URL of a resource, or `None` for the request's own, and conditions
/// that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<(Option<String>, Vec<Condition>)>);

impl Conditions {
    /// Parses the If header of a request.
    ///
    /// # Errors
    /// The header can't be parsed. It must not be treated as missing.
    pub(crate) fn of(headers: &HeaderMap) -> Outcome<Self> {
        match single_value(headers, &IF)? {
            Some(text) => Self::read(text).ok_or(Rejection(400, "the If header is invalid")),
            None => Ok(Self::default()),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (mut lists, mut resource, mut rest) = (Vec::new(), None, text.trim());
        while !rest.is_empty() {
            if let Some(tagged) = rest.strip_prefix('<') {
                let (url, after) = tagged.split_once('>')?;
                (resource, rest) = (Some(url.to_owned()), after.trim_start());
            }
            let (conditions, after) = read_list(rest.strip_prefix('(')?)?;
            lists.push((resource.clone(), conditions));
            rest = after.trim_start();
        }
        let count: usize = lists.iter().map(|(_, conditions)| conditions.len()).sum();
        (1..=CONDITIONS_MAX).contains(&count).then_some(Self(lists))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lock tokens that the request sends, whether their lists hold or not.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|(_, conditions)| conditions);
        let token = |(state, _): &Condition| match state {
            ResourceState::Locked(token) => Some(token.clone()),
            ResourceState::Tagged(_) => None,
        };
        all.filter_map(token).collect()
    }

    /// Returns whether one list holds. `is` tests the state of a resource.
    pub(crate) fn evaluate(&self, is: impl Fn(Option<&str>, &ResourceState) -> bool) -> bool {
        let holds = |(resource, conditions): &(Option<String>, Vec<Condition>)| {
            let mut all = conditions.iter();
            all.all(|(state, expected)| is(resource.as_deref(), state) == *expected)
        };
        self.is_empty() || self.0.iter().any(holds)
    }
}

/// Parses a list after its opening parenthesis. Returns the conditions and the rest of the text.
fn read_list(mut rest: &str) -> Option<(Vec<Condition>, &str)> {
    let mut conditions = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(')') {
            return (!conditions.is_empty()).then_some((conditions, after));
        }
        let not = rest
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case("not"));
        if not {
            rest = rest[3..].trim_start();
        }
        let (state, after) = match rest.strip_prefix('<') {
            Some(token) => {
                let (token, after) = token.split_once('>')?;
                (ResourceState::Locked(token.to_owned()), after)
            }
            None => read_tag(rest.strip_prefix('[')?)?,
        };
        conditions.push((state, !not));
        rest = after;
    }
}

/// Parses an entity tag, which may contain a bracket.
fn read_tag(rest: &str) -> Option<(ResourceState, &str)> {
    let quoted = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
    let after = quoted.split_once('"')?.1;
    let tag = &rest[..rest.len() - after.len()];
    Some((
        ResourceState::Tagged(tag.to_owned()),
        after.strip_prefix(']')?,
    ))
}

/// Validators of a resource (RFC 9110 §8.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validators {
    /// Entity tag as sent. It is never weak.
    pub(crate) tag: String,
    /// Last change in seconds since 1970, the precision of HTTP.
    pub(crate) modified: i64,
}

impl Validators {
    /// Returns whether an entity tag matches. With `weakly`, weak comparison is used.
    fn match_tag(&self, tag: &[u8], weakly: bool) -> bool {
        let strong = tag.strip_prefix(b"W/").filter(|_| weakly).unwrap_or(tag);
        tag == b"*" || strong == self.tag.as_bytes()
    }
}

/// Returns the status of a request whose conditions do not hold (RFC 9110 §13.2.2). `reads` tells whether it is a GET
/// or a HEAD. Without validators the resource does not exist.
pub(crate) fn failed_status(
    headers: &HeaderMap,
    reads: bool,
    validators: Option<&Validators>,
) -> Option<u16> {
    let date = |name| headers.get(name).and_then(date);
    let modified = validators.map(|validators| validators.modified);
    // Tags may contain any byte but control characters.
    let has_tag = |name: HeaderName, weakly| {
        let values = headers.get_all(name).iter();
        let tags = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        let mut tags = tags.map(<[u8]>::trim_ascii).peekable();
        let matches = |tag| validators.is_some_and(|own| own.match_tag(tag, weakly));
        tags.peek().is_some().then(|| tags.any(matches))
    };
    let as_it_was = has_tag(IF_MATCH, false).unwrap_or_else(|| {
        date(IF_UNMODIFIED_SINCE).is_none_or(|since| modified.is_some_and(|at| at <= since))
    });
    let is_known = has_tag(IF_NONE_MATCH, true).unwrap_or_else(|| {
        let since = date(IF_MODIFIED_SINCE).filter(|_| reads).zip(modified);
        since.is_some_and(|(since, at)| at <= since)
    });
    match (as_it_was, is_known) {
        (true, false) => None,
        (true, true) if reads => Some(304),
        _ => Some(412),
    }
}

/// Returns whether a Range applies to the version that the client has (RFC 9110 §13.1.5).
pub(crate) fn range_applies(headers: &HeaderMap, validators: &Validators) -> bool {
    headers.get(IF_RANGE).is_none_or(|text| {
        text.as_bytes().trim_ascii() == validators.tag.as_bytes()
            || date(text) == Some(validators.modified)
    })
}

/// Parses a date of HTTP (RFC 9110 §5.6.7). Returns seconds since 1970. Files may be older, and then their dates are in
/// the first of the three forms.
fn date(value: &HeaderValue) -> Option<i64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(time) = DateTimeParser::new().parse_timestamp(text) {
        return Some(time.as_second());
    }
    let time = Timestamp::try_from(httpdate::parse_http_date(text).ok()?);
    Some(time.ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        let conditions = Conditions::read(text).unwrap();
        conditions.evaluate(|resource, state| match state {
            ResourceState::Locked(token) => resource != Some("/other") && token == "urn:a",
            ResourceState::Tagged(tag) => tag == "\"t]\"",
        })
    }

    #[test]
    fn requires_all_conditions_of_one_list() {
        for text in [
            "(<urn:a>)",
            "(Not <urn:x>)",
            "(<urn:x>) (<urn:a>)",
            "(<urn:a> [\"t]\"])",
            "(<urn:a> Not [\"u\"])",
            "(<urn:ax>) (Not <DAV:no-lock>)",
            "</other> (<urn:a>) (Not <urn:b>)",
            "</other> (<urn:a>) </> (<urn:a>)",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in [
            "(<urn:x>)",
            "(not<urn:a>)",
            "(<urn:a> [W/\"t]\"])",
            "(<DAV:no-lock> [\"t]\"])",
            "</other> (<urn:a>)",
        ] {
            assert!(!holds(text), "{text}");
        }
        let parsed = Conditions::read("(<a> [\"b\"]) (Not <c>)").unwrap();
        assert_eq!(parsed.tokens(), ["a", "c"]);
    }

    #[test]
    fn rejects_invalid_if_headers() {
        let invalid = "|x|()|(|(<a>|<a>|<a|(Not)|(a)|([a])|([\"a\"|(<a>) x|(W/\"a\")|([\"])";
        for text in invalid.split('|') {
            assert_eq!(Conditions::read(text), None, "{text}");
        }
        assert!(Conditions::read(&"(<a>)".repeat(CONDITIONS_MAX)).is_some());
        assert!(Conditions::read(&"(<a>)".repeat(CONDITIONS_MAX + 1)).is_none());
    }

    /// Status of a GET, of a change, and of a change of a missing file.
    fn failed(fields: &[(HeaderName, &str)]) -> [Option<u16>; 3] {
        let validators = Validators {
            tag: "\"t\"".to_owned(),
            modified: 784_111_777,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            // As HeaderValue::from_str, but for the bytes of Latin-1.
            let bytes: Vec<u8> = value.chars().map(|c| c as u8).collect();
            headers.append(name, HeaderValue::from_bytes(&bytes).unwrap());
        }
        [(true, true), (false, true), (false, false)].map(|(reads, exists)| {
            failed_status(&headers, reads, Some(&validators).filter(|_| exists))
        })
    }

    #[test]
    fn evaluates_entity_tags_and_dates() {
        const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
        let (as_it_was, changed) = ([None, None, Some(412)], [Some(412); 3]);
        let (known, unknown) = ([Some(304), Some(412), None], [None; 3]);
        for (fields, wanted) in [
            (&[(IF_MATCH, "*")][..], as_it_was),
            (&[(IF_MATCH, "\"a\", \"t\"")], as_it_was),
            (&[(IF_MATCH, "\"a\""), (IF_MATCH, "\"t\"")], as_it_was),
            (
                &[(IF_MATCH, "\"t\""), (IF_UNMODIFIED_SINCE, BEFORE)],
                as_it_was,
            ),
            (&[(IF_MATCH, "\"a\"")], changed),
            (&[(IF_MATCH, "W/\"t\"")], changed),
            (&[(IF_MATCH, "\"ä\"")], changed),
            (&[(IF_MATCH, "\"ä\", \"t\"")], as_it_was),
            (&[(IF_NONE_MATCH, "\"ä\" , W/\"t\"")], known),
            (&[(IF_NONE_MATCH, "*")], known),
            (&[(IF_NONE_MATCH, "\"a\" , W/\"t\"")], known),
            (
                &[(IF_NONE_MATCH, "\"a\""), (IF_MODIFIED_SINCE, THEN)],
                unknown,
            ),
            (&[(IF_UNMODIFIED_SINCE, THEN)], as_it_was),
            (
                &[(IF_UNMODIFIED_SINCE, "Sun Nov  6 08:49:37 1994")],
                as_it_was,
            ),
            (
                &[(IF_UNMODIFIED_SINCE, "Sunday, 06-Nov-94 08:49:37 GMT")],
                as_it_was,
            ),
            (&[(IF_UNMODIFIED_SINCE, BEFORE)], changed),
            (
                &[(IF_UNMODIFIED_SINCE, "Wed, 31 Dec 1969 23:43:20 GMT")],
                changed,
            ),
            (&[(IF_UNMODIFIED_SINCE, "x")], unknown),
            (&[(IF_MODIFIED_SINCE, THEN)], [Some(304), None, None]),
            (&[(IF_MODIFIED_SINCE, BEFORE)], unknown),
        ] {
            assert_eq!(failed(fields), wanted, "{fields:?}");
        }
    }
}
