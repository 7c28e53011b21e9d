// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--make-certificates`: a certificate authority for the relays of one operator, and a certificate
//! for each relay.

use crate::config::certificates::identity::KEY_LEN_MAX;
use anyhow::Context as _;
use longhaul_command::exit::Refusal;
use longhaul_linux::private_file;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::ServerName;
use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Validity of a certificate in years. The owner of the authority's key issues new ones.
const VALIDITY_YEARS: i16 = 10;

/// Writes `ca.pem` and `ca-key.pem` into `directory` if they are missing, and `NAME.pem` and
/// `NAME-key.pem` for each name. No file is overwritten.
pub(crate) fn make(directory: &Path, names: &[String]) -> anyhow::Result<()> {
    check_names(directory, names)?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let authority = load_or_make_authority(directory)?;
    for name in names {
        let key = KeyPair::generate()?;
        let certificate = relay_params(name)?.signed_by(&key, &authority)?;
        write_new_file(directory, &format!("{name}-key.pem"), &key.serialize_pem())?;
        write_new_file(directory, &format!("{name}.pem"), &certificate.pem())?;
    }
    Ok(())
}

fn check_names(directory: &Path, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let flag = "--make-certificates";
        if ServerName::try_from(name.as_str()).is_err() || name == "ca" {
            return Err(Refusal::usage(format!(
                "{flag}: {name:?} is neither a host name nor an IP address"
            )));
        }
        let path = directory.join(format!("{name}.pem"));
        if path.exists() {
            let path = path.display();
            return Err(Refusal::usage(format!("{flag}: {path} exists already")));
        }
    }
    Ok(())
}

/// Returns the authority of this directory, or makes a new one. Its subject name is always the
/// same, so that its key alone is enough to issue further certificates.
fn load_or_make_authority(directory: &Path) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let params = authority_params()?;
    let path = directory.join("ca-key.pem");
    if path.exists() {
        let key = private_file::read(&path, KEY_LEN_MAX)
            .map_err(|error| Refusal::usage(format!("{}: {error}", path.display())))?;
        let key = KeyPair::from_pem(&key).with_context(|| path.display().to_string())?;
        return Ok(Issuer::new(params, key));
    }
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    write_new_file(directory, "ca-key.pem", &key.serialize_pem())?;
    write_new_file(directory, "ca.pem", &certificate.pem())?;
    Ok(Issuer::new(params, key))
}

fn authority_params() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_subject_and_validity(&mut params, "longhaul relays");
    Ok(params)
}

/// Returns the parameters of a certificate that serves as client and as server certificate.
fn relay_params(name: &str) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    set_subject_and_validity(&mut params, name);
    Ok(params)
}

/// Sets the subject name and the period of validity. The certificate is valid from the day before,
/// since clocks differ.
fn set_subject_and_validity(params: &mut CertificateParams, name: &str) {
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let from = today.yesterday().unwrap_or(today);
    params.not_before = date_time_ymd(from.year().into(), from.month() as u8, from.day() as u8);
    // The 28th is in every month of every year.
    let last = i32::from(today.year() + VALIDITY_YEARS);
    params.not_after = date_time_ymd(last, today.month() as u8, 28);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
}

/// Writes a new file. Private keys are readable by their owner only.
fn write_new_file(directory: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = directory.join(name);
    let mode = if name.ends_with("-key.pem") {
        0o600
    } else {
        0o644
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| path.display().to_string())
}

pub(crate) fn instructions(directory: &Path, names: &[String]) -> String {
    let directory = directory.display();
    let name = &names[0];
    format!(
        "made in {directory}: {}\n\
         Give each relay ca.pem, its own NAME.pem and its own NAME-key.pem, and keep ca-key.pem off \
         all of them.\n\
         On {name}, to a peer and for its own listener:\n\
         \x20   tls = {{ ca = \"ca.pem\", certificate = \"{name}.pem\", key = \"{name}-key.pem\" }}",
        names.join(", ")
    )
}
