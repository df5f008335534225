//! Tests of refusals and of the explanations on both sides, with the real accept and connect code.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::HandshakeKind;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};

use crate::Owner;
use crate::client::{Balancing, Chunks, Connector, Pool, PoolSettings};
use crate::tls::accept::{AcceptError, accept, identity};
use crate::tls::connect::connect;
use crate::tls::reason::Reason;
use crate::tls::rotation::RotatingClient;
use crate::tls::{ClientTls, ServerTls, TlsVersion};

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let (params, key) = (authority(name), KeyPair::generate().unwrap());
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            directory,
        }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Returns a certificate and its key in PEM, for a server or a client.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "leaf");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a revocation list with this serial number, and returns its path.
    fn list(&self, name: &str, revoked: u8, next_update: i32) -> PathBuf {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: vec![revoked].into(),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let file = self.directory.path().join(name);
        let list = params.signed_by(&self.issuer).unwrap();
        std::fs::write(&file, list.pem().unwrap()).unwrap();
        file
    }

    pub(super) fn server(&self) -> ServerTls {
        let (cert_pem, key) = self.sign(|_| {});
        ServerTls {
            cert_pem,
            key_pem: key.as_str().into(),
            client_ca_file: self.ca(),
            ..ServerTls::default()
        }
    }

    pub(super) fn client(&self, change: impl FnOnce(&mut CertificateParams)) -> ClientTls {
        let (cert_pem, key) = self.sign(change);
        ClientTls {
            ca_file: self.ca(),
            cert_pem,
            key_pem: key.as_str().into(),
            ..ClientTls::default()
        }
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub(super) fn spiffe(params: &mut CertificateParams) {
    let id = Ia5String::try_from("spiffe://zone.example/ns/a/sa/agent").unwrap();
    params.subject_alt_names = vec![SanType::URI(id)];
}

/// Serves one connection as the server does. Returns the client's identity, or the refusal.
async fn serve(
    listener: TcpListener,
    server: ServerTls,
) -> Result<Option<Arc<str>>, Option<(Reason, String)>> {
    let (stream, _) = listener.accept().await.unwrap();
    let config = Arc::new(server.build(&[b"h2"]).unwrap());
    let stream = accept(config, stream).await.map_err(|error| match error {
        AcceptError::TlsRefusal(refused) => Some((refused.reason, refused.text)),
        AcceptError::Network(_) => None,
    })?;
    let client = identity(&stream);
    let answer = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
    Ok(client)
}

/// Sends one request as exporters do.
async fn send(client: Option<&ClientTls>, address: SocketAddr) -> Result<(), String> {
    let tls = client.map(|client| {
        let name = client.server_name("127.0.0.1").unwrap();
        let owner = Owner::new(&"otlp_grpc".parse().unwrap(), "exporter");
        (RotatingClient::new(client, &[b"h2"], owner).unwrap(), name)
    });
    let scheme = if tls.is_some() { "https" } else { "http" };
    let pool = Pool::new(
        Connector::new("127.0.0.1", address.port(), tls),
        PoolSettings {
            connections: 1,
            balancing: Balancing::PickFirst,
            keepalive: None,
            wait_for_ready: false,
            receive_window: 1 << 16,
            send_buffer: 1 << 16,
        },
    );
    let request = || {
        // More than one segment, so that the server gets more data after a bad certificate.
        let body = Chunks::new(vec![Bytes::from(vec![7; 60_000])].into());
        let request = Request::post(format!("{scheme}://127.0.0.1/"));
        request.version(http::Version::HTTP_2).body(body).unwrap()
    };
    let answer = pool.send(request).await;
    answer.map(drop).map_err(|error| error.to_string())
}

/// Connects both sides and returns their outcomes.
async fn meet(
    client: &ClientTls,
    server: &ServerTls,
) -> (
    Result<Option<Arc<str>>, (Reason, String)>,
    Result<(), String>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (served, sent) = tokio::join!(serve(listener, server.clone()), send(Some(client), address));
    (served.map_err(|error| error.expect("a reason")), sent)
}

#[tokio::test]
async fn refusal_is_explained_to_client_and_operator() {
    let (ours, theirs) = (Authority::new("our CA"), Authority::new("their CA"));
    let namesake = Authority::new("our CA");
    let serial = |params: &mut CertificateParams| params.serial_number = Some(vec![77].into());
    let named = |names: &[&str]| ServerTls {
        allowed_client_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..ours.server()
    };
    let listed = |file: PathBuf| ServerTls {
        client_crl_file: file,
        ..ours.server()
    };
    let intermediate = Authority::new("unused");
    let under_intermediate = {
        let (params, key) = (authority("middle CA"), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &ours.issuer).unwrap();
        let middle = Authority {
            issuer: Issuer::new(params, key),
            directory: intermediate.directory,
        };
        let mut client = middle.client(|_| {});
        client.cert_pem.push_str(&certificate.pem());
        client.ca_file = ours.ca();
        client
    };
    let table = [
        (
            ours.server(),
            ClientTls {
                ca_file: ours.ca(),
                ..ClientTls::default()
            },
            Reason::NoCertificate,
            vec!["set tls::cert_file"],
            vec![
                "CertificateRequired",
                "set tls::cert_file and tls::key_file",
            ],
        ),
        (
            ours.server(),
            ClientTls {
                ca_file: ours.ca(),
                ..theirs.client(|_| {})
            },
            Reason::UnknownAuthority,
            vec!["\"CN=leaf\"", "issued by \"CN=their CA\"", "ca.pem"],
            vec!["UnknownCA", "client_ca_file"],
        ),
        (
            ours.server(),
            ClientTls {
                ca_file: ours.ca(),
                ..namesake.client(|_| {})
            },
            Reason::UnknownAuthority,
            vec!["another \"CN=our CA\"", "ca.pem"],
            vec!["DecryptError", "client_ca_file"],
        ),
        (
            ours.server(),
            ClientTls {
                ca_file: namesake.ca(),
                ..ours.client(|_| {})
            },
            Reason::Distrusted,
            vec!["tls::ca_file"],
            vec!["another \"CN=our CA\"", "tls::ca_file"],
        ),
        (
            ours.server(),
            ours.client(|params| {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 2, 3);
            }),
            Reason::Expired,
            vec!["\"CN=leaf\" expired on 2021-02-03 00:00:00 UTC"],
            vec!["CertificateExpired", "renew tls::cert_file"],
        ),
        (
            ours.server(),
            ours.client(|params| params.not_before = date_time_ymd(2999, 1, 1)),
            Reason::NotYetValid,
            vec!["not valid before 2999-01-01", "clock"],
            vec!["CertificateExpired", "not valid yet"],
        ),
        (
            named(&["agent.example", "spiffe://zone.example/ns/b/sa/*"]),
            ours.client(spiffe),
            Reason::NameNotAllowed,
            vec![
                "has the names: spiffe://zone.example/ns/a/sa/agent;",
                "allows only: agent.example, spiffe://zone.example/ns/b/sa/*",
            ],
            vec!["AccessDenied", "allowed_client_names"],
        ),
        (
            listed(ours.list("revoked.pem", 77, 2999)),
            ours.client(serial),
            Reason::Revoked,
            vec!["4d", "revoked.pem", "is revoked"],
            vec!["CertificateRevoked", "has been revoked"],
        ),
        (
            listed(ours.list("old.pem", 1, 2021)),
            ours.client(serial),
            Reason::RevocationUnknown,
            vec!["old.pem) expired on 2021-01-01"],
            vec!["UnknownCA", "revocation list"],
        ),
        (
            listed(ours.list("leaf-only.pem", 1, 2999)),
            under_intermediate.clone(),
            Reason::RevocationUnknown,
            vec!["leaf-only.pem", "\"CN=middle CA\" issued"],
            vec!["UnknownCA"],
        ),
        (
            ours.server(),
            ours.client(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            Reason::BadCertificate,
            vec!["clientAuth"],
            vec!["UnsupportedCertificate", "check the server's log"],
        ),
        (
            ServerTls {
                min_version: Some(TlsVersion::V1_3),
                ..ours.server()
            },
            ClientTls {
                max_version: Some(TlsVersion::V1_2),
                ..ours.client(|_| {})
            },
            Reason::Version,
            vec!["set tls::min_version to \"1.2\" here"],
            vec!["ProtocolVersion", "set tls::min_version to \"1.2\""],
        ),
        (
            ServerTls {
                max_version: Some(TlsVersion::V1_2),
                ..ours.server()
            },
            ClientTls {
                min_version: Some(TlsVersion::V1_3),
                ..ours.client(|_| {})
            },
            Reason::Version,
            vec!["TLS"],
            vec!["set tls::min_version to \"1.2\""],
        ),
        (
            ServerTls {
                curve_preferences: vec!["P384".to_owned()],
                ..ours.server()
            },
            ClientTls {
                curve_preferences: vec!["X25519".to_owned()],
                ..ours.client(|_| {})
            },
            Reason::Parameters,
            vec!["NoKxGroupsInCommon", "tls::curve_preferences"],
            vec!["HandshakeFailure", "tls::curve_preferences"],
        ),
        (
            ours.server(),
            ClientTls {
                ca_file: theirs.ca(),
                ..ours.client(|_| {})
            },
            Reason::Distrusted,
            vec![
                "does not trust this server's certificate",
                "UnknownCA",
                "tls::ca_file",
            ],
            vec!["issued by \"CN=our CA\"", "tls::ca_file", "ca.pem"],
        ),
        (
            ours.server(),
            ClientTls {
                server_name_override: "zone.example".to_owned(),
                ..ours.client(|_| {})
            },
            Reason::Distrusted,
            vec!["BadCertificate"],
            vec![
                "not for \"zone.example\" but for: 127.0.0.1",
                "tls::server_name_override",
            ],
        ),
        (
            ours.server(),
            ClientTls {
                crl_file: ours.list("other.pem", 1, 2021),
                ..ours.client(|_| {})
            },
            Reason::Distrusted,
            vec!["UnknownCA"],
            vec!["tls::crl_file", "other.pem) expired on 2021-01-01"],
        ),
    ];
    for (server, client, reason, here, there) in table {
        let (served, sent) = meet(&client, &server).await;
        let (found, text) = served.expect_err(reason.name());
        let told = sent.expect_err(reason.name());
        assert_eq!(found, reason, "{text}; {told}");
        for words in here {
            assert!(text.contains(words), "{reason:?}: \"{words}\" in {text}");
        }
        for words in there {
            assert!(told.contains(words), "{reason:?}: \"{words}\" in {told}");
        }
    }
    // The same lists, and all required ones.
    let all_lists = ours.list("all.pem", 1, 2999);
    let (served, sent) = meet(&ours.client(serial), &listed(all_lists)).await;
    assert_eq!((served.unwrap().as_deref(), sent), (Some("leaf"), Ok(())));
    let (served, sent) = meet(&under_intermediate, &ours.server()).await;
    assert_eq!((served.unwrap().as_deref(), sent), (Some("leaf"), Ok(())));
    let (served, sent) = meet(
        &ours.client(spiffe),
        &named(&["spiffe://ZONE.example/ns/*/sa/agent"]),
    )
    .await;
    let id = "spiffe://zone.example/ns/a/sa/agent";
    assert_eq!((served.unwrap().as_deref(), sent), (Some(id), Ok(())));
}

#[tokio::test]
async fn identity_is_the_allowed_name() {
    use rustls_pki_types::pem::PemObject as _;
    let ours = Authority::new("our CA");
    let (first, second) = (
        "spiffe://zone.example/ns/other/sa/agent",
        "spiffe://zone.example/ns/a/sa/agent",
    );
    let (cert, _) = ours.sign(|params| {
        let uri = |text: &str| SanType::URI(Ia5String::try_from(text).unwrap());
        params.subject_alt_names = vec![uri(first), uri(second)];
    });
    let certificate = rustls_pki_types::CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    for (allowed, expected) in [(vec![], first), (vec![second.to_owned()], second)] {
        let server = ServerTls {
            allowed_client_names: allowed,
            ..ours.server()
        };
        let owner = Owner::new(&"otlp".parse().unwrap(), "receiver");
        let source = crate::tls::rotation::RotatingServer::new(&server, &[], owner).unwrap();
        let identity = crate::tls::TlsSource::identity(&source, &certificate);
        assert_eq!(identity.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn tls_1_2_client_gets_reason_of_refusal() {
    let (ours, theirs) = (Authority::new("our CA"), Authority::new("their CA"));
    let server = ServerTls {
        min_version: Some(TlsVersion::V1_2),
        ..ours.server()
    };
    let client = ClientTls {
        max_version: Some(TlsVersion::V1_2),
        ca_file: ours.ca(),
        ..theirs.client(|_| {})
    };
    let (served, sent) = meet(&client, &server).await;
    assert_eq!(served.unwrap_err().0, Reason::UnknownAuthority);
    let told = sent.unwrap_err();
    assert!(told.contains("UnknownCA"), "{told}");
}

#[tokio::test]
async fn plaintext_and_tls_mismatches_are_explained() {
    let ours = Authority::new("our CA");
    let config: Arc<rustls::ServerConfig> = Arc::new(ours.server().build(&[b"h2"]).unwrap());
    let start = |tls: Option<Arc<rustls::ServerConfig>>| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let handler: crate::server::SimpleHandler =
            Arc::new(|_| Box::pin(async { Response::new(Full::new(Bytes::new())) }));
        let options = crate::server::ServerOptions {
            protocol: crate::server::Protocol::Http2,
            tls: tls.map(|tls| Arc::new(tls) as Arc<dyn crate::tls::TlsSource>),
            ..crate::server::ServerOptions::default()
        };
        let id = "otlp".parse().unwrap();
        crate::server::serve(
            listener.into(),
            handler,
            options,
            Owner::new(&id, "receiver"),
        )
        .unwrap()
    };
    let (secure, plain) = (start(Some(config)), start(None));
    let (secure, plain) = (
        secure.local_address().unwrap(),
        plain.local_address().unwrap(),
    );

    let told = send(None, secure).await.unwrap_err();
    assert!(
        told.contains("speaks TLS: set tls::insecure to false"),
        "{told}"
    );
    let told = send(Some(&ours.client(|_| {})), plain).await.unwrap_err();
    assert!(
        told.contains("if it speaks plaintext, set tls::insecure to true")
            || told.contains("if the server speaks plaintext, set tls::insecure to true"),
        "{told}"
    );

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let close = async {
        let (mut stream, _) = silent.accept().await.unwrap();
        let mut first = [0; 24];
        stream.read_exact(&mut first).await.unwrap();
    };
    let ((), told) = tokio::join!(close, send(None, address));
    let told = told.unwrap_err();
    assert!(
        told.contains("if the server speaks TLS, set tls::insecure to false"),
        "{told}"
    );

    let mut browser = TcpStream::connect(secure).await.unwrap();
    browser
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    browser.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(
        head.contains(&format!("content-length: {}", body.len())),
        "{answer}"
    );
    assert_eq!(body, "this port speaks TLS; use https://\r\n");

    let mut noise = TcpStream::connect(secure).await.unwrap();
    noise.write_all(&[b'x'; 100_000]).await.unwrap();
    let mut answer = Vec::new();
    noise.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [0x15, 3, 1, 0, 2, 2, 10], "an alert and no reset");
}

/// Performs a handshake and sends a byte each way. Returns the kind of handshake and the identity on the server.
async fn again(
    client: &Arc<rustls::ClientConfig>,
    server: &Arc<rustls::ServerConfig>,
) -> (HandshakeKind, Option<Arc<str>>) {
    let (near, far) = duplex(64 << 10);
    let serving = async {
        let mut stream = accept(server.clone(), far).await.unwrap();
        stream.write_u8(7).await.unwrap();
        stream.flush().await.unwrap();
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        (kind, identity(&stream))
    };
    let calling = async {
        let name = "127.0.0.1".try_into().unwrap();
        let mut stream = connect(client.clone(), name, near).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
    };
    tokio::join!(serving, calling).0
}

#[tokio::test]
async fn session_resumes_with_identity_until_configuration_changes() {
    let ours = Authority::new("our CA");
    for version in [TlsVersion::V1_3, TlsVersion::V1_2] {
        let server = ServerTls {
            max_version: Some(version),
            ..ours.server()
        };
        let client = ClientTls {
            min_version: Some(TlsVersion::V1_2),
            ..ours.client(spiffe)
        };
        let client = Arc::new(client.build(&[]).unwrap());
        let config = Arc::new(server.build(&[]).unwrap());
        let id = Some(Arc::from("spiffe://zone.example/ns/a/sa/agent"));
        assert_eq!(
            again(&client, &config).await,
            (HandshakeKind::Full, id.clone())
        );
        for _ in 0..3 {
            assert_eq!(
                again(&client, &config).await,
                (HandshakeKind::Resumed, id.clone())
            );
        }
        let changed = Arc::new(server.build(&[]).unwrap());
        assert_eq!(again(&client, &changed).await, (HandshakeKind::Full, id));
    }
}

#[test]
fn client_key_mistakes_are_found_at_validation() {
    let ours = Authority::new("our CA");
    let lonely = ServerTls {
        client_ca_file: PathBuf::new(),
        allowed_client_names: vec!["a..b".to_owned()],
        client_crl_file: "/no/such/file".into(),
        client_identity_attribute: "client".to_owned(),
        ..ours.server()
    };
    let keys: Vec<_> = lonely.mistakes().iter().map(|error| error.key).collect();
    assert_eq!(
        keys,
        [
            "allowed_client_names",
            "client_crl_file",
            "client_identity_attribute",
            "allowed_client_names"
        ]
    );
    assert!(lonely.build(&[]).is_err(), "not only validation refuses it");
    let no_list = ServerTls {
        client_crl_file: ours.ca(),
        ..ours.server()
    };
    let error = no_list.build(&[]).unwrap_err();
    assert_eq!(error.key, "client_crl_file");
    assert!(error.reason.contains("no revocation list"), "{error}");
}

#[test]
fn mistakes_in_certificates_and_keys_are_named() {
    let ours = Authority::new("our CA");
    let (cert, key) = ours.sign(|_| {});
    let ca = std::fs::read_to_string(ours.ca()).unwrap();
    let write = |name: &str, text: &str| {
        let file = ours.directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let (cert_file, key_file) = (write("own.pem", &cert), write("own.key", &key));
    let server = |cert_file: &Path, key_file: &Path| {
        let server = ServerTls {
            cert_file: cert_file.to_owned(),
            key_file: key_file.to_owned(),
            ..ServerTls::default()
        };
        server
            .build(&[])
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(server(&cert_file, &key_file), Ok(()));
    assert_eq!(
        server(&write("both.pem", &format!("{key}{cert}{ca}")), &key_file),
        Ok(())
    );
    let table = [
        (
            server(&write("turned.pem", &format!("{ca}{cert}")), &key_file),
            vec![
                "turned.pem is in the wrong order",
                "begins with \"CN=our CA\"",
                "number 2, \"CN=leaf\"",
            ],
        ),
        (
            server(&cert_file, &write("other.key", &ours.sign(|_| {}).1)),
            vec!["other.key does not belong to", "\"CN=leaf\" in", "own.pem"],
        ),
        (
            server(&cert_file, &write("encrypted.key", encrypted)),
            vec!["is encrypted", "openssl pkey -in"],
        ),
        (
            server(&key_file, &key_file),
            vec!["has a private key and no certificate"],
        ),
        (
            server(&cert_file, &cert_file),
            vec!["has a certificate and no private key"],
        ),
        (
            server(
                &cert_file,
                &write("cut.key", key.trim_end().trim_end_matches('-')),
            ),
            vec!["cut.key is damaged"],
        ),
    ];
    for (outcome, expected) in table {
        let error = outcome.unwrap_err();
        for words in expected {
            assert!(error.contains(words), "\"{words}\" in {error}");
        }
        let secret = key.lines().nth(1).unwrap();
        assert!(!error.contains(secret));
    }
}

#[test]
fn expired_certificate_is_a_warning_with_date() {
    let ours = Authority::new("our CA");
    let warnings = |change: fn(&mut CertificateParams)| {
        let (cert_pem, key) = ours.sign(change);
        let server = ServerTls {
            cert_pem,
            key_pem: key.as_str().into(),
            client_ca_file: ours.ca(),
            client_crl_file: ours.list("old.pem", 1, 2021),
            min_version: Some(TlsVersion::V1_3),
            cipher_suites: vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()],
            ..ServerTls::default()
        };
        assert_eq!(server.mistakes(), []);
        server.warnings(std::time::SystemTime::now())
    };
    let found = warnings(|params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 2, 3);
    });
    let keys: Vec<_> = found.iter().map(|warning| warning.key).collect();
    assert_eq!(keys, ["cipher_suites", "cert_file", "client_crl_file"]);
    assert!(
        found[1].reason.contains("expired on 2021-02-03"),
        "{}",
        found[1]
    );
    assert!(found[2].reason.contains("\"CN=our CA\""), "{}", found[2]);
    let found = warnings(|params| params.not_before = date_time_ymd(2999, 1, 1));
    assert!(
        found[1].reason.contains("not valid before 2999"),
        "{}",
        found[1]
    );
}

#[test]
fn client_keys_on_a_server_give_a_warning() {
    let ours = Authority::new("our CA");
    let server = ServerTls {
        ca_file: ours.ca(),
        include_system_ca_certs_pool: true,
        ..ours.server()
    };
    assert!(server.mistakes().is_empty());
    let warnings = server.warnings(std::time::SystemTime::now());
    let keys: Vec<_> = warnings.iter().map(|warning| warning.key).collect();
    assert_eq!(keys, ["ca_file", "include_system_ca_certs_pool"]);
    let told = warnings[0].to_string();
    assert!(told.contains("set client_ca_file"), "{told}");
}
