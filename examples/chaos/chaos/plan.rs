//! The plan of faults, drawn from a seed before anything starts.

use std::time::Duration;

use fastrand::Rng;
use tonic::Code;

use super::Options;
use super::backend::{Mood, Refusal};
use super::link::Trouble;

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Start of the fault, since the load began.
    pub at: Duration,
    /// Duration until the fault is undone.
    pub lasts: Duration,
    pub what: What,
}

/// Kinds of faults. Numbers are indices into the site's lists.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// SIGKILL, and a restart after a while.
    Kill(usize),
    /// SIGKILL and a restart, and both again as soon as the process is ready.
    KillTwice(usize),
    /// SIGKILL, a start that is killed after this time, and another start.
    KillAtStart(usize, Duration),
    /// SIGTERM, and a restart after a while.
    Stop(usize),
    /// SIGSTOP, then SIGCONT.
    Freeze(usize),
    /// A changed configuration, and SIGHUP.
    Reload(usize),
    /// An invalid configuration, and SIGHUP.
    BadReload(usize),
    Link(usize, Trouble),
    /// A full disk of a tier.
    FullDisk(usize),
    Sink(usize, Mood),
    /// New keys and certificates for all tiers.
    Certificates,
    /// A tier is stopped with data in its queue, a bit of the data is flipped, and the tier is
    /// restarted.
    Damage(usize),
}

impl What {
    /// Returns the location of the fault; faults at one location do not overlap.
    fn place(&self) -> (u8, usize) {
        match self {
            What::Kill(tier)
            | What::KillTwice(tier)
            | What::KillAtStart(tier, _)
            | What::Stop(tier)
            | What::Freeze(tier)
            | What::Reload(tier)
            | What::BadReload(tier)
            | What::Damage(tier) => (0, *tier),
            What::Link(link, _) => (1, *link),
            What::FullDisk(tier) => (2, *tier),
            What::Sink(sink, _) => (3, *sink),
            What::Certificates => (4, 0),
        }
    }
}

/// Numbers of components that can fail.
#[derive(Debug, Clone, Copy)]
pub struct Targets {
    pub tiers: usize,
    pub links: usize,
    pub sinks: usize,
    pub disks: bool,
}

/// Minimum time between two faults of a process.
const BREATH: Duration = Duration::from_millis(500);

/// Draws the faults of a run in order. The same seed and options give the same plan.
pub fn draw(options: &Options, targets: Targets) -> Vec<Fault> {
    let mut random = Rng::with_seed(options.seed);
    let mut plan: Vec<Fault> = Vec::new();
    if options.soak {
        return plan;
    }
    let end = Duration::from_secs(options.seconds);
    let mut at = Duration::from_secs(2);
    loop {
        at += millis(&mut random, 50..1200);
        if at >= end {
            return plan;
        }
        let what = what(&mut random, options, targets);
        let lasts = match what {
            What::Reload(_) | What::BadReload(_) | What::Certificates => Duration::ZERO,
            What::Kill(_) | What::KillTwice(_) | What::KillAtStart(..) | What::Stop(_) => {
                millis(&mut random, 0..2500)
            }
            // Sometimes longer than the timeout of exporters.
            _ => millis(&mut random, 200..8000),
        };
        let clashes = |other: &Fault| {
            other.what.place() == what.place() && at < other.at + other.lasts + BREATH
        };
        if !plan.iter().any(clashes) {
            plan.push(Fault { at, lasts, what });
        }
    }
}

fn what(random: &mut Rng, options: &Options, targets: Targets) -> What {
    loop {
        let (tier, link) = (
            random.usize(0..targets.tiers),
            random.usize(0..targets.links),
        );
        let what = match random.u8(0..100) {
            0..12 => What::Kill(tier),
            12..17 => What::KillTwice(tier),
            17..22 => What::KillAtStart(tier, millis(random, 0..800)),
            22..30 => What::Stop(tier),
            30..35 => What::Freeze(tier),
            35..41 => What::Reload(tier),
            41..45 => What::BadReload(tier),
            45..70 => What::Link(link, trouble(random)),
            70..78 if targets.disks => What::FullDisk(tier),
            78..95 => What::Sink(random.usize(0..targets.sinks), mood(random, options)),
            95..98 => What::Certificates,
            98..100 if options.damage => What::Damage(tier),
            _ => continue,
        };
        if !options.once || comes_once(&what, targets) {
            return what;
        }
    }
}

/// Whether the fault causes no duplicates: the zone keeps running, and gets an answer for all that
/// it accepted and sent. The rack, the zone, and the links between them and to the backend are last
/// in the lists.
fn comes_once(what: &What, targets: Targets) -> bool {
    let (rack, zone) = (targets.tiers - 2, targets.tiers - 1);
    match what {
        What::Kill(tier)
        | What::KillTwice(tier)
        | What::KillAtStart(tier, _)
        | What::Freeze(tier)
        | What::Damage(tier) => *tier < rack,
        What::Stop(tier) | What::FullDisk(tier) => *tier < zone,
        What::Reload(_) | What::BadReload(_) | What::Certificates => true,
        What::Link(link, _) => *link + 3 < targets.links,
        What::Sink(_, mood) => matches!(mood, Mood::Refuses(_)),
    }
}

fn trouble(random: &mut Rng) -> Trouble {
    match random.u8(0..7) {
        0 => Trouble::Cut,
        1 => Trouble::Stall,
        2 => Trouble::BlackHole,
        3 => Trouble::Deaf,
        4 => Trouble::Delay(millis(random, 1..400)),
        5 => Trouble::Throttle(random.u64(2_000..200_000)),
        _ => Trouble::Flap(millis(random, 50..700)),
    }
}

fn mood(random: &mut Rng, options: &Options) -> Mood {
    match random.u8(0..10) {
        0 => Mood::Resets { taken: true },
        1 => Mood::Resets { taken: false },
        2 | 3 => Mood::Slow {
            by: millis(random, 100..8000),
            taken_before: random.bool(),
        },
        _ => Mood::Refuses(refusal(random, options)),
    }
}

/// Status codes after which a client retries, by OTLP's specification.
const PASSING: [Code; 7] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unavailable,
    Code::DataLoss,
    // Only with RetryInfo.
    Code::ResourceExhausted,
];
const PASSING_HTTP: [u16; 4] = [429, 502, 503, 504];
/// Status codes after which a client gives up, by OTLP's specification.
const FINAL: [Code; 9] = [
    Code::Unknown,
    Code::InvalidArgument,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::FailedPrecondition,
    Code::Unimplemented,
    Code::Internal,
    Code::Unauthenticated,
];
const FINAL_HTTP: [u16; 8] = [400, 401, 403, 404, 413, 415, 500, 501];

fn refusal(random: &mut Rng, options: &Options) -> Refusal {
    let permanent = options.permanent && random.u8(0..4) == 0;
    let (codes, statuses) = match permanent {
        true => (FINAL.as_slice(), FINAL_HTTP.as_slice()),
        false => (PASSING.as_slice(), PASSING_HTTP.as_slice()),
    };
    let code = codes[random.usize(0..codes.len())];
    let retry_after = match random.bool() || code == Code::ResourceExhausted {
        // Full seconds, the resolution of HTTP.
        true => Some(Duration::from_secs(random.u64(0..3))),
        false => None,
    };
    Refusal {
        code,
        http: statuses[random.usize(0..statuses.len())],
        retry_after: retry_after.filter(|_| !permanent),
        permanent,
    }
}

fn millis(random: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}
