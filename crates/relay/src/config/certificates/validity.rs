// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates of a listener or peer, and their validity.

use crate::config::{certificates::TlsSettings, location::Part};
use jiff::{SignedDuration, Timestamp};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, TrustAnchor, UnixTime},
};
use std::time::Duration;
use webpki::{EndEntityCert, Error, KeyUsage};

/// Certificates from the files of one `tls` table.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) settings: TlsSettings,
    /// Own certificate first, then intermediate ones.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// Time at which the first certificate of the own chain expires.
    pub(crate) fn own_not_after(&self) -> Option<Timestamp> {
        self.chain.iter().filter_map(not_after).min()
    }

    /// Time at which the last authority expires: one valid authority is enough, so a file may
    /// contain an old and a new one.
    pub(crate) fn authorities_not_after(&self) -> Option<Timestamp> {
        self.authorities.iter().filter_map(not_after).max()
    }
}

/// Role in which a relay uses its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Accepts connections.
    Server,
    /// Makes connections.
    Client,
}

/// Remaining validity below which a warning is given.
const EXPIRY_WARNING: SignedDuration = SignedDuration::from_hours(30 * 24);

impl Certificates {
    /// Problems for which other relays refuse the certificates, now or soon, and the setting that names the file.
    pub(crate) fn problems(&self, purpose: Purpose, now: Timestamp) -> Vec<(Part, String)> {
        let mut problems = Vec::new();
        let files = [
            (
                "tls.certificate",
                &self.settings.certificate,
                self.own_not_before(),
                self.own_not_after(),
            ),
            (
                "tls.ca",
                &self.settings.ca,
                None,
                self.authorities_not_after(),
            ),
        ];
        for (key, file, start, end) in files {
            let problem = time_problem(start, end, now);
            let text = problem.map(|problem| format!("{}: {problem}", file.display()));
            problems.extend(text.map(|text| (Part::value(key), text)));
        }
        let problem = self.chain_problem(purpose, now);
        problems.extend(problem.map(|text| (Part::value("tls.certificate"), text)));
        problems
    }

    fn own_not_before(&self) -> Option<Timestamp> {
        let starts = self.chain.iter().filter_map(|c| Some(validity(c)?.0));
        starts.max()
    }

    /// Problem with the signature chain or the purpose of the own certificate, whatever the time.
    fn chain_problem(&self, purpose: Purpose, now: Timestamp) -> Option<String> {
        let (own, intermediates) = self.chain.split_first()?;
        let (start, end) = validity(own)?;
        let authorities = self.authorities.iter();
        let anchors: Vec<_> = authorities
            .filter_map(|authority| webpki::anchor_from_trusted_cert(authority).ok())
            .collect();
        let time = now.clamp(start, end).as_second();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time.try_into().ok()?));
        let (file, ca) = (
            self.settings.certificate.display(),
            self.settings.ca.display(),
        );
        match verify(own, &anchors, intermediates, time, purpose)? {
            // An intermediate certificate's validity.
            Error::CertExpired { .. } | Error::CertNotValidYet { .. } => None,
            Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
                Some(format!("{file}: it is not signed by an authority in {ca}"))
            }
            // A self-signed certificate, most often.
            Error::CaUsedAsEndEntity => Some(format!(
                "{file}: it is an authority's certificate, which a relay can't show as its own"
            )),
            Error::RequiredEkuNotFoundContext(_) => {
                let side = match purpose {
                    Purpose::Server => "servers",
                    Purpose::Client => "clients",
                };
                Some(format!("{file}: its extended key usage is not for {side}"))
            }
            error => Some(format!("{file}: against {ca}: {error}")),
        }
    }
}

fn time_problem(
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let date = |time: Timestamp| time.strftime("%Y-%m-%d").to_string();
    match (start, end) {
        (_, Some(end)) if end < now => Some(format!("expired on {}", date(end))),
        (Some(start), _) if start > now => Some(format!("not valid before {}", date(start))),
        (_, Some(end)) if end.duration_since(now) < EXPIRY_WARNING => {
            Some(format!("expires on {}", date(end)))
        }
        _ => None,
    }
}

/// Error for which the certificate is not accepted, if any.
fn verify(
    certificate: &CertificateDer<'_>,
    anchors: &[TrustAnchor<'_>],
    intermediates: &[CertificateDer<'_>],
    time: UnixTime,
    purpose: Purpose,
) -> Option<Error> {
    let read = match EndEntityCert::try_from(certificate) {
        Ok(read) => read,
        Err(error) => return Some(error),
    };
    let usage = match purpose {
        Purpose::Server => KeyUsage::server_auth(),
        Purpose::Client => KeyUsage::client_auth(),
    };
    let algorithms = ring::default_provider().signature_verification_algorithms;
    read.verify_for_usage(
        algorithms.all,
        anchors,
        intermediates,
        time,
        usage,
        None,
        None,
    )
    .err()
}

/// Validity of a certificate (RFC 5280 §4.1.2.5). webpki checks the validity first, so checks at
/// both ends of time reveal its limits.
fn validity(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify(certificate, &[], &[], time, Purpose::Server)
    };
    let start = match at(0)? {
        Error::CertNotValidYet { not_before, .. } => not_before.as_secs(),
        // Valid since 1970 or earlier.
        _ => 0,
    };
    let Error::CertExpired { not_after, .. } = at(u64::MAX)? else {
        return None;
    };
    let timestamp = |seconds: u64| Timestamp::from_second(seconds.try_into().ok()?).ok();
    Some((timestamp(start)?, timestamp(not_after.as_secs())?))
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    validity(certificate).map(|(_, end)| end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["here".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn reads_not_after_of_any_date() {
        for (year, seconds) in [(2002, 1_009_843_200), (2090, 3_786_912_000)] {
            let found = not_after(&certificate(year)).unwrap();
            assert_eq!(found.as_second(), seconds);
        }
    }

    #[test]
    fn chain_expires_with_its_first_authorities_with_their_last() {
        let certificates = Certificates {
            settings: TlsSettings {
                ca: "ca.pem".into(),
                certificate: "here.pem".into(),
                key: "here-key.pem".into(),
                name: None,
                allow: Vec::new(),
            },
            chain: vec![certificate(2090), certificate(2050)],
            authorities: vec![certificate(2002), certificate(2090)],
        };
        assert_eq!(certificates.own_not_after(), not_after(&certificate(2050)));
        assert_eq!(
            certificates.authorities_not_after(),
            not_after(&certificate(2090))
        );
    }
}
