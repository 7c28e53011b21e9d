// SPDX-License-Identifier: MIT OR Apache-2.0
//! The certificates that a listener or peer shows and believes, and until when they hold.

use super::config::settings::TlsSettings;
use jiff::Timestamp;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
};
use std::time::Duration;
use webpki::{EndEntityCert, Error, KeyUsage};

/// What the files of one `tls` table hold.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) written: TlsSettings,
    /// The own one first, then those between it and the authority.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// The own chain holds no longer than its first certificate that ends.
    pub(crate) fn own_end(&self) -> Option<Timestamp> {
        self.chain.iter().filter_map(not_after).min()
    }

    /// One of several authorities is enough: a file may have the old and the new one.
    pub(crate) fn authority_end(&self) -> Option<Timestamp> {
        self.authorities.iter().filter_map(not_after).max()
    }
}

/// The end of a certificate's validity (RFC 5280 §4.1.2.5). Validity is the first thing that is
/// checked, so that a check at the end of all time tells it.
fn not_after(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let read = EndEntityCert::try_from(certificate).ok()?;
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let verified = read.verify_for_usage(
        algorithms.all,
        &[],
        &[],
        late,
        KeyUsage::server_auth(),
        None,
        None,
    );
    match verified.err()? {
        Error::CertExpired { not_after, .. } => {
            Timestamp::from_second(not_after.as_secs().try_into().ok()?).ok()
        }
        _ => None,
    }
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
    fn the_end_of_a_certificate_is_read_wherever_it_lies() {
        for (year, seconds) in [(2002, 1_009_843_200), (2090, 3_786_912_000)] {
            let found = not_after(&certificate(year)).unwrap();
            assert_eq!(found.as_second(), seconds);
        }
    }

    #[test]
    fn a_chain_ends_with_its_first_and_authorities_with_their_last() {
        let certificates = Certificates {
            written: TlsSettings {
                ca: "ca.pem".into(),
                certificate: "here.pem".into(),
                key: "here-key.pem".into(),
                name: None,
                allow: Vec::new(),
            },
            chain: vec![certificate(2090), certificate(2050)],
            authorities: vec![certificate(2002), certificate(2090)],
        };
        assert_eq!(certificates.own_end(), not_after(&certificate(2050)));
        assert_eq!(certificates.authority_end(), not_after(&certificate(2090)));
    }
}
