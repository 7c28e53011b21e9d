// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to hold for a request to be carried out: If (RFC 4918 §10.4), If-Match and If-None-Match (RFC 9110 §13.1).
//!
//! dav-server takes an If that it can't read, and one that names a resource by its path alone, for none, and a token of no
//! lock at all for a good one. So the site reads it, and takes it out of the request.

use super::target::{Wrong, one};
use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, IF_MATCH, IF_NONE_MATCH},
};

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
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, Wrong> {
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

/// Whether If-Match or If-None-Match are against a request for what has this entity tag; none is not there.
pub(crate) fn are_against(headers: &HeaderMap, tag: Option<&str>) -> bool {
    let names = |name: HeaderName| {
        let mut values = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values.any(|value| {
            let mut tags = value.split(',').map(str::trim);
            tags.any(|one| tag.is_some_and(|tag| one == "*" || one == tag))
        })
    };
    headers.contains_key(IF_MATCH) && !names(IF_MATCH) || names(IF_NONE_MATCH)
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

    #[test]
    fn entity_tags_decide() {
        for (name, value, there, away) in [
            (IF_MATCH, "*", false, true),
            (IF_MATCH, "\"a\", \"t\"", false, true),
            (IF_MATCH, "\"a\"", true, true),
            (IF_NONE_MATCH, "*", true, false),
            (IF_NONE_MATCH, "\"a\"", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(are_against(&headers, Some("\"t\"")), there, "{value}");
            assert_eq!(are_against(&headers, None), away, "{value}");
        }
    }
}
