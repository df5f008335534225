//! The watched source of one TLS section: the current configuration, and the watch on its files.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use rustls::server::danger::ClientCertVerifier;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, info};

use super::TlsError;
use super::files::{Contents, Files, Stamps};
use super::in_use::{CertificateInUse, CertificateRole, Holder, Warnings, register};
use crate::Owner;
use crate::tls::certificate::{date, describe};
use crate::tls::material;
use crate::tls::material::{is_set, text};
use crate::tls::trust::{Report, TrustWatch};

/// The interface of a `tls` section for the rotation.
pub(super) trait Section: Send + Sync + 'static {
    type Config: Send + Sync + 'static;

    /// Returns the files and texts of the section.
    fn named(&self) -> Vec<Named<'_>>;
    /// Returns the interval at which the files are read even if their metadata are unchanged. Zero disables the watch.
    fn reload_interval(&self) -> Duration;
    /// Reads all files and validates them together.
    fn build(
        &self,
        alpn: &[&[u8]],
        previous: Option<&Built<Self::Config>>,
    ) -> Result<Built<Self::Config>, TlsError>;
    /// Returns well-formed certificates that are not valid at this time: expired, or not valid yet.
    fn invalid_now(&self, now: SystemTime) -> Vec<TlsError>;
}

/// A file, or the configured text instead of a file.
pub(super) struct Named<'a> {
    pub(super) key: &'static str,
    pub(super) file: &'a Path,
    pub(super) pem: &'a str,
    /// Role of the certificates in the file; `None` for other files.
    pub(super) kind: Option<CertificateRole>,
    /// Whether the file is read again after the start.
    pub(super) watched: bool,
    /// Whether the file decides which clients are admitted.
    pub(super) trust: bool,
}

impl<'a> Named<'a> {
    pub(super) fn new(
        key: &'static str,
        file: &'a Path,
        pem: &'a str,
        kind: Option<CertificateRole>,
    ) -> Self {
        Named {
            key,
            file,
            pem,
            kind,
            watched: true,
            trust: false,
        }
    }

    /// Marks the file as deciding which clients are admitted.
    pub(super) fn of_trust(self) -> Self {
        Named {
            trust: true,
            ..self
        }
    }
}

/// Configuration built from the files.
pub(super) struct Built<C> {
    pub(super) config: Arc<C>,
    /// Verifier of clients, if client certificates are required.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Client authorities in PEM, kept for a file that is not read again.
    pub(super) client_ca: Option<Vec<u8>>,
    pub(super) certificates: Vec<CertificateInUse>,
}

/// Returns the certificates of a section. Certificates of unwatched files are taken from `previous`.
pub(super) fn certificates<S: Section>(
    section: &S,
    previous: Option<&Built<S::Config>>,
) -> Result<Vec<CertificateInUse>, TlsError> {
    let mut found = Vec::new();
    for named in section.named() {
        let Some(kind) = named.kind else { continue };
        if let (Some(previous), false) = (previous, named.watched) {
            let kept = previous.certificates.iter();
            found.extend(kept.filter(|used| used.kind == kind).cloned());
            continue;
        }
        let Some(pem) = text(named.key, named.file, named.pem)? else {
            continue;
        };
        let chain = material::certificates(named.key, named.file, &pem)?;
        // Certificates that webpki accepts but the parser rejects are left out of the metrics, but do not prevent the
        // start.
        let fields = chain.iter().filter_map(|der| describe(der).ok());
        found.extend(fields.map(|fields| CertificateInUse { kind, fields }));
    }
    Ok(found)
}

/// A section, its current configuration, and the watch over its files.
pub(super) struct Source<S: Section> {
    section: S,
    alpn: Vec<Vec<u8>>,
    report: Arc<Report>,
    current: ArcSwap<Built<S::Config>>,
    trust: watch::Sender<Option<Arc<dyn ClientCertVerifier>>>,
    watching: Mutex<Watching>,
    /// Stops the watch when dropped.
    _stop: DropGuard,
}

