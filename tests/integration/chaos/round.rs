//! A round: load, faults, and the end of all faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::load::{Refusals, Sender};
use super::plan::{Fault, Plan, Step};
use super::service::{Program, Service, files};
use super::verdict::{Accounts, Report};
use super::{CONSUMERS, TIMEOUT};
use crate::harness::link::{Link, LinkFault};
use crate::harness::{
    Answer, Backend, Client, Oracle, POLL_INTERVAL, Refusal, Signal, Telemetry, WAIT_LIMIT,
};

/// Numbers of clients over gRPC and over HTTP.
const CLIENTS: [usize; 2] = [4, 2];
/// Acknowledged items between two faults: each fault meets a collector that works.
const BETWEEN: usize = 200;
/// Requests that the next hops never accept while there is poison: for each signal, more than there are consumers.
const POISON: usize = (CONSUMERS + 2) * Signal::ALL.len();
/// Refusals that show that a collector is overloaded.
const OVERLOADED: usize = 20;

/// Behaviour of the next hops.
#[derive(Debug, Clone, Copy, Default)]
struct ResponseScript {
    refuses: bool,
    loses_answers: bool,
    is_poisonable: bool,
}

/// A next hop, and the link to it.
struct Hop {
    backend: Backend,
    link: Link,
}

struct Round {
    plan: Plan,
    random: Rng,
    hops: Vec<Hop>,
    script: watch::Sender<ResponseScript>,
    service: Service,
    oracle: Oracle,
    refusals: Arc<Refusals>,
    accounts: Accounts,
    failures: Vec<String>,
}

/// Runs a round, and returns its report.
pub async fn run(program: &Program, plan: &Plan) -> Report {
    let mut round = Round::begin(program, plan).await;
    let enough = CancellationToken::new();
    let mut clients = round.clients(&enough);
    for step in plan.steps.clone() {
        round.progress(BETWEEN).await;
        round.run_fault(step).await;
    }
    round.progress(BETWEEN).await;
    enough.cancel();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    round.end().await
}

impl Round {
    async fn begin(program: &Program, plan: &Plan) -> Self {
        let (script, accounts) = (
            watch::Sender::new(ResponseScript::default()),
            Accounts::default(),
        );
        let mut hops = Vec::new();
        for _ in 0..plan.topology.hops() {
            let backend = Backend::start().await;
            let (script, accepted) = (script.subscribe(), accounts.accepted.clone());
            let cut = accounts.cut.clone();
            let mut requests = 0;
            backend.script(move |telemetry| {
                requests += 1;
                let answer = answer(*script.borrow(), requests, telemetry);
                if matches!(answer, Answer::Accept | Answer::AcceptAndDisconnect) {
                    accepted.note(telemetry.ids().len());
                }
                if matches!(answer, Answer::Disconnect | Answer::AcceptAndDisconnect) {
                    cut.fetch_add(1, Relaxed);
                }
                answer
            });
            let link = Link::open(backend.grpc()).await.unwrap();
            hops.push(Hop { backend, link });
        }
        let addresses: Vec<SocketAddr> = hops.iter().map(|hop| hop.link.address).collect();
        let service = Service::start(program, plan, &addresses).await;
        Round {
            plan: plan.clone(),
            random: Rng::with_seed(plan.seed),
            hops,
            script,
            service,
            oracle: Oracle::default(),
            refusals: Arc::default(),
            accounts,
            failures: Vec::new(),
        }
    }

