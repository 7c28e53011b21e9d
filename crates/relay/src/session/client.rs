// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access control: the PROXY protocol, addresses, TLS, users and passwords.

use crate::{
    config::{listener::Kind, settings::SendProxy, users::Users},
    faults::{misconfiguration::DenialReason, warnings::PasswordOutcome},
    relay::Relay,
    route::request::Request,
    session::Session,
};
use longhaul_admission::penalties::Login;
use longhaul_protocol::networks::{Prefix, network};
use longhaul_protocol::{
    failure::Failure,
    proxy_protocol::{Header, bytes_missing, encode_v1, encode_v2, parse},
};
use longhaul_transport::{
    channel::read_some,
    tls::Tls,
    transport::{TransportStream, canonical},
};
use sha2::{Digest as _, Sha256};
use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

impl Session {
    /// Reads the PROXY header, in which the sender names its client.
    pub(crate) async fn read_proxy_header(&mut self) -> Result<(), Failure> {
        if !self.is_known(self.client.sender) {
            return Err(Failure::NotAllowed);
        }
        let limit = self.setup.config.limits.handshake_timeout;
        let read = timeout(limit, read_header(&self.client.stream)).await;
        let header = read.unwrap_or(Err(Failure::HandshakeTimeout));
        if header == Err(Failure::BadRequest) {
            self.refuse(&DenialReason::NoProxyHeader);
        }
        let header = header?;
        if let Header::Proxied {
            source,
            destination,
        } = header
        {
            let source = canonical(source);
            self.client.address = source;
            self.client.proxied_destination = Some(destination);
            self.admission.rate_limits = self
                .listener
                .rate_limits(&self.setup.listener_config, source.ip());
            let client_network = Self::client_network(&self.setup.listener_config, source);
            let lookups = self.setup.config.limits.lookups_per_client;
            self.admission.account = self.relay.accounts.get_or_create(client_network, lookups);
        }
        Ok(())
    }

    /// Returns the address that the client connected to: at this relay, or at the proxy before it.
    fn accepted_address(&self) -> Option<SocketAddr> {
        self.client
            .proxied_destination
            .or_else(|| self.client.stream.local_addr().ok())
    }

    /// Acquires a permit of the client's limit on connections.
    pub(crate) fn acquire_connection_permit(&self) -> Result<(), Failure> {
        let left = self.relay.connection_permits.available_permits();
        let most = Relay::connections_max(
            &self.setup.config,
            self.admission.account.client_network,
            left,
        );
        let Some(permit) = self.admission.account.acquire_connection(most) else {
            let listener = format!(
                "{} {}",
                self.setup.listener_config.kind,
                self.listener.name()
            );
            let client = self.client.address.ip();
            let warnings = &self.listener.warnings;
            let open = self
                .relay
                .accounts
                .connections(self.admission.account.client_network);
            warnings.log_client_limit(&listener, client, open);
            return Err(Failure::Exhausted);
        };
        let _ = self.admission.connection_permit.set(permit);
        Ok(())
    }

    /// Returns the reason to refuse the client, if there is one.
    ///
    /// Invariant: no relay forwards for unknown senders. A sender that speaks for others must be
    /// listed. Its clients may be denied as if they had connected themselves.
    pub(crate) fn access_refusal(&self) -> Option<DenialReason> {
        let transparent = matches!(self.setup.listener_config.kind, Kind::Transparent { .. });
        let denied =
            |address: SocketAddr| any_contains(&self.setup.listener_config.deny_from, address);
        if !transparent && !self.is_known(self.client.sender) {
            return Some(DenialReason::NotInAllowFrom);
        }
        (denied(self.client.sender) || denied(self.client.address))
            .then_some(DenialReason::InDenyFrom)
    }

    fn is_known(&self, sender: SocketAddr) -> bool {
        sender.ip().to_canonical().is_loopback()
            || any_contains(&self.setup.listener_config.allow_from, sender)
    }

    /// Makes the TLS handshake within `limit`, if the listener has TLS.
    pub(crate) async fn tls_handshake(&self, limit: Duration) -> Result<(), Failure> {
        let Some(responder) = &self.setup.listener_config.tls else {
            return Ok(());
        };
        let handshake =
            async { Tls::handshake(&self.client.stream, responder.connection()?).await };
        let tls = match timeout(limit, handshake).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return Err(self.refuse(&DenialReason::Tls(error))),
            Err(_) => {
                // Over UDT, a client that gave up looks the same as a silent one.
                if self.client.stream.tcp().is_some() {
                    self.refuse(&DenialReason::NoTlsHandshake);
                }
                return Err(Failure::HandshakeTimeout);
            }
        };
        let _ = self.client.tls.set(tls.into());
        Ok(())
    }

    /// Logs why the client is refused, and returns the failure.
    pub(crate) fn refuse(&self, reason: &DenialReason) -> Failure {
        let listener = format!(
            "{} {}",
            self.setup.listener_config.kind,
            self.listener.name()
        );
        self.listener
            .warnings
            .log_refused_client(&listener, self.client.address.ip(), reason);
        Failure::NotAllowed
    }

    /// Returns the request with a PROXY header in front of its data. Peers pass it on like any byte
    /// of the client.
    pub(super) fn with_proxy_header(&self, request: &Request) -> Option<Request> {
        let (version, destination) = (
            self.setup.listener_config.send_proxy?,
            self.accepted_address()?,
        );
        let header = encode_header(version, self.client.address, destination);
        Some(Request {
            destination: request.destination.clone(),
            hops: request.hops.clone(),
            early_bytes: [header, request.early_bytes.clone()].concat(),
            ..*request
        })
    }
}

