// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditional headers of a request: If (RFC 4918 §10.4), If-Match and If-None-Match (RFC 9110 §13).
//!
//! dav-server ignores an If that it can't parse or that names a resource by its path alone, and accepts a token of no
//! existing lock. The site therefore parses the header, and removes it from the request.

use super::target::{Rejection, single_value};
use crate::http::export::meta::Meta;
use dav_server::fs::DavMetaData;
use hyper::{
    HeaderMap, StatusCode,
    header::{
        HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE,
    },
};
use jiff::{Timestamp, civil::DateTime, fmt::rfc2822::DateTimeParser, tz::TimeZone};

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

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    state: ResourceState,
    /// Whether the state must or must not hold.
    expected: bool,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConditionList {
    /// URL of the resource. `None` is the request's own.
    resource: Option<String>,
    conditions: Vec<Condition>,
}

/// Lists of an If header, one of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<ConditionList>);

impl Conditions {
    /// Takes the If header out of a request.
    ///
    /// # Errors
    /// The header can't be parsed. It must not be treated as missing.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, Rejection> {
        let Some(text) = single_value(headers, &IF)? else {
            return Ok(Self::default());
        };
        let read = Self::read(text).ok_or((StatusCode::BAD_REQUEST, "the If header is invalid"))?;
        headers.remove(IF);
        Ok(read)
    }

    fn read(text: &str) -> Option<Self> {
        let (mut lists, mut resource, mut rest) = (Vec::new(), None, text.trim());
        while !rest.is_empty() {
            if let Some(tagged) = rest.strip_prefix('<') {
                let (url, after) = tagged.split_once('>')?;
                (resource, rest) = (Some(url.to_owned()), after.trim_start());
            }
            let (conditions, after) = read_list(rest.strip_prefix('(')?)?;
            let resource = resource.clone();
            lists.push(ConditionList {
                resource,
                conditions,
            });
            rest = after.trim_start();
        }
        let count: usize = lists.iter().map(|list| list.conditions.len()).sum();
        (1..=CONDITIONS_MAX).contains(&count).then_some(Self(lists))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lock tokens that the request sends, whether their lists hold or not.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|list| &list.conditions);
        let token = |condition: &Condition| match &condition.state {
            ResourceState::Locked(token) => Some(token.clone()),
            ResourceState::Tagged(_) => None,
        };
        all.filter_map(token).collect()
    }

    /// Returns whether one list holds. `is` tests the state of a resource.
    pub(crate) fn evaluate(&self, is: impl Fn(Option<&str>, &ResourceState) -> bool) -> bool {
        let holds = |list: &ConditionList| {
            let resource = list.resource.as_deref();
            let mut all = list.conditions.iter();
            all.all(|condition| is(resource, &condition.state) == condition.expected)
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
        conditions.push(Condition {
            state,
            expected: !not,
        });
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
    tag: String,
    /// Last change in seconds since 1970, the precision of HTTP.
    modified: i64,
}

impl Validators {
    pub(crate) fn of(meta: &Meta) -> Option<Self> {
        let modified = Timestamp::try_from(meta.modified().ok()?).ok()?;
        Some(Self {
            tag: format!("\"{}\"", meta.etag()?),
            modified: modified.as_second(),
        })
    }
}

/// Returns the status of a request whose conditions do not hold (RFC 9110 §13.2.2). `reads` tells whether it is a GET
/// or a HEAD. Without validators the resource does not exist.
pub(crate) fn failure(
    headers: &HeaderMap,
    reads: bool,
    validators: Option<&Validators>,
) -> Option<StatusCode> {
    let date = |name| headers.get(name).and_then(date);
    let modified = validators.map(|validators| validators.modified);
    let as_it_was = match tags(headers, &IF_MATCH) {
        Some(tags) => validators
            .is_some_and(|validators| tags.iter().any(|tag| tag_matches(tag, validators, false))),
        None => {
            date(IF_UNMODIFIED_SINCE).is_none_or(|since| modified.is_some_and(|at| at <= since))
        }
    };
    if !as_it_was {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = match tags(headers, &IF_NONE_MATCH) {
        Some(tags) => validators
            .is_some_and(|validators| tags.iter().any(|tag| tag_matches(tag, validators, true))),
        None => {
            reads
                && date(IF_MODIFIED_SINCE)
                    .zip(modified)
                    .is_some_and(|(since, at)| at <= since)
        }
    };
    match (is_known, reads) {
        (false, _) => None,
        (true, true) => Some(StatusCode::NOT_MODIFIED),
        (true, false) => Some(StatusCode::PRECONDITION_FAILED),
    }
}

/// Returns whether a Range applies to the version that the client has (RFC 9110 §13.1.5).
pub(crate) fn range_applies(headers: &HeaderMap, validators: Option<&Validators>) -> bool {
    let Some(text) = headers.get(IF_RANGE) else {
        return true;
    };
    let Some(validators) = validators else {
        return false;
    };
    text.as_bytes().trim_ascii() == validators.tag.as_bytes()
        || date(text) == Some(validators.modified)
}

/// Returns the entity tags of all fields of a name, as bytes: they may contain any byte but control characters.
fn tags<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Vec<&'h [u8]>> {
    let tags = |value: &'h HeaderValue| {
        value
            .as_bytes()
            .split(|&byte| byte == b',')
            .map(<[u8]>::trim_ascii)
    };
    let all = headers.contains_key(name).then(|| headers.get_all(name));
    all.map(|all| all.iter().flat_map(tags).collect())
}

