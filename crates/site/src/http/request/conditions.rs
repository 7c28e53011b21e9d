// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to hold for a request to be carried out: If (RFC 4918 §10.4), If-Match and If-None-Match (RFC 9110 §13).
//!
//! dav-server takes an If that it can't read, and one that names a resource by its path alone, for none, and a token of no
//! lock at all for a good one. So the site reads it, and takes it out of the request.

use super::target::{Rejection, one};
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

/// Conditions of a request, at most: each may have the site look at a file.
const CONDITIONS_MAX: usize = 64;

/// What a resource may be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Locked, by this token.
    Locked(String),
    /// With this entity tag, as it is sent.
    Tagged(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    state: State,
    /// It is to be so, or not to be so.
    wanted: bool,
}

/// Conditions that hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    /// The URL of the resource; none is the request's own.
    about: Option<String>,
    conditions: Vec<Condition>,
}

/// The lists of an If, of which one has to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<List>);

impl Conditions {
    /// Takes them out of a request.
    ///
    /// # Errors
    /// They can't be read: they must not be taken for none.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, Rejection> {
        let Some(text) = one(headers, &IF)? else {
            return Ok(Self::default());
        };
        let read = Self::read(text).ok_or((StatusCode::BAD_REQUEST, "the If makes no sense"))?;
        headers.remove(IF);
        Ok(read)
    }

    fn read(text: &str) -> Option<Self> {
        let (mut lists, mut about, mut rest) = (Vec::new(), None, text.trim());
        while !rest.is_empty() {
            if let Some(tagged) = rest.strip_prefix('<') {
                let (url, after) = tagged.split_once('>')?;
                (about, rest) = (Some(url.to_owned()), after.trim_start());
            }
            let (conditions, after) = read_list(rest.strip_prefix('(')?)?;
            let about = about.clone();
            lists.push(List { about, conditions });
            rest = after.trim_start();
        }
        let count: usize = lists.iter().map(|list| list.conditions.len()).sum();
        (1..=CONDITIONS_MAX).contains(&count).then_some(Self(lists))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Tokens of locks that the request shows, whether their lists hold or not.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let all = self.0.iter().flat_map(|list| &list.conditions);
        let token = |condition: &Condition| match &condition.state {
            State::Locked(token) => Some(token.clone()),
            State::Tagged(_) => None,
        };
        all.filter_map(token).collect()
    }

    /// Whether they hold: `is` says whether a resource is in a state.
    pub(crate) fn hold(&self, is: impl Fn(Option<&str>, &State) -> bool) -> bool {
        let holds = |list: &List| {
            let about = list.about.as_deref();
            let mut all = list.conditions.iter();
            all.all(|condition| is(about, &condition.state) == condition.wanted)
        };
        self.are_none() || self.0.iter().any(holds)
    }
}

/// Behind the parenthesis: what is in the list, and what is behind it.
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
                (State::Locked(token.to_owned()), after)
            }
            None => read_tag(rest.strip_prefix('[')?)?,
        };
        conditions.push(Condition {
            state,
            wanted: !not,
        });
        rest = after;
    }
}

/// An entity tag, which may have a bracket in it.
fn read_tag(rest: &str) -> Option<(State, &str)> {
    let quoted = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
    let after = quoted.split_once('"')?.1;
    let tag = &rest[..rest.len() - after.len()];
    Some((State::Tagged(tag.to_owned()), after.strip_prefix(']')?))
}

/// By which a client recognizes a resource (RFC 9110 §8.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validators {
    /// As it is sent, and never weak.
    tag: String,
    /// Seconds since 1970, as precise as HTTP has it.
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

/// The answer to a request whose conditions do not hold (RFC 9110 §13.2.2): `reads` says whether it is a GET or a HEAD;
/// without validators nothing is there.
pub(crate) fn failure(
    headers: &HeaderMap,
    reads: bool,
    validators: Option<&Validators>,
) -> Option<StatusCode> {
    let date = |name| headers.get(name).and_then(date);
    let modified = validators.map(|validators| validators.modified);
    let as_it_was = match tags(headers, &IF_MATCH) {
        Some(tags) => validators.is_some_and(|it| tags.iter().any(|tag| names(tag, it, false))),
        None => {
            date(IF_UNMODIFIED_SINCE).is_none_or(|since| modified.is_some_and(|at| at <= since))
        }
    };
    if !as_it_was {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = match tags(headers, &IF_NONE_MATCH) {
        Some(tags) => validators.is_some_and(|it| tags.iter().any(|tag| names(tag, it, true))),
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

/// Whether a Range is of what the client has already (RFC 9110 §13.1.5).
pub(crate) fn range_counts(headers: &HeaderMap, validators: Option<&Validators>) -> bool {
    let Some(text) = headers.get(IF_RANGE) else {
        return true;
    };
    let Some(validators) = validators else {
        return false;
    };
    text.as_bytes().trim_ascii() == validators.tag.as_bytes()
        || date(text) == Some(validators.modified)
}

/// The entity tags of all fields of this name, byte by byte: they may have any but a control character in them.
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

/// Whether a tag is of what is there; `weakly`: also if it says that that may have changed a bit.
fn names(tag: &[u8], validators: &Validators, weakly: bool) -> bool {
    let strong = match weakly {
        true => tag.strip_prefix(b"W/").unwrap_or(tag),
        false => tag,
    };
    tag == b"*" || strong == validators.tag.as_bytes()
}

/// A date, in seconds since 1970, in any of the three forms that there are (RFC 9110 §5.6.7).
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

/// Whether these conditions are against a change of what has these validators; without them it is not there.
pub(crate) fn are_against(headers: &HeaderMap, validators: Option<&Validators>) -> bool {
    failure(headers, false, validators).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, locked: &[&str], tag: &str) -> bool {
        let conditions = Conditions::read(text).unwrap();
        conditions.hold(|about, state| match state {
            State::Locked(token) => about != Some("/other") && locked.contains(&&**token),
            State::Tagged(one) => one == tag,
        })
    }

    #[test]
    fn one_list_has_to_hold_and_all_that_is_in_it() {
        for (text, wanted) in [
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
            assert_eq!(holds(text, &["urn:a"], "\"t]\""), wanted, "{text}");
        }
        let shown = Conditions::read("(<a> [\"b\"]) (Not <c>)").unwrap();
        assert_eq!(shown.tokens(), ["a", "c"]);
    }

    #[test]
    fn what_makes_no_sense_is_no_condition() {
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
    fn entity_tags_decide() {
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
    fn dates_decide_where_no_entity_tag_does() {
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
        // Tags come first.
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
