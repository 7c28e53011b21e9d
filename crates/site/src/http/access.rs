// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who asks, and for which export: a token as a Bearer's (RFC 6750) or as the password of Basic (RFC 7617), whose user
//! name is anything.

use super::{
    answer::{Answer, said},
    locks::Locks,
    room::Room,
};
use crate::{
    config::Config,
    keys::tokens::{Grant, Tokens},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use longhaul_transfer::protocol::token::{Fingerprint, Token};
use std::{path::PathBuf, sync::Arc};

/// What a request may do.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) export: String,
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
    pub(super) token: String,
    pub(super) locks: Locks,
    /// For listings, of all requests.
    pub(super) room: Room,
    /// The directories of the other exports.
    pub(super) others: Arc<[PathBuf]>,
}

/// Why a request may do nothing.
#[derive(Debug)]
pub(super) enum Refusal {
    NoToken,
    /// One that is not the site's.
    WrongToken,
    NoExport,
    Unavailable,
}

impl Refusal {
    pub(super) fn answer(&self) -> Answer {
        match self {
            Self::NoToken | Self::WrongToken => {
                let text = "want a token of this site, as a Bearer's or as Basic's password";
                let mut answer = said(StatusCode::UNAUTHORIZED, text);
                let basic = HeaderValue::from_static("Basic realm=\"longhaul site\"");
                answer.headers_mut().insert(WWW_AUTHENTICATE, basic);
                answer
            }
            Self::NoExport => said(StatusCode::NOT_FOUND, "no such export for this token"),
            Self::Unavailable => {
                let why = "the site can't look at tokens";
                said(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }
}

/// Who asks.
#[derive(Debug)]
pub(super) struct Visitor {
    token: String,
    grant: Grant,
}

impl Visitor {
    pub(super) fn of<B>(
        request: &Request<B>,
        config: &Config,
        site: &Fingerprint,
    ) -> Result<Self, Refusal> {
        let shown = request.headers().get(AUTHORIZATION);
        let shown = token(shown.ok_or(Refusal::NoToken)?);
        let shown = shown.filter(|token| token.site == *site);
        let shown = shown.ok_or(Refusal::WrongToken)?;
        let tokens = Tokens::read(&config.state).map_err(|_| Refusal::Unavailable)?;
        let (name, grant) = tokens.find(&shown.secret).ok_or(Refusal::WrongToken)?;
        Ok(Self {
            token: name.to_owned(),
            grant: grant.clone(),
        })
    }

    /// The exports that the token is for.
    pub(super) fn exports<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let names = config.exports.keys().map(String::as_str);
        names.filter(|name| self.grant.is_for(name)).collect()
    }

    pub(super) fn enter(
        &self,
        export: &str,
        config: &Config,
        room: &Room,
    ) -> Result<Access, Refusal> {
        let found = config.exports.get(export);
        let found = found.filter(|_| self.grant.is_for(export));
        let found = found.ok_or(Refusal::NoExport)?;
        Ok(Access {
            export: export.to_owned(),
            directory: found.directory.clone(),
            writable: found.writable && !self.grant.read_only,
            token: self.token.clone(),
            locks: Locks::of(&config.state),
            room: room.clone(),
            others: config.others(export),
        })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

fn token(shown: &HeaderValue) -> Option<Token> {
    let (scheme, rest) = shown.to_str().ok()?.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => rest.trim().parse().ok(),
        "basic" => {
            let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
            pair.split_once(':')?.1.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_transfer::protocol::token::Secret;

    #[test]
    fn a_token_is_a_bearer_s_or_a_password() {
        let wanted = Token {
            site: Fingerprint::of(b"a key"),
            secret: Secret::random().unwrap(),
        };
        let text = wanted.text();
        let basic = |pair: String| format!("Basic {}", STANDARD.encode(pair));
        let read = |header: &str| token(&HeaderValue::from_str(header).unwrap());
        for good in [
            format!("Bearer {text}"),
            format!("bearer  {text}"),
            basic(format!("me:{text}")),
            basic(format!(":{text}")),
        ] {
            assert_eq!(read(&good), Some(wanted.clone()), "{good}");
        }
        for bad in [
            text.clone(),
            basic(text.clone()),
            format!("Digest {text}"),
            "Basic !".into(),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }
}