/// State of the watch between checks.
struct Watching {
    files: Files,
    seen: Stamps,
    /// Contents of the files from which the current configuration was built.
    used: Contents,
    /// Time at which to read the files in any case.
    reread: Instant,
    bad: Option<Bad>,
    warnings: Warnings,
}

/// Files that cannot be used.
struct Bad {
    contents: Contents,
    reason: String,
    since: Instant,
    complained: Option<Instant>,
}

impl<S: Section> Source<S> {
    pub(super) fn start(section: S, alpn: &[&[u8]], owner: Owner) -> Result<Arc<Self>, TlsError> {
        let named = section.named().into_iter();
        let watched = named.filter(|named| named.watched && is_set(named.file));
        let files = watched.map(|named| (named.key, named.file.to_owned()));
        let files = match section.reload_interval().is_zero() {
            true => Files::new(Vec::new()),
            false => Files::new(files.collect()),
        };
        // The stamps are taken before the files are read, so that the first check detects a concurrent change.
        let (seen, used) = (files.stamps(), files.contents());
        let built = section.build(alpn, None)?;
        let now = Instant::now();
        let stop = CancellationToken::new();
        let watching = Watching {
            seen,
            used,
            reread: now + section.reload_interval(),
            bad: None,
            warnings: Warnings::default(),
            files,
        };
        let period = match watching.files.is_empty() {
            true => EXPIRY_CHECK_INTERVAL,
            false => CHECK_INTERVAL.min(section.reload_interval()),
        };
        let source = Arc::new(Source {
            section,
            alpn: alpn.iter().map(|name| name.to_vec()).collect(),
            report: Arc::new(Report::new(owner)),
            trust: watch::Sender::new(built.verifier.clone()),
            current: ArcSwap::from_pointee(built),
            watching: Mutex::new(watching),
            _stop: stop.clone().drop_guard(),
        });
        let holder: Weak<dyn Holder> = Arc::downgrade(&source) as Weak<dyn Holder>;
        register(holder);
        source.warn(now);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(watch_over(Arc::downgrade(&source), stop, period));
        }
        Ok(source)
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.report.owner
    }

    pub(super) fn config(&self) -> Arc<S::Config> {
        self.current.load().config.clone()
    }

    /// Returns the current trust. Call this before [`Source::config`], so that a change between the two is noticed.
    pub(super) fn trust(&self) -> TrustWatch {
        TrustWatch {
            verifier: self.trust.subscribe(),
            report: self.report.clone(),
        }
    }

    fn warn(&self, now: Instant) {
        let certificates = &self.current.load().certificates;
        let owner = &self.report.owner;
        self.watching().warnings.check(owner, certificates, now);
    }

    /// Checks once. Without changes this is only stat(2). Blocks.
    pub(super) fn check(&self, now: Instant) {
        self.check_files(now);
        self.warn(now);
    }

    fn check_files(&self, now: Instant) {
        let mut watching = self.watching();
        let watching = &mut *watching;
        if watching.files.is_empty() {
            return;
        }
        let stamps = watching.files.stamps();
        let suspected = matches!(&watching.bad, Some(bad) if bad.complained.is_none());
        if stamps != watching.seen || now >= watching.reread || suspected {
            watching.seen = stamps;
            watching.reread = now + self.section.reload_interval();
            self.read(watching, now);
        }
        self.log_failure(watching, now);
    }

    /// Reads the files, and uses them if they have changed and are valid.
    fn read(&self, watching: &mut Watching, now: Instant) {
        let contents = watching.files.contents();
        if contents == watching.used {
            watching.bad = None;
            return;
        }
        let alpn: Vec<&[u8]> = self.alpn.iter().map(Vec::as_slice).collect();
        let current = self.current.load_full();
        let changed = watching.files.differing(&watching.used, &contents);
        let built = self.section.build(&alpn, Some(&current)).and_then(|built| {
            // An expired certificate, or a certificate that is not valid yet, is worse than the current certificate.
            // The next read tries again.
            let mut invalid_now = self.section.invalid_now(SystemTime::now()).into_iter();
            let new = invalid_now.find(|error| changed.contains(&error.key));
            new.map_or(Ok(built), Err)
        });
        if watching.files.contents() != contents {
            // The files are being written. The next check reads them.
            watching.seen = Stamps::default();
            return;
        }
        let built = match built {
            Ok(built) => built,
            Err(error) => return watching.note_bad(contents, error.to_string(), now),
        };
        watching.bad = None;
        watching.used = contents;
        let verifier = built.verifier.clone();
        let leaf = leaf(&built).map(|leaf| leaf.fields.clone());
        self.current.store(Arc::new(built));
        let named = self.section.named();
        if named
            .iter()
            .any(|named| named.trust && changed.contains(&named.key))
        {
            self.trust.send_replace(verifier);
        }
        self.report.metrics.reloaded(true);
        let leaf = leaf.as_ref();
        info!(
            otelcol.component.id = %self.report.owner.id,
            otelcol.component.kind = self.report.owner.kind,
            transport = self.report.owner.transport,
            changed = changed.join(", "),
            certificate = leaf.map(|fields| fields.title()),
            serial = leaf.map(|fields| fields.serial.as_str()),
            valid_until = leaf.map(|fields| date(fields.not_after)),
            "Loaded changed TLS files; new connections use the new content"
        );
    }

    /// Logs that the files cannot be used, after the state has lasted for some time, and again every hour.
    fn log_failure(&self, watching: &mut Watching, now: Instant) {
        let Some(bad) = &mut watching.bad else {
            return;
        };
        match bad.complained {
            None if now.duration_since(bad.since) < LOG_AFTER => return,
            Some(last) if now.duration_since(last) < REMINDER_INTERVAL => return,
            Some(_) => {}
            None => self.report.metrics.reloaded(false),
        }
        bad.complained = Some(now);
        let changed = watching.files.differing(&watching.used, &bad.contents);
        let current = self.current.load();
        let leaf = leaf(&current).map(|leaf| &leaf.fields);
        error!(
            otelcol.component.id = %self.report.owner.id,
            otelcol.component.kind = self.report.owner.kind,
            transport = self.report.owner.transport,
            files = watching.files.paths(&changed),
            error = bad.reason,
            certificate = leaf.map(|fields| fields.title()),
            serial = leaf.map(|fields| fields.serial.as_str()),
            valid_until = leaf.map(|fields| date(fields.not_after)),
            "Cannot load changed TLS files; still using the previous content"
        );
    }

    fn watching(&self) -> MutexGuard<'_, Watching> {
        self.watching.lock()
    }
}

