// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditional headers of a request: If (RFC 4918 §10.4), If-Match and If-None-Match (RFC 9110 §13).

use super::target::single_value;
use crate::http::response::{Outcome, bad_request};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE,
    },
};
use jiff::{civil::DateTime, fmt::rfc2822::DateTimeParser, tz::TimeZone};

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
            Some(text) => Self::read(text).ok_or(bad_request("the If header is invalid")),
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
) -> Option<StatusCode> {
    let date = |name| headers.get(name).and_then(date);
    let modified = validators.map(|validators| validators.modified);
    let has_tag = |name, weakly| {
        let is_one = |tags: Vec<&[u8]>| {
            let mut tags = tags.into_iter();
            validators.is_some_and(|validators| tags.any(|tag| validators.match_tag(tag, weakly)))
        };
        tags(headers, &name).map(is_one)
    };
    let as_it_was = has_tag(IF_MATCH, false).unwrap_or_else(|| {
        date(IF_UNMODIFIED_SINCE).is_none_or(|since| modified.is_some_and(|at| at <= since))
    });
    if !as_it_was {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = has_tag(IF_NONE_MATCH, true).unwrap_or_else(|| {
        let since = date(IF_MODIFIED_SINCE).filter(|_| reads).zip(modified);
        since.is_some_and(|(since, at)| at <= since)
    });
    is_known.then_some(if reads {
        StatusCode::NOT_MODIFIED
    } else {
        StatusCode::PRECONDITION_FAILED
    })
}

/// Returns whether a Range applies to the version that the client has (RFC 9110 §13.1.5).
pub(crate) fn range_applies(headers: &HeaderMap, validators: &Validators) -> bool {
    headers.get(IF_RANGE).is_none_or(|text| {
        text.as_bytes().trim_ascii() == validators.tag.as_bytes()
            || date(text) == Some(validators.modified)
    })
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
        let invalid = "|x|()|(|(<a>|<a>|<a|(Not)|(a)|([a])|([\"a\"|(<a>) x|(W/\"a\")|([\"])";
        for text in invalid.split('|') {
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
        let failed = failed_status(&headers, reads, there.then_some(&validators));
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