    fn clients(&self, enough: &CancellationToken) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        let [over_grpc, over_http] = CLIENTS;
        for number in 0..over_grpc + over_http {
            let sender = Sender {
                name: format!("c{number}"),
                is_grpc: number < over_grpc,
                most_items: self.plan.items,
                padding: self.plan.padding,
                addresses: self.service.addresses(),
                oracle: self.oracle.clone(),
                refusals: self.refusals.clone(),
                enough: enough.clone(),
            };
            clients.spawn(sender.send());
        }
        clients
    }

    /// Waits until so many more items are acknowledged.
    async fn progress(&mut self, items: usize) {
        let goal = self.oracle.acknowledged_count() + items;
        if !self
            .eventually(|| self.oracle.acknowledged_count() >= goal)
            .await
        {
            let refused = self.refusals.refused.load(Relaxed);
            let what = format!("nothing is acknowledged any more; {refused} refusals so far");
            self.failures.push(what);
        }
    }

    /// Waits for the condition. Returns false if nothing is acknowledged, refused or delivered for [`WAIT_LIMIT`]: a busy machine
    /// is slow, but makes progress.
    async fn eventually(&self, is_so: impl Fn() -> bool) -> bool {
        let activity = || {
            let refused = self.refusals.refused.load(Relaxed);
            (
                self.oracle.acknowledged_count(),
                refused,
                self.accounts.accepted.items(),
            )
        };
        let (mut last, mut since) = (activity(), Instant::now());
        while !is_so() {
            let now = activity();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > WAIT_LIMIT {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }

    async fn run_fault(&mut self, step: Step) {
        if let Some(beside) = step.beside {
            self.start_outside(beside).await;
        }
        self.inject(step).await;
        if let Some(beside) = step.beside {
            self.end_outside(beside, step.lasts).await;
        }
    }

    async fn inject(&mut self, step: Step) {
        let Step { fault, lasts, .. } = step;
        match fault {
            Fault::Kill => {
                self.service.kill().await;
                tokio::time::sleep(lasts).await;
                self.service.begin().await;
                self.accounts.killed();
            }
            Fault::PowerCut if self.service.has_power() => {
                self.service.cut_power(&mut self.random).await;
                self.service.begin().await;
                self.accounts.killed();
            }
            // There is no C compiler.
            Fault::PowerCut => {}
            Fault::Stop | Fault::Truncation => {
                self.service.stop().await;
                if fault == Fault::Truncation {
                    self.truncate();
                }
                tokio::time::sleep(lasts).await;
                self.service.begin().await;
            }
            Fault::Freeze => {
                let signal = |name| {
                    self.service
                        .process()
                        .iter()
                        .for_each(|life| life.signal(name))
                };
                signal("STOP");
                tokio::time::sleep(lasts).await;
                signal("CONT");
                self.accounts.interrupted(timeouts(lasts));
            }
            Fault::Reload => {
                if let Err(lines) = self.service.reload().await {
                    self.failures.push(format!("a reload failed: {lines:?}"));
                }
            }
            Fault::DiskErrors => {
                let before = self.refusals.refused.load(Relaxed);
                let delivered = self.accounts.accepted.items();
                self.service.fail_writes(true);
                let refused = || self.refusals.refused.load(Relaxed);
                if !self.eventually(|| refused() > before).await {
                    let what = "nothing is refused although no write succeeds";
                    self.failures.push(what.to_owned());
                }
                tokio::time::sleep(lasts).await;
                self.service.fail_writes(false);
                // During the fault, deliveries could not be recorded.
                self.accounts.unrecorded += self.accounts.accepted.items() - delivered;
            }
            Fault::RemovedFiles => {
                let queues = std::fs::read_dir(self.service.queues()).unwrap();
                for queue in queues.flatten() {
                    // The collector may create files at the same time.
                    let _ = std::fs::remove_dir_all(queue.path());
                }
                self.accounts.interrupted(1);
                tokio::time::sleep(lasts).await;
            }
            Fault::Overload => {
                self.start_outside(Fault::Outage).await;
                let full = || self.refusals.full.load(Relaxed);
                let goal = full() + OVERLOADED;
                if !self.eventually(|| full() >= goal).await {
                    let what = "nothing is refused although no next hop listens";
                    self.failures.push(what.to_owned());
                }
                self.end_outside(Fault::Outage, lasts).await;
            }
            outside => {
                self.start_outside(outside).await;
                tokio::time::sleep(lasts).await;
                self.end_outside(outside, lasts).await;
            }
        }
    }

    /// Cuts off the last third of each segment.
    fn truncate(&self) {
        for file in files(&self.service.queues()) {
            if file.extension().is_some_and(|end| end == "segment") {
                let file = std::fs::File::options().write(true).open(&file).unwrap();
                let length = file.metadata().unwrap().len();
                file.set_len(length - length / 3).unwrap();
            }
        }
    }

    async fn start_outside(&mut self, fault: Fault) {
        match fault {
            Fault::Refusals => self.script.send_modify(|script| script.refuses = true),
            Fault::LostAnswers => self
                .script
                .send_modify(|script| script.loses_answers = true),
            Fault::Poison => {
                self.script
                    .send_modify(|script| script.is_poisonable = true);
                self.poison().await;
            }
            Fault::Silence => self.hops.iter().for_each(|hop| hop.backend.hold()),
            Fault::Outage => {
                for hop in &self.hops {
                    hop.backend.stop().await;
                }
            }
            Fault::Flap => self.trouble(LinkFault::Flap(FLAP)),
            Fault::BlackHole => self.trouble(LinkFault::BlackHole),
            inside => unreachable!("{inside:?} is no fault of a next hop"),
        }
    }

    async fn end_outside(&mut self, fault: Fault, lasts: Duration) {
        self.script.send_replace(ResponseScript::default());
        for hop in &self.hops {
            hop.link.end();
            match fault {
                Fault::Silence => hop.backend.release(),
                Fault::Outage => hop.backend.restart(),
                _ => {}
            }
        }
        self.accounts.interrupted(match fault {
            Fault::Refusals => 0,
            // Lost answers are counted one by one.
            Fault::LostAnswers | Fault::Poison => 1,
            Fault::Flap => 1 + usize::try_from(lasts.as_millis() / FLAP.as_millis()).unwrap(),
            _ => timeouts(lasts),
        });
    }

    fn trouble(&self, trouble: LinkFault) {
        self.hops.iter().for_each(|hop| hop.link.begin(trouble));
    }

    /// Sends requests that the next hops never accept, and waits until other requests were delivered after them.
    async fn poison(&mut self) {
        let addresses = *self.service.addresses().borrow();
        let Some([grpc, _]) = addresses else { return };
        let client = Client::lazy(
            &format!("{POISONOUS}{}", self.accounts.poisoned),
            grpc,
            &self.oracle,
        );
        self.accounts.poisoned += 1;
        for number in 0..POISON {
            let signal = Signal::ALL[number % Signal::ALL.len()];
            if let Err(refused) = client.send(&client.request(signal, 1)).await {
                self.refusals.note(&refused);
            }
        }
        let goal = self.accounts.accepted.items() + BETWEEN;
        let accepted = || self.accounts.accepted.items();
        if !self.eventually(|| accepted() >= goal).await {
            let what = "requests that the next hop never accepts keep others from it";
            self.failures.push(what.to_owned());
        }
    }

    /// Waits for the remaining deliveries, and checks all promises.
    async fn end(mut self) -> Report {
        let backends: Vec<&Backend> = self.hops.iter().map(|hop| &hop.backend).collect();
        let is_own = matches!(self.service.program(), Program::Own);
        if is_own {
            self.failures
                .extend(self.service.wait_until_idle().await.err());
        } else {
            let missing = || self.oracle.missing_among(&backends);
            self.eventually(|| missing().is_empty()).await;
        }
        self.service.stop().await;
        let codes = self.service.wrong_codes();
        if is_own && !codes.is_empty() {
            self.failures
                .push(format!("exit codes after SIGTERM: {codes:?}"));
        }
        let lost = self.service.lost();
        let mut report = Report::of(
            &self.plan,
            &self.oracle,
            &backends,
            &self.accounts,
            &self.refusals,
            lost,
        );
        report.peak = self.service.peak;
        report.lives = self.service.lives;
        report.failures.append(&mut self.failures);
        report.judge(&self.plan);
        report
    }
}

/// Number of timeouts of a request in that time, at least 1.
fn timeouts(lasts: Duration) -> usize {
    1 + usize::try_from(lasts.as_millis() / TIMEOUT.as_millis()).unwrap()
}

/// Interval between resets of a link.
const FLAP: Duration = Duration::from_millis(200);
/// The beginning of the ids of items that the next hops do not accept while there is poison.
const POISONOUS: &str = "poison";

fn answer(script: ResponseScript, requests: usize, telemetry: &Telemetry) -> Answer {
    let is_poisonous = || telemetry.ids().iter().any(|id| id.starts_with(POISONOUS));
    if script.is_poisonable && is_poisonous() {
        Answer::Disconnect
    } else if script.refuses && requests.is_multiple_of(2) {
        Answer::Refuse(Refusal::UNAVAILABLE)
    } else if script.loses_answers && requests.is_multiple_of(4) {
        Answer::AcceptAndDisconnect
    } else {
        Answer::Accept
    }
}
