//! Certificates for tests: an authority, and its files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tempfile::TempDir;

/// A certificate authority, and its files.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    directory: TempDir,
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A certificate with its private key, in PEM.
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// An authority; its certificate is in the file `ca.pem`.
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A unique name, so that authorities cannot be confused.
        let name = format!("authority {}", NUMBER.fetch_add(1, Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        std::fs::write(directory.path().join("ca.pem"), &certificate).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
            directory,
        }
    }

    /// The certificate of the authority, in PEM.
    pub fn pem(&self) -> &str {
        &self.certificate
    }

    /// The path of a file of the authority.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new certificate for 127.0.0.1, good for servers and clients.
    pub fn leaf(&self) -> Leaf {
        self.leaf_of(|_| {})
    }

    /// Makes a certificate with changed parameters.
    pub fn leaf_of(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// The keys `cert_file` and `key_file` with a new certificate for 127.0.0.1.
    pub fn certificate(&self, name: &str) -> String {
        let paths = [
            self.file(&format!("{name}.pem")),
            self.file(&format!("{name}.key")),
        ];
        self.leaf().write(&paths[0], &paths[1]);
        format!(
            "cert_file: '{}', key_file: '{}'",
            paths[0].display(),
            paths[1].display()
        )
    }
}

impl Leaf {
    /// Puts both into files, each replaced by a rename as tools that renew certificates do.
    pub fn write(&self, certificate: &Path, key: &Path) {
        replace(certificate, &self.certificate);
        replace(key, &self.key);
    }
}

/// Replaces a file atomically, so that no reader sees a partial file.
pub fn replace(file: &Path, content: &str) {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, file).unwrap();
}
