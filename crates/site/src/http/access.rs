// SPDX-License-Identifier: MIT OR Apache-2.0
//! Authentication of a request and its authorization for an export. The token is a Bearer token (RFC 6750) or the
//! password of Basic (RFC 7617) with any user name.

use super::{
    budget::RequestBudget,
    response::{Outcome, Rejection},
};
use crate::{
    config::Config,
    exports::is_within,
    keys::tokens::{Grant, Tokens},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    Request,
    header::{AUTHORIZATION, HeaderValue},
};
use longhaul_copy::protocol::token::{Fingerprint, Token};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NO_TOKEN: Rejection = Rejection(
    401,
    "want a token of this site, as a Bearer's or as Basic's password",
);
pub(super) const WRONG_TOKEN: Rejection = Rejection(401, "the token is not valid at this site");

/// Rights of a request in one export.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(super) config: Arc<Config>,
    pub(super) export: String,
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
    pub(super) token: String,
    /// Budget that all requests of this process share.
    pub(super) budget: RequestBudget,
}

impl Access {
    /// Returns whether a directory is another export or contains one. Such a directory must stay in place.
    pub(super) fn contains_export(&self, directory: &Path) -> bool {
        let mut exports = self.config.exports.iter();
        exports.any(|(name, other)| *name != self.export && is_within(&other.directory, directory))
    }
}

/// Client that has shown a valid token.
#[derive(Debug)]
pub(super) struct Principal {
    pub(super) token: String,
    grant: Grant,
}

impl Principal {
    pub(super) async fn authenticate<B>(
        request: &Request<B>,
        config: &Config,
        site: &Fingerprint,
    ) -> Outcome<Self> {
        let presented = request.headers().get(AUTHORIZATION).ok_or(NO_TOKEN)?;
        let presented = parse_authorization(presented).filter(|token| token.site == *site);
        let presented = presented.ok_or(WRONG_TOKEN)?;
        let tokens = Tokens::read_async(&config.state).await;
        let tokens = tokens.map_err(|_| Rejection(503, "the site can't read its tokens"))?;
        let (name, grant) = tokens.find(&presented.secret).ok_or(WRONG_TOKEN)?;
        let (token, grant) = (name.to_owned(), grant.clone());
        Ok(Self { token, grant })
    }

    /// Returns the exports that the token covers.
    pub(super) fn exports<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let names = config.exports.keys().map(String::as_str);
        names.filter(|name| self.grant.covers(name)).collect()
    }

    pub(super) fn authorize(
        &self,
        export: &str,
        config: &Arc<Config>,
        budget: &RequestBudget,
    ) -> Outcome<Access> {
        let found = config.exports.get(export);
        let found = found.filter(|_| self.grant.covers(export));
        let found = found.ok_or(Rejection(404, "no such export for this token"))?;
        Ok(Access {
            config: config.clone(),
            export: export.to_owned(),
            directory: found.directory.clone(),
            writable: found.writable && !self.grant.read_only,
            token: self.token.clone(),
            budget: budget.clone(),
        })
    }
}

fn parse_authorization(presented: &HeaderValue) -> Option<Token> {
    let (scheme, rest) = presented.to_str().ok()?.split_once(' ')?;
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
    use longhaul_copy::protocol::token::Secret;

    #[test]
    fn parses_bearer_and_basic_tokens() {
        let wanted = Token {
            site: Fingerprint::of(b"a key"),
            secret: Secret::random().unwrap(),
        };
        let text = wanted.text();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        let read = |header: &str| parse_authorization(&HeaderValue::from_str(header).unwrap());
        assert_eq!(read(&format!("bearer  {text}")), Some(wanted.clone()));
        for user in ["me", ""] {
            assert_eq!(
                read(&basic(&format!("{user}:{text}"))),
                Some(wanted.clone())
            );
        }
        for bad in [&*text, &basic(&text), &format!("Digest {text}"), "Basic !"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