/// Returns whether a tag matches the validators. With `weakly`, weak comparison is used.
fn tag_matches(tag: &[u8], validators: &Validators, weakly: bool) -> bool {
    let strong = if weakly {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    } else {
        tag
    };
    tag == b"*" || strong == validators.tag.as_bytes()
}

/// Parses a date in one of the three formats of HTTP (RFC 9110 §5.6.7). Returns seconds since 1970.
fn date(value: &HeaderValue) -> Option<i64> {
    let text = value.to_str().ok()?.trim();
    if let Ok(time) = DateTimeParser::new().parse_timestamp(text) {
        return Some(time.as_second());
    }
    let forms = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let mut read = forms
        .iter()
        .filter_map(|form| DateTime::strptime(form, text).ok());
    let time = read.next()?.to_zoned(TimeZone::UTC).ok()?;
    Some(time.timestamp().as_second())
}

/// Returns whether the conditions forbid a change. Without validators the resource does not exist.
pub(crate) fn fails_for_change(headers: &HeaderMap, validators: Option<&Validators>) -> bool {
    failure(headers, false, validators).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, locked: &[&str], tag: &str) -> bool {
        let conditions = Conditions::read(text).unwrap();
        conditions.evaluate(|resource, state| match state {
            ResourceState::Locked(token) => {
                resource != Some("/other") && locked.contains(&&**token)
            }
            ResourceState::Tagged(one) => one == tag,
        })
    }

    #[test]
    fn requires_all_conditions_of_one_list() {
        for (text, expected) in [
            ("(<urn:a>)", true),
            ("(<urn:x>)", false),
            ("(Not <urn:x>)", true),
            ("(not<urn:a>)", false),
            ("(<urn:x>) (<urn:a>)", true),
            ("(<urn:a> [\"t]\"])", true),
            ("(<urn:a> [W/\"t]\"])", false),
            ("(<urn:a> Not [\"u\"])", true),
            ("(<DAV:no-lock> [\"t]\"])", false),
            ("(<urn:ax>) (Not <DAV:no-lock>)", true),
            ("</other> (<urn:a>)", false),
            ("</other> (<urn:a>) (Not <urn:b>)", true),
            ("</other> (<urn:a>) </> (<urn:a>)", true),
        ] {
            assert_eq!(holds(text, &["urn:a"], "\"t]\""), expected, "{text}");
        }
        let parsed = Conditions::read("(<a> [\"b\"]) (Not <c>)").unwrap();
        assert_eq!(parsed.tokens(), ["a", "c"]);
    }

    #[test]
    fn rejects_invalid_if_headers() {
        for text in [
            "",
            "x",
            "()",
            "(",
            "(<a>",
            "<a>",
            "<a",
            "(Not)",
            "(a)",
            "([a])",
            "([\"a\"",
            "(<a>) x",
            "(W/\"a\")",
            "([\"])",
        ] {
            assert_eq!(Conditions::read(text), None, "{text}");
        }
        assert!(Conditions::read(&"(<a>)".repeat(CONDITIONS_MAX)).is_some());
        assert!(Conditions::read(&"(<a>)".repeat(CONDITIONS_MAX + 1)).is_none());
    }

    fn failed(fields: &[(HeaderName, &[u8])], reads: bool, there: bool) -> Option<u16> {
        let validators = Validators {
            tag: "\"t\"".to_owned(),
            modified: 784_111_777,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let failed = failure(&headers, reads, there.then_some(&validators));
        failed.map(|status| status.as_u16())
    }

    #[test]
    fn evaluates_entity_tags() {
        for (name, value, there, away) in [
            (IF_MATCH, &b"*"[..], None, Some(412)),
            (IF_MATCH, b"\"a\", \"t\"", None, Some(412)),
            (IF_MATCH, b"\"a\"", Some(412), Some(412)),
            (IF_MATCH, b"W/\"t\"", Some(412), Some(412)),
            (IF_MATCH, b"\"\xe4\"", Some(412), Some(412)),
            (IF_MATCH, b"\"\xe4\", \"t\"", None, Some(412)),
            (IF_NONE_MATCH, b"*", Some(412), None),
            (IF_NONE_MATCH, b"\"t\"", Some(412), None),
            (IF_NONE_MATCH, b"\"\xe4\" , W/\"t\"", Some(412), None),
            (IF_NONE_MATCH, b"\"a\"", None, None),
        ] {
            let fields = [(name, value)];
            assert_eq!(failed(&fields, false, true), there, "{fields:?}");
            assert_eq!(failed(&fields, false, false), away, "{fields:?}");
        }
        assert_eq!(
            failed(&[(IF_NONE_MATCH, b"W/\"t\"")], true, true),
            Some(304)
        );
        let twice: [(_, &[u8]); 2] = [(IF_MATCH, b"\"a\""), (IF_MATCH, b"\"t\"")];
        assert_eq!(failed(&twice, false, true), None);
    }

    #[test]
    fn evaluates_dates_without_entity_tags() {
        let (then, before) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
        );
        for text in [
            then,
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            let since = [(IF_UNMODIFIED_SINCE, text.as_bytes())];
            assert_eq!(failed(&since, false, true), None, "{text}");
            assert_eq!(failed(&since, false, false), Some(412), "{text}");
            let since = [(IF_MODIFIED_SINCE, text.as_bytes())];
            assert_eq!(failed(&since, true, true), Some(304), "{text}");
            assert_eq!(failed(&since, false, true), None, "{text}");
        }
        let since = [(IF_UNMODIFIED_SINCE, before.as_bytes())];
        assert_eq!(failed(&since, false, true), Some(412));
        assert_eq!(failed(&[(IF_UNMODIFIED_SINCE, b"x")], false, true), None);
        assert_eq!(
            failed(&[(IF_MODIFIED_SINCE, before.as_bytes())], true, true),
            None
        );
        // Tags take precedence.
        let both = [
            (IF_MATCH, &b"\"t\""[..]),
            (IF_UNMODIFIED_SINCE, before.as_bytes()),
        ];
        assert_eq!(failed(&both, false, true), None);
        let both = [
            (IF_NONE_MATCH, &b"\"a\""[..]),
            (IF_MODIFIED_SINCE, then.as_bytes()),
        ];
        assert_eq!(failed(&both, true, true), None);
    }
}
