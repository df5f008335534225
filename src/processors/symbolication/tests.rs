//! Binaries in a directory, profiles with addresses, and the forwarded requests.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::*;
use crate::component::{BufferingStage, Host};
use crate::pipeline::Next;
use crate::pipeline::account::Account;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::testing::Scripted;
use futures_util::future::BoxFuture;
use tributary_config::units;
use tributary_config::units::ByteSize;
use tributary_config::{Problems, Section, Validate as _};
use tributary_memory::Budget;
use tributary_profiles::names::BUILD_ID_GNU;
use tributary_symbols::BuildId;
use tributary_symbols::failure::Failure;
use tributary_symbols::find::BinaryFiles;
use tributary_symbols::library::testing::tools;
use tributary_symbols::testing::{CODE, SIZE, elf, id};

/// Provides a binary with the functions `main` and `work` after a signal.
struct Slow {
    file: PathBuf,
    there: Arc<Notify>,
}

impl BinarySource for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn find<'a>(
        &'a self,
        _: &'a BuildId,
        _: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>> {
        Box::pin(async move {
            self.there.notified().await;
            Ok(BinaryFiles::file(self.file.clone()))
        })
    }
}

struct World {
    _directories: [TempDir; 2],
    there: Arc<Notify>,
    next: Arc<Scripted>,
    stage: BufferingStage,
}

impl World {
    fn new(config: &Config, next: Arc<Scripted>) -> Self {
        Self::with_budget(config, next, Host::for_tests().budget)
    }

    fn with_budget(config: &Config, next: Arc<Scripted>, budget: Arc<Budget>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("binary");
        fs::write(&file, elf(&id(1), &["main", "work"])).unwrap();
        let there = Arc::new(Notify::new());
        let source = Slow {
            file,
            there: there.clone(),
        };
        let (cache, tools) = tools();
        let name = "symbolication".parse().unwrap();
        let hour = Duration::from_secs(3600);
        let library = Library::new(&name, tools, vec![Box::new(source)], hour);
        let mut cx = Host::for_tests().context(&name);
        cx.budget = budget;
        let account = Account::of_pipeline("profiles");
        let (consumer, mut life) = stage::connect(
            config,
            &cx,
            library,
            Next {
                consumer: next.clone(),
                account,
            },
        );
        life.start();
        World {
            _directories: [directory, cache],
            there,
            next,
            stage: (consumer, life),
        }
    }

    async fn send(&self) {
        self.stage.0.consume(batch()).await.unwrap();
    }

    /// Returns the names of the locations in each forwarded request.
    fn names(&self) -> Vec<Vec<String>> {
        let batches = self.next.batches().into_iter();
        batches.map(|batch| names(&batch)).collect()
    }
}

/// Returns a profile of a binary mapped at 0x40_0000, with addresses in `main`, in `work` and after
/// both, and one sample.
fn batch() -> Batch {
    let strings = ["", BUILD_ID_GNU];
    let build_id = any_value::Value::StringValue(id(1).to_string());
    let location = |address| proto::Location {
        mapping_index: 1,
        address: 0x40_0000 + address,
        ..proto::Location::default()
    };
    let dictionary = proto::ProfilesDictionary {
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![
            proto::KeyValueAndUnit::default(),
            proto::KeyValueAndUnit {
                key_strindex: 1,
                value: Some(AnyValue {
                    value: Some(build_id),
                }),
                unit_strindex: 0,
            },
        ],
        mapping_table: vec![
            proto::Mapping::default(),
            proto::Mapping {
                memory_start: 0x40_0000,
                memory_limit: 0x50_0000,
                attribute_indices: vec![1],
                ..proto::Mapping::default()
            },
        ],
        location_table: vec![
            proto::Location::default(),
            location(CODE + SIZE),
            location(CODE),
            location(CODE + 2 * SIZE),
        ],
        function_table: vec![proto::Function::default()],
        stack_table: vec![
            proto::Stack::default(),
            proto::Stack {
                location_indices: vec![1, 2, 3],
            },
        ],
        link_table: vec![proto::Link::default()],
    };
    let profile = proto::Profile {
        samples: vec![proto::Sample {
            stack_index: 1,
            values: vec![1],
            ..proto::Sample::default()
        }],
        ..proto::Profile::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile],
                ..proto::ScopeProfiles::default()
            }],
            ..proto::ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    };
    Batch::new(
        Signal::Profiles,
        1,
        bytes::Bytes::from(request.encode_to_vec()),
    )
}

fn names(batch: &Batch) -> Vec<String> {
    let bytes = batch.clone().into_wire().to_bytes();
    let request = ExportProfilesServiceRequest::decode(bytes).unwrap();
    let tables = request.dictionary.unwrap();
    let name = |location: &proto::Location| {
        let line = location.lines.first();
        let function = line.map(|line| &tables.function_table[line.function_index as usize]);
        let name = function.map(|function| &tables.string_table[function.name_strindex as usize]);
        name.cloned().unwrap_or_default()
    };
    tables.location_table.iter().skip(1).map(name).collect()
}

const NAMED: [&str; 3] = ["work", "main", ""];
const UNNAMED: [&str; 3] = ["", "", ""];

