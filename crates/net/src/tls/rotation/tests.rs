//! Tests of files that change under running servers and clients. The clock of the checks is paused; that of the
//! certificates is not.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::server::{Limits, Protocol, Server, ServerOptions, SimpleHandler, serve};
use tributary_config::ComponentId;

const NONE: tributary_config::units::Duration = tributary_config::units::Duration(Duration::ZERO);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { issuer, pem }
    }

    /// Returns a certificate for `localhost` and its key, in PEM.
    fn leaf(&self, name: &str, lasts: Duration) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = (SystemTime::now() + lasts).into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns a revocation list that is valid until the given year and revokes the certificate.
    fn list(&self, until: i32, revoked: Option<&str>) -> String {
        let serial = |pem: &str| {
            let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
            SerialNumber::from(pem.parse_x509().unwrap().raw_serial().to_vec())
        };
        let revoked = revoked.map(|pem| RevokedCertParams {
            serial_number: serial(pem),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.into_iter().collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Longer than two checks, shorter than the patience with unusable files.
const AFTER_CHECKS: Duration = Duration::from_secs(6);
const MINUTE: Duration = Duration::from_secs(60);

/// A directory with `tls.crt` and `tls.key`, and a server section that uses them.
struct Fixture {
    authority: Authority,
    directory: tempfile::TempDir,
    tls: ServerTls,
    metrics: PrometheusHandle,
    id: ComponentId,
}

impl Fixture {
    fn new(id: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tls = ServerTls {
            cert_file: directory.path().join("tls.crt"),
            key_file: directory.path().join("tls.key"),
            ..ServerTls::default()
        };
        let fixture = Fixture {
            authority: Authority::new("authority"),
            directory,
            tls,
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            id: id.parse().unwrap(),
        };
        let (certificate, key) = fixture.authority.leaf("first", YEAR);
        fixture.put("tls.crt", &certificate);
        fixture.put("tls.key", &key);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, content: &str) {
        replace(&self.path(name), content);
    }

    fn renew(&self, name: &str, lasts: Duration) {
        let (certificate, key) = self.authority.leaf(name, lasts);
        self.put("tls.crt", &certificate);
        self.put("tls.key", &key);
    }

    fn start(&mut self) -> RotatingServer {
        let recorder = PrometheusBuilder::new().build_recorder();
        self.metrics = recorder.handle();
        let owner = Owner::new(&self.id, "receiver");
        metrics::with_local_recorder(&recorder, || {
            RotatingServer::new(&self.tls, &[b"h2"], owner).unwrap()
        })
    }

    /// Returns the common names of the certificates in use.
    fn in_use(&self) -> Vec<String> {
        let mine = in_use()
            .into_iter()
            .filter(|(owner, _)| owner.id == self.id);
        mine.map(|(_, used)| used.fields.common_name.unwrap())
            .collect()
    }

    /// Returns the number of successful reloads, failed reloads and closed connections.
    fn counted(&self) -> [u32; 3] {
        let page = self.metrics.render();
        [
            "outcome=\"success\"",
            "outcome=\"failure\"",
            "distrusted_connections{",
        ]
        .map(|mark| {
            let line = page
                .lines()
                .find(|line| !line.starts_with('#') && line.contains(mark));
            line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
        })
    }
}

fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn renamed_file_is_in_use_after_seconds() {
    let mut fixture = Fixture::new("otlp/renamed");
    let source = fixture.start();
    let before = source.config();
    sleep(MINUTE * 3).await;
    assert!(
        Arc::ptr_eq(&before, &source.config()),
        "nothing has changed"
    );
    assert_eq!(fixture.in_use(), ["first"]);
    fixture.renew("second", YEAR);
    sleep(AFTER_CHECKS).await;
    assert!(!Arc::ptr_eq(&before, &source.config()));
    assert_eq!(fixture.in_use(), ["second"]);
    assert_eq!(fixture.counted(), [1, 0, 0]);
    drop(source);
    tokio::task::yield_now().await;
    assert!(fixture.in_use().is_empty());
}

#[tokio::test(start_paused = true)]
async fn swapped_parent_symlink_is_detected() {
    let mut fixture = Fixture::new("otlp/linked");
    // Kubernetes mounts a secret like this: the files link into `..data`, which links to a directory.
    let mount = |name: &str, (certificate, key): (String, String)| {
        let directory = fixture.path(name);
        std::fs::create_dir(&directory).unwrap();
        replace(&directory.join("tls.crt"), &certificate);
        replace(&directory.join("tls.key"), &key);
        symlink(name, fixture.path("..data.new")).unwrap();
        std::fs::rename(fixture.path("..data.new"), fixture.path("..data")).unwrap();
    };
    mount("..1", fixture.authority.leaf("first", YEAR));
    for name in ["tls.crt", "tls.key"] {
        std::fs::remove_file(fixture.path(name)).unwrap();
        symlink(Path::new("..data").join(name), fixture.path(name)).unwrap();
    }
    mount("..2", fixture.authority.leaf("second", YEAR));
    let mounted = fixture.authority.leaf("third", YEAR);
    let directory = fixture.directory.path().to_owned();
    let _source = fixture.start();
    assert_eq!(fixture.in_use(), ["second"]);
    std::fs::create_dir(directory.join("..3")).unwrap();
    replace(&directory.join("..3/tls.crt"), &mounted.0);
    replace(&directory.join("..3/tls.key"), &mounted.1);
    symlink("..3", directory.join("..data.new")).unwrap();
    std::fs::rename(directory.join("..data.new"), directory.join("..data")).unwrap();
    sleep(AFTER_CHECKS).await;
    assert_eq!(fixture.in_use(), ["third"]);
}

#[tokio::test(start_paused = true)]
async fn certificate_without_its_new_key_is_not_logged() {
    let mut fixture = Fixture::new("otlp/two_steps");
    let source = fixture.start();
    let before = source.config();
    let (certificate, key) = fixture.authority.leaf("second", YEAR);
    fixture.put("tls.crt", &certificate);
    sleep(AFTER_CHECKS).await;
    assert!(Arc::ptr_eq(&before, &source.config()));
    fixture.put("tls.key", &key);
    sleep(AFTER_CHECKS).await;
    assert_eq!(fixture.in_use(), ["second"]);
    assert_eq!(fixture.counted(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn unusable_files_are_logged_once_and_not_used() {
    let mut fixture = Fixture::new("otlp/bad");
    let source = fixture.start();
    let before = source.config();
    let (certificate, key) = fixture.authority.leaf("second", YEAR);
    fixture.put("tls.crt", "junk");
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [0, 1, 0]);
    sleep(MINUTE * 30).await;
    assert_eq!(fixture.counted(), [0, 1, 0]);
    // Each kind of mistake is logged separately.
    std::fs::remove_file(fixture.path("tls.crt")).unwrap();
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [0, 2, 0]);
    fixture.put("tls.crt", &certificate);
    sleep(MINUTE).await;
    assert_eq!(
        fixture.counted(),
        [0, 3, 0],
        "the key is still the old one's"
    );
    assert_eq!(fixture.in_use(), ["first"]);
    assert!(Arc::ptr_eq(&before, &source.config()));
    fixture.put("tls.key", &key);
    sleep(AFTER_CHECKS).await;
    assert_eq!(fixture.in_use(), ["second"]);
    assert_eq!(fixture.counted(), [1, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn invalid_now_certificate_does_not_replace_valid_one() {
    let mut fixture = Fixture::new("otlp/expired");
    let _source = fixture.start();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &fixture.authority.issuer).unwrap();
    fixture.put("tls.crt", &certificate.pem());
    fixture.put("tls.key", &key.serialize_pem());
    sleep(MINUTE).await;
    assert_eq!(fixture.in_use(), ["first"]);
    assert_eq!(fixture.counted(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn zero_interval_disables_reload() {
    let mut fixture = Fixture::new("otlp/never");
    fixture.tls.reload_interval = tributary_config::units::Duration::default();
    let source = fixture.start();
    let before = source.config();
    fixture.renew("second", YEAR);
    sleep(MINUTE * 100).await;
    assert!(Arc::ptr_eq(&before, &source.config()));
    assert_eq!(fixture.in_use(), ["first"]);
}

#[test]
fn days_left_are_fractions_and_negative_after_the_end() {
    let der = Authority::new("authority").leaf("leaf", YEAR).0;
    let der =
        super::super::material::certificates("cert_file", Path::new(""), der.as_bytes()).unwrap();
    let fields = super::super::certificate::describe(&der[0]).unwrap();
    let end = fields.not_after;
    let used = CertificateInUse {
        kind: CertificateRole::Certificate,
        fields,
    };
    let half_a_day = Duration::from_secs(12 * 60 * 60);
    assert_eq!(used.days_left(end - half_a_day), 0.5);
    assert_eq!(used.days_left(end + half_a_day * 3), -1.5);
}

/// Starts a server that requires certificates of the authorities in `ca.pem`.
fn mutual(fixture: &mut Fixture) -> (Server, RotatingServer) {
    fixture.tls.client_ca_file = fixture.path("ca.pem");
    let source = fixture.start();
    let options = ServerOptions {
        protocol: Protocol::Http2,
        tls: Some(Arc::new(source.clone())),
        // The paused clock jumps ahead while bytes are in flight, so no other timeout may end a connection.
        max_idle: None,
        limits: Limits {
            handshake_timeout: NONE,
            header_timeout: NONE,
            send_timeout: NONE,
            ..Limits::default()
        },
        ..ServerOptions::default()
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let handler: SimpleHandler = Arc::new(|_| Box::pin(async { Response::new(Full::default()) }));
    let owner = Owner::new(&fixture.id, "receiver");
    let server = serve(listener.into(), handler, options, owner).unwrap();
    (server, source)
}

struct Guest {
    sender: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<()>,
}

impl Guest {
    async fn connect(
        server: &Server,
        fixture: &Fixture,
        identity: (String, String),
    ) -> Result<Self, hyper::Error> {
        let tls = ClientTls {
            ca_pem: fixture.authority.pem.clone(),
            cert_pem: identity.0,
            key_pem: identity.1.as_str().into(),
            ..ClientTls::default()
        };
        let connector =
            tokio_rustls::TlsConnector::from(Arc::new(ClientTls::build(&tls, &[b"h2"]).unwrap()));
        let tcp = TcpStream::connect(server.local_address().unwrap())
            .await
            .unwrap();
        let name = tls.server_name("localhost").unwrap();
        let stream = TokioIo::new(connector.connect(name, tcp).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut guest = Guest { sender, connection };
        guest.ask().await?;
        Ok(guest)
    }

    async fn ask(&mut self) -> Result<(), hyper::Error> {
        let request = Request::get("https://localhost/").body(Empty::new());
        self.sender.ready().await?;
        self.sender.send_request(request.unwrap()).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn removed_authority_closes_its_clients_only() {
    let mut fixture = Fixture::new("otlp/authorities");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    fixture.put("ca.pem", &format!("{}{}", old.pem, new.pem));
    let (server, _source) = mutual(&mut fixture);
    let connect = |authority: &Authority| {
        let identity = authority.leaf("client", YEAR);
        Guest::connect(&server, &fixture, identity)
    };
    let mut leaving = connect(&old).await.unwrap();
    let mut staying = connect(&new).await.unwrap();
    fixture.renew("second", YEAR);
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [1, 0, 0], "trust has not changed");
    leaving.ask().await.unwrap();
    fixture.put("ca.pem", &new.pem);
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [2, 0, 1]);
    assert!(leaving.connection.is_finished());
    leaving.ask().await.unwrap_err();
    staying.ask().await.unwrap();
    assert!(!staying.connection.is_finished());
    assert!(connect(&old).await.is_err());
    assert!(connect(&new).await.is_ok());
    assert_eq!(fixture.in_use(), ["second", "new"]);
}

#[tokio::test(start_paused = true)]
async fn revocation_closes_the_revoked_client_only() {
    let mut fixture = Fixture::new("otlp/revoked");
    let authority = Authority::new("clients");
    fixture.put("ca.pem", &authority.pem);
    fixture.put("crl.pem", &authority.list(2090, None));
    fixture.tls.client_crl_file = fixture.path("crl.pem");
    fixture.tls.client_ca_file_reload = false;
    let (server, _source) = mutual(&mut fixture);
    let stolen = authority.leaf("stolen", YEAR);
    let good = authority.leaf("good", YEAR);
    let connect = |identity: &(String, String)| Guest::connect(&server, &fixture, identity.clone());
    let mut leaving = connect(&stolen).await.unwrap();
    let mut staying = connect(&good).await.unwrap();
    // An expired list would refuse all clients.
    fixture.put("crl.pem", &authority.list(2021, Some(&stolen.0)));
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [0, 1, 0]);
    leaving.ask().await.unwrap();
    fixture.put("crl.pem", &authority.list(2090, Some(&stolen.0)));
    sleep(MINUTE).await;
    assert_eq!(fixture.counted(), [1, 1, 1]);
    leaving.ask().await.unwrap_err();
    staying.ask().await.unwrap();
    assert!(connect(&stolen).await.is_err());
    assert!(connect(&good).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn client_authorities_stay_without_reload_setting() {
    let mut fixture = Fixture::new("otlp/kept");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    fixture.put("ca.pem", &old.pem);
    fixture.tls.client_ca_file_reload = false;
    let (server, _source) = mutual(&mut fixture);
    fixture.put("ca.pem", &new.pem);
    fixture.renew("second", YEAR);
    sleep(MINUTE).await;
    assert_eq!(fixture.in_use(), ["second", "old"]);
    let guest = Guest::connect(&server, &fixture, old.leaf("client", YEAR)).await;
    assert!(guest.is_ok());
}

#[tokio::test(start_paused = true)]
async fn connection_ends_when_client_certificate_expires() {
    let mut fixture = Fixture::new("otlp/ending");
    fixture.put("ca.pem", &fixture.authority.pem);
    let (server, _source) = mutual(&mut fixture);
    let half_an_hour = MINUTE * 30;
    let identity = fixture.authority.leaf("brief", half_an_hour);
    let mut brief = Guest::connect(&server, &fixture, identity).await.unwrap();
    let identity = fixture.authority.leaf("long", YEAR);
    let mut long = Guest::connect(&server, &fixture, identity).await.unwrap();
    // The paused clock jumps ahead while bytes are in flight, so the test stays away from the last minute.
    sleep(half_an_hour / 3).await;
    brief.ask().await.unwrap();
    sleep(half_an_hour).await;
    brief.ask().await.unwrap_err();
    long.ask().await.unwrap();
    assert_eq!(fixture.counted(), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn superfluous_expired_certificate_is_ignored() {
    let mut fixture = Fixture::new("otlp/needless");
    fixture.put("ca.pem", &fixture.authority.pem);
    let (server, _source) = mutual(&mut fixture);
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date_time_ymd(2010, 1, 1), date_time_ymd(2011, 1, 1));
    let expired = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let (certificate, key) = fixture.authority.leaf("client", YEAR);
    let identity = (certificate + &expired.pem(), key);
    let mut guest = Guest::connect(&server, &fixture, identity).await.unwrap();
    sleep(MINUTE).await;
    guest.ask().await.unwrap();
    assert_eq!(fixture.counted(), [0, 0, 0]);
}

/// Run with `cargo test --release --lib rotation -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn check_of_unchanged_files_takes_microseconds() {
    let mut fixture = Fixture::new("otlp/cost");
    fixture.put("ca.pem", &fixture.authority.pem);
    fixture.tls.client_ca_file = fixture.path("ca.pem");
    let source = fixture.start();
    let now = tokio::time::Instant::now();
    let looks = 10_000;
    let began = std::time::Instant::now();
    for _ in 0..looks {
        source.source.check(now);
    }
    let each = began.elapsed() / looks;
    println!("a look at three files: {each:?}");
    assert!(each < Duration::from_micros(100), "{each:?}");
}