/// Reads the PROXY header at the start of a connection, and not a byte more.
pub(crate) async fn read_header(stream: &TransportStream) -> Result<Header, Failure> {
    let mut bytes = Vec::new();
    loop {
        match bytes_missing(&bytes).map_err(|_| Failure::BadRequest)? {
            0 => break,
            more => match read_some(stream, &mut bytes, more).await {
                Ok(1..) => {}
                _ => return Err(Failure::ClientGone),
            },
        }
    }
    match parse(&bytes) {
        Ok(Some((header, _))) => Ok(header),
        _ => Err(Failure::BadRequest),
    }
}

/// Encodes the PROXY header for a destination: the client's address and the address that it
/// connected to.
pub(crate) fn encode_header(
    version: SendProxy,
    client: SocketAddr,
    destination: SocketAddr,
) -> Vec<u8> {
    match version {
        SendProxy::V1 => encode_v1(client, destination),
        SendProxy::V2 => encode_v2(client, destination),
    }
}

fn any_contains(prefixes: &[Prefix], address: SocketAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(address.ip()))
}

/// Result of a check of user and password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginResult {
    Accepted,
    Rejected,
    /// Not checked: too many passwords for the same user from the same address wait.
    NotChecked,
}

impl Session {
    /// Checks user and password. A user for whom this address sent wrong passwords waits first, and is refused without
    /// a check if too many wait. Credentials that were accepted once on this connection stay accepted.
    pub(crate) async fn authenticate(
        &self,
        users: &Users,
        user: &[u8],
        password: &[u8],
    ) -> LoginResult {
        let result = self.check_login(users, user, password).await;
        if result == LoginResult::Accepted {
            let user = String::from_utf8_lossy(user).into_owned();
            self.lock_upstream().user = Some(user);
        }
        result
    }

    async fn check_login(&self, users: &Users, user: &[u8], password: &[u8]) -> LoginResult {
        let digest = digest(user, password);
        let known = self.client.login_digest.get();
        if known.is_some_and(|known| **known == digest) {
            return LoginResult::Accepted;
        }
        let login = self.listener.penalties.login(user, &digest);
        if !self.wait_for_check(login).await {
            self.log_password(user, PasswordOutcome::NotChecked);
            return LoginResult::NotChecked;
        }
        let is_right = users.verify(user, password);
        self.count_login(login, is_right);
        if !is_right {
            self.log_password(user, PasswordOutcome::Wrong);
            return LoginResult::Rejected;
        }
        let _ = self.client.login_digest.set(digest.into());
        LoginResult::Accepted
    }

    /// Waits until the login may be checked. Returns false if that would take too long.
    async fn wait_for_check(&self, login: Login) -> bool {
        let (client, delay_max) = self.login_limits();
        let penalties = &self.listener.penalties;
        let Some(wait) = penalties.wait(client, login, delay_max, Instant::now()) else {
            return false;
        };
        if !wait.is_zero() {
            self.listener.counters.count_password_delay();
            sleep(wait).await;
        }
        true
    }

    fn count_login(&self, login: Login, is_right: bool) {
        let (client, delay_max) = self.login_limits();
        let (penalties, now) = (&self.listener.penalties, Instant::now());
        if is_right {
            penalties.succeed(client, login, now);
        } else {
            penalties.fail(client, login, delay_max, now);
        }
    }

    /// Returns the client for whom wrong passwords count, and the longest delay after them.
    fn login_limits(&self) -> (IpAddr, Duration) {
        let client = network(self.client.address.ip());
        (client, self.setup.config.limits.password_delay)
    }

    fn log_password(&self, user: &[u8], outcome: PasswordOutcome) {
        self.listener.counters.count_password(outcome);
        let client = self.client.address.ip();
        let listener = format!(
            "{} {}",
            self.setup.listener_config.kind,
            self.listener.name()
        );
        let warnings = &self.listener.warnings;
        warnings.log_password(&listener, client, user, outcome);
    }
}

fn digest(user: &[u8], password: &[u8]) -> [u8; 32] {
    let user_len = (user.len() as u64).to_be_bytes();
    let hash = Sha256::new().chain_update(user_len);
    hash.chain_update(user)
        .chain_update(password)
        .finalize()
        .into()
}
