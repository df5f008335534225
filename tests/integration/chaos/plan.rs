//! The faults of a round, drawn from a seed before anything starts.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// Path of the data from the receiver to the next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// A queue on disk.
    Queue,
    /// `batch` in front of a queue on disk.
    Batch,
    /// Batches made behind a queue on disk.
    BatchBehindQueue,
    /// A `failover` connector with a queue on disk, and two next hops.
    Failover,
    /// A queue on disk in front of two next hops that share the data.
    Balancing,
    /// A connector with a queue on disk in front of windows and a queue in memory.
    Windows,
    /// A queue in memory that may be larger than the memory limit.
    Memory,
}

impl Topology {
    /// Topologies that lose nothing when the process is killed.
    pub const STORED: [Topology; 6] = [
        Topology::Queue,
        Topology::Batch,
        Topology::BatchBehindQueue,
        Topology::Failover,
        Topology::Balancing,
        Topology::Windows,
    ];

    /// Number of next hops.
    pub fn hops(self) -> usize {
        match self {
            Topology::Failover | Topology::Balancing => 2,
            _ => 1,
        }
    }
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, and a restart.
    Kill,
    /// SIGKILL, the loss of data that was not forced to the disk, and a restart.
    PowerCut,
    /// SIGTERM, and a restart.
    Stop,
    /// SIGSTOP, then SIGCONT.
    Freeze,
    /// A changed configuration, and SIGHUP.
    Reload,
    /// Every write to a file fails.
    DiskErrors,
    /// The directories of the queues are removed during their use.
    RemovedFiles,
    /// SIGTERM, the loss of the last third of each queue file, and a restart. After a kill, the
    /// loss would look like an unfinished write.
    Truncation,
    /// The next hops do not listen.
    Outage,
    /// The next hops do not listen until the collector has refused requests because a queue or the memory was full.
    Overload,
    /// The next hops refuse every second request.
    Refusals,
    /// The next hops accept every fourth request and close the connection instead of answering.
    LostAnswers,
    /// The next hops accept requests and never respond.
    Silence,
    /// Certain requests make the next hops close the connection.
    Poison,
    /// Connections to the next hops are reset repeatedly.
    Flap,
    /// Existing connections to the next hops become silent forever; new connections work.
    BlackHole,
}

impl Fault {
    /// Faults of the next hops or of the links to them, which may coincide with other faults.
    const OUTSIDE: [Fault; 7] = [
        Fault::Outage,
        Fault::Refusals,
        Fault::LostAnswers,
        Fault::Silence,
        Fault::Poison,
        Fault::Flap,
        Fault::BlackHole,
    ];
    const INSIDE: [Fault; 8] = [
        Fault::Kill,
        Fault::PowerCut,
        Fault::Stop,
        Fault::Freeze,
        Fault::Reload,
        Fault::DiskErrors,
        Fault::RemovedFiles,
        Fault::Truncation,
    ];

    /// Whether acknowledged data may be lost, if the loss is reported.
    pub fn may_lose(self) -> bool {
        matches!(self, Fault::RemovedFiles | Fault::Truncation)
    }

    /// Whether the collector may report a loss. After a power cut, a block that was never acknowledged may be damaged,
    /// although a later block exists.
    pub fn may_alarm(self) -> bool {
        self.may_lose() || self == Fault::PowerCut
    }

    /// Whether the fault is possible with the Collector, too.
    pub fn is_for_peers(self) -> bool {
        !matches!(
            self,
            Fault::Reload
                | Fault::PowerCut
                | Fault::DiskErrors
                | Fault::RemovedFiles
                | Fault::Truncation
        )
    }
}

/// A fault, optionally with a simultaneous fault of the next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub fault: Fault,
    pub beside: Option<Fault>,
    pub lasts: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {:.1?}", self.fault, self.lasts)?;
        match self.beside {
            Some(beside) => write!(f, ", during {beside:?}"),
            None => Ok(()),
        }
    }
}

/// Everything that is decided before a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub topology: Topology,
    pub steps: Vec<Step>,
    /// Bound of the queue, in bytes.
    pub queue_bytes: usize,
    /// Maximum number of items in a request.
    pub items: usize,
    /// Bytes in a request that belong to no item.
    pub padding: usize,
}

impl Plan {
    /// Returns a plan of these faults, one after the other.
    pub fn of(seed: u64, topology: Topology, faults: &[Fault]) -> Self {
        let step = |fault: &Fault| Step {
            fault: *fault,
            beside: None,
            lasts: SHORT,
        };
        Plan {
            seed,
            topology,
            steps: faults.iter().map(step).collect(),
            queue_bytes: 20_000_000,
            items: 20,
            padding: 0,
        }
    }

    /// Draws faults of any kind, for at most `longest` in total. The same seed and arguments give the same plan.
    pub fn draw(seed: u64, topology: Topology, steps: usize, longest: Duration) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut plan = Plan::of(seed, topology, &[]);
        for _ in 0..steps {
            let outside = match Fault::OUTSIDE[random.usize(..Fault::OUTSIDE.len())] {
                // A queue in memory sets no records aside.
                Fault::Poison if topology == Topology::Windows => Fault::Refusals,
                outside => outside,
            };
            let inside = Fault::INSIDE[random.usize(..Fault::INSIDE.len())];
            let (fault, beside) = match random.u8(..3) {
                0 => (outside, None),
                1 => (inside, None),
                _ => (inside, Some(outside)),
            };
            let most = u64::try_from(longest.as_millis()).unwrap();
            let lasts = Duration::from_millis(random.u64(50..=most.max(51)));
            plan.steps.push(Step {
                fault,
                beside,
                lasts,
            });
        }
        plan
    }

    /// A load that fills a queue on disk.
    pub fn overload_of_disk(seed: u64) -> Self {
        Plan {
            queue_bytes: 400_000,
            padding: 20_000,
            ..Plan::of(seed, Topology::Queue, &[Fault::Overload, Fault::Kill])
        }
    }

    /// A load that reaches the memory limit.
    pub fn overload_of_memory(seed: u64) -> Self {
        Plan {
            padding: 200_000,
            ..Plan::of(seed, Topology::Memory, &[Fault::Overload])
        }
    }

    /// Returns the plan without forced losses, for a comparison.
    pub fn for_peers(&self) -> Self {
        let mut plan = self.clone();
        plan.steps.retain(|step| step.fault.is_for_peers());
        plan
    }
}

/// Duration of a fault that needs no particular duration.
const SHORT: Duration = Duration::from_millis(300);
