// SPDX-License-Identifier: MIT OR Apache-2.0
//! Authentication of a request and its authorization for an export. The token is a Bearer token (RFC 6750) or the
//! password of Basic (RFC 7617) with any user name.

use super::{
    budget::RequestBudget,
    locks::LockStore,
    response::{Outcome, Rejection, not_found, unavailable},
};
use crate::{
    config::Config,
    keys::tokens::{Grant, Tokens},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, HeaderValue},
};
use longhaul_copy::protocol::token::{Fingerprint, Token};
use std::{path::PathBuf, sync::Arc};

/// Rights of a request in one export.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(super) export: String,
    pub(super) directory: PathBuf,
    pub(super) writable: bool,
    pub(super) token: String,
    pub(super) locks: LockStore,
    /// Budget that all requests of this process share.
    pub(super) budget: RequestBudget,
    /// Directories of the other exports.
    pub(super) other_exports: Arc<[PathBuf]>,
}

const NO_TOKEN: Rejection = Rejection(
    StatusCode::UNAUTHORIZED,
    "want a token of this site, as a Bearer's or as Basic's password",
);
pub(super) const WRONG_TOKEN: Rejection = Rejection(
    StatusCode::UNAUTHORIZED,
    "the token is not valid at this site",
);

/// Client that has shown a valid token.
#[derive(Debug)]
pub(super) struct Principal {
    token: String,
    grant: Grant,
}

impl Principal {
    pub(super) async fn authenticate<B>(
        request: &Request<B>,
        config: &Config,
        site: &Fingerprint,
    ) -> Outcome<Self> {
        let presented = request.headers().get(AUTHORIZATION);
        let presented = parse_authorization(presented.ok_or(NO_TOKEN)?);
        let presented = presented.filter(|token| token.site == *site);
        let presented = presented.ok_or(WRONG_TOKEN)?;
        let tokens = Tokens::read_async(&config.state).await;
        let tokens = tokens.map_err(|_| unavailable("the site can't read its tokens"))?;
        let (name, grant) = tokens.find(&presented.secret).ok_or(WRONG_TOKEN)?;
        Ok(Self {
            token: name.to_owned(),
            grant: grant.clone(),
        })
    }

    /// Returns the exports that the token covers.
    pub(super) fn exports<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let names = config.exports.keys().map(String::as_str);
        names.filter(|name| self.grant.covers(name)).collect()
    }

    pub(super) fn authorize(
        &self,
        export: &str,
        config: &Config,
        budget: &RequestBudget,
    ) -> Outcome<Access> {
        let found = config.exports.get(export);
        let found = found.filter(|_| self.grant.covers(export));
        let found = found.ok_or(not_found("no such export for this token"))?;
        Ok(Access {
            export: export.to_owned(),
            directory: found.directory.clone(),
            writable: found.writable && !self.grant.read_only,
            token: self.token.clone(),
            locks: LockStore::new(&config.state),
            budget: budget.clone(),
            other_exports: config.other_exports(export),
        })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
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
        let basic = |pair: String| format!("Basic {}", STANDARD.encode(pair));
        let read = |header: &str| parse_authorization(&HeaderValue::from_str(header).unwrap());
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