fn holding(max_wait: u64, max_bytes: ByteSize) -> Config {
    Config {
        hold: Section(Some(HoldConfig {
            max_wait: units::Duration::secs(max_wait),
            max_bytes,
        })),
        ..Config::default()
    }
}

/// Waits until fetched files have arrived. Threads read the files in these tests, and paused time
/// does not wait for threads.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn batch_does_not_wait_and_later_batch_has_symbols() {
    let world = World::new(&Config::default(), Scripted::new([]));
    let began = Instant::now();
    world.send().await;
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(world.names(), [UNNAMED]);
    world.there.notify_one();
    for _ in 0..10_000 {
        sleep(Duration::from_millis(1)).await;
        world.send().await;
        if world.names().last().unwrap() == &NAMED {
            return;
        }
    }
    panic!("they never came");
}

#[tokio::test(start_paused = true)]
async fn symbol_names_need_budget() {
    for (bytes, expected) in [(1 << 20, NAMED), (40, UNNAMED)] {
        let config = Config {
            wait: units::Duration::secs(600),
            ..Config::default()
        };
        let budget = Budget::new(bytes);
        let world = World::with_budget(&config, Scripted::new([]), budget.clone());
        world.there.notify_one();
        world.send().await;
        assert_eq!(world.names(), [expected], "{bytes}");
        let held = world.next.batches().iter().map(Batch::bytes).sum::<usize>();
        assert_eq!(budget.used(), if expected == NAMED { held } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn sender_waits_for_missing_symbols() {
    let config = Config {
        wait: units::Duration::secs(5),
        ..Config::default()
    };
    let world = World::new(&config, Scripted::new([]));
    let began = Instant::now();
    world.send().await;
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(6));
    world.there.notify_one();
    world.send().await;
    assert_eq!(world.names(), [UNNAMED, NAMED]);
}

#[tokio::test(start_paused = true)]
async fn held_batch_is_sent_when_symbols_arrive() {
    let world = World::new(&holding(3600, ByteSize::mib(1)), Scripted::new([]));
    world.send().await;
    world.send().await;
    assert!(!world.stage.1.idle());
    sleep(Duration::from_secs(60)).await;
    assert!(world.names().is_empty());
    world.there.notify_one();
    until(|| world.names().len() == 2).await;
    assert_eq!(world.names(), [NAMED, NAMED]);
    until(|| world.stage.1.idle()).await;
}

#[tokio::test(start_paused = true)]
async fn held_batch_is_sent_unnamed_after_timeout() {
    let room = ByteSize::bytes(batch().bytes() as u64);
    let world = World::new(&holding(30, room), Scripted::new([]));
    let began = Instant::now();
    world.send().await;
    assert!(world.names().is_empty());
    world.send().await;
    assert_eq!(world.names(), [UNNAMED], "no room for a second one");
    until(|| world.names().len() == 2).await;
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert_eq!(world.names(), [UNNAMED, UNNAMED]);
}

#[tokio::test(start_paused = true)]
async fn held_batch_is_sent_at_shutdown_and_after_refusal() {
    let next = Scripted::new([Err(Nack::unavailable("full"))]);
    let world = World::new(&holding(3600, ByteSize::mib(1)), next.clone());
    world.send().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let left = world.stage.1.shutdown(deadline).await;
    assert_eq!(left.items, 0);
    assert_eq!(next.taken(), [1]);
    let closed = world.stage.0.consume(batch()).await;
    assert!(closed.unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn named_or_unreadable_profiles_pass_unchanged() {
    let world = World::new(&Config::default(), Scripted::new([]));
    for bytes in [&b"\x12\x03\x12\x05\x01"[..], b"", b"\x0a\x00"] {
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        let batch = Batch::new(Signal::Profiles, 1, bytes.clone());
        world.stage.0.consume(batch).await.unwrap();
        let last = world.next.batches().pop().unwrap();
        assert_eq!(last.into_wire().to_bytes(), bytes);
    }
}

#[test]
fn mistakes_of_the_configuration_are_named() {
    let wrong = |edit: fn(&mut Config)| {
        let mut config = Config::default();
        edit(&mut config);
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems
            .found()
            .iter()
            .map(|problem| problem.path.join("::"));
        found.collect::<Vec<_>>()
    };
    assert!(wrong(|_| {}).is_empty());
    assert_eq!(wrong(|config| config.directories.clear()), ["directories"]);
    assert_eq!(
        wrong(|config| config.directories = vec!["a".into()]),
        ["directories::0"]
    );
    assert_eq!(
        wrong(|config| config.debuginfod.servers = vec!["debuginfod.example".to_owned()]),
        ["debuginfod::servers::0"]
    );
    assert_eq!(
        wrong(|config| config.cache.directory = "cache".into()),
        ["cache::directory"]
    );
    assert_eq!(
        wrong(|config| config.missing_for = units::Duration::default()),
        ["missing_for"]
    );
    assert_eq!(
        wrong(|config| config.worker.max_memory = ByteSize::mib(1)),
        ["worker::max_memory"]
    );
    let hold = wrong(|config| {
        config.hold = Section(Some(HoldConfig {
            max_wait: units::Duration::default(),
            max_bytes: ByteSize::default(),
        }));
    });
    assert_eq!(hold, ["hold::max_wait", "hold::max_bytes"]);
}
