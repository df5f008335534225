//! Tests of handshakes between clients and servers with configured sections.

mod cost;
mod refusals;

use std::io::Write;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use std::sync::Arc;

use super::*;
use crate::client::test_server::certificates;

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

/// Performs a handshake and sends a byte each way. Returns the negotiated version and protocol.
async fn handshake(
    client: &ClientTls,
    server: &ServerTls,
) -> Result<(rustls::ProtocolVersion, Option<Vec<u8>>), String> {
    let (near, far) = duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(Arc::new(server.build(&[b"h2", b"http/1.1"]).unwrap()));
    let serving = async move {
        let mut stream = acceptor
            .accept(far)
            .await
            .map_err(|error| error.to_string())?;
        let byte = stream.read_u8().await.map_err(|error| error.to_string())?;
        stream
            .write_u8(byte)
            .await
            .map_err(|error| error.to_string())
    };
    let connector = TlsConnector::from(Arc::new(client.build(&[b"h2"]).unwrap()));
    let name = client.server_name("localhost").unwrap();
    let calling = async move {
        let mut stream = connector
            .connect(name, near)
            .await
            .map_err(|error| error.to_string())?;
        stream
            .write_u8(7)
            .await
            .map_err(|error| error.to_string())?;
        let byte = stream.read_u8().await.map_err(|error| error.to_string())?;
        assert_eq!(byte, 7);
        let connection = stream.get_ref().1;
        let protocol = connection.alpn_protocol().map(<[u8]>::to_vec);
        Ok((connection.protocol_version().unwrap(), protocol))
    };
    let (called, served): (_, Result<(), String>) = tokio::join!(calling, serving);
    called.and_then(|agreed| served.map(|()| agreed))
}

fn server(cert: &str, key: &str) -> ServerTls {
    ServerTls {
        cert_pem: cert.to_owned(),
        key_pem: key.into(),
        ..ServerTls::default()
    }
}

fn trusting(ca: &str) -> ClientTls {
    ClientTls {
        ca_pem: ca.to_owned(),
        ..ClientTls::default()
    }
}

#[tokio::test]
async fn default_min_version_is_tls_1_2() {
    let (ca, cert, key) = certificates();
    let (server, client) = (server(&cert, &key), trusting(&ca));
    let agreed = handshake(&client, &server).await.unwrap();
    assert_eq!(
        agreed,
        (rustls::ProtocolVersion::TLSv1_3, Some(b"h2".to_vec()))
    );
    let old = ClientTls {
        max_version: Some(TlsVersion::V1_2),
        ..client
    };
    let agreed = handshake(&old, &server).await.unwrap();
    assert_eq!(agreed.0, rustls::ProtocolVersion::TLSv1_2);
    let strict = ServerTls {
        min_version: Some(TlsVersion::V1_3),
        ..server
    };
    assert!(handshake(&old, &strict).await.is_err());
}

#[tokio::test]
async fn server_name_is_verified_and_can_be_overridden() {
    let (ca, cert, key) = certificates();
    let server = server(&cert, &key);
    let named = |name: &str| ClientTls {
        server_name_override: name.to_owned(),
        ..trusting(&ca)
    };
    assert!(handshake(&named("127.0.0.1"), &server).await.is_ok());
    assert!(handshake(&named("other.example"), &server).await.is_err());
    let skipping = ClientTls {
        insecure_skip_verify: true,
        ..named("other.example")
    };
    assert!(handshake(&skipping, &server).await.is_ok());
}

#[tokio::test]
async fn client_ca_requires_a_signed_client_certificate() {
    let (ca, cert, key) = certificates();
    let ca_file = file(&ca);
    let mutual = ServerTls {
        client_ca_file: ca_file.path().to_owned(),
        ..server(&cert, &key)
    };
    let anonymous = trusting(&ca);
    assert!(handshake(&anonymous, &mutual).await.is_err());
    let (cert_file, key_file) = (file(&cert), file(&key));
    let known = ClientTls {
        cert_file: cert_file.path().to_owned(),
        key_file: key_file.path().to_owned(),
        ..trusting(&ca)
    };
    assert!(handshake(&known, &mutual).await.is_ok());
    let (_, cert, key) = certificates();
    let stranger = ClientTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..trusting(&ca)
    };
    assert!(handshake(&stranger, &mutual).await.is_err());
}

#[test]
fn every_error_names_its_key_and_file() {
    let (ca, cert, key) = certificates();
    let other_key = certificates().2;
    let junk = file("junk");
    let junk_name = junk.path().display().to_string();
    let client = |change: &dyn Fn(&mut ClientTls)| {
        let mut client = trusting(&ca);
        change(&mut client);
        client.build(&[]).unwrap_err()
    };
    let missing = client(&|c| c.cert_file = "/no/such/file".into());
    assert_eq!(missing.key, "cert_file");
    assert!(missing.reason.contains("/no/such/file"), "{missing}");
    let both = client(&|c| c.ca_file = junk.path().to_owned());
    assert_eq!(
        both.reason,
        "ca_file and ca_pem cannot be combined: remove one of the two"
    );
    let unpaired = client(&|c| c.cert_pem = cert.clone());
    assert!(unpaired.reason.contains("key_file"), "{unpaired}");
    let unpaired = client(&|c| c.key_pem = key.as_str().into());
    assert!(unpaired.reason.contains("cert_file"), "{unpaired}");
    let no_pem = client(&|c| {
        c.ca_pem.clear();
        c.ca_file = junk.path().to_owned();
    });
    assert_eq!(
        no_pem.reason,
        format!("{junk_name} has no certificate in PEM")
    );
    let mismatch = client(&|c| {
        c.cert_pem = cert.clone();
        c.key_pem = other_key.as_str().into();
    });
    assert_eq!(mismatch.key, "cert_file");
    let versions = client(&|c| {
        c.min_version = Some(TlsVersion::V1_3);
        c.max_version = Some(TlsVersion::V1_2);
    });
    assert_eq!(versions.key, "min_version");
    let incomplete = ServerTls::default().build(&[]).unwrap_err();
    assert!(
        incomplete.reason.contains("both certificate and key"),
        "{incomplete}"
    );
}

#[test]
fn private_keys_are_never_printed() {
    let (_, cert, key) = certificates();
    let server = server(&cert, &key);
    let secret = key.lines().nth(1).unwrap();
    assert!(!format!("{server:?}").contains(secret));
    assert!(!serde_yaml::to_string(&server).unwrap().contains(secret));
}