impl Watching {
    /// Records unusable files. A certificate and its key are written one after the other, so they may match at the next
    /// check.
    fn note_bad(&mut self, contents: Contents, reason: String, now: Instant) {
        let since = match &self.bad {
            Some(bad) if bad.contents == contents => return,
            Some(bad) if bad.complained.is_none() => bad.since,
            _ => now,
        };
        self.bad = Some(Bad {
            contents,
            reason,
            since,
            complained: None,
        });
    }
}

impl<S: Section> Holder for Source<S> {
    fn owner(&self) -> &Owner {
        &self.report.owner
    }

    fn certificates(&self) -> Vec<CertificateInUse> {
        self.current.load().certificates.clone()
    }
}

/// Returns the own certificate, without intermediate certificates.
fn leaf<C>(built: &Built<C>) -> Option<&CertificateInUse> {
    let mut certificates = built.certificates.iter();
    certificates.find(|used| used.kind == CertificateRole::Certificate)
}

/// Checks the files periodically, on a thread that a slow file system may block.
async fn watch_over<S: Section>(
    source: Weak<Source<S>>,
    stop: CancellationToken,
    period: Duration,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(period) => {}
        }
        let Some(source) = source.upgrade() else {
            return;
        };
        let looked = spawn_blocking(move || source.check(Instant::now())).await;
        if looked.is_err() {
            return;
        }
    }
}

/// Interval of checks, unless the reload interval is shorter.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of expiry checks if there are no files to check.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Time for which the files may be unusable before that is logged.
const LOG_AFTER: Duration = Duration::from_secs(10);
/// Interval at which the log line is repeated.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60 * 60);
