//! Cost of compiling a binary into a symbol file, opening the file, looking up addresses, and
//! symbolizing the locations of a profile.
//!
//! `cargo bench --bench symbols -- BINARY [FILE...]` uses any binary with its companion files, by
//! default the benchmark itself. Prints the best of several runs. `cargo test --benches` runs each
//! step once.

use std::collections::HashSet;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;
use tributary::component::{BuildContext, Extensions, ProcessorConfig, Stage};
use tributary::pipeline::Consumer;
use tributary::pipeline::Next;
use tributary::pipeline::account::Account;
use tributary::pipeline::batch::{Batch, Nack};
use tributary::pipeline::health::Health;
use tributary::processors::symbolication::Config;
use tributary_memory::Budget;
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;
use tributary_profiles::names::BUILD_ID_GNU;
use tributary_symbols::cache::Cache;
use tributary_symbols::{BuildId, CompileLimits, CompileSummary, Inputs, SymbolFile, compile};

/// Addresses per run.
const ADDRESSES: usize = 1 << 20;
/// Locations of the profile.
const LOCATIONS: usize = 5000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = if arguments.iter().any(|argument| argument == "--bench") {
        7
    } else {
        1
    };
    let files = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"));
    let mut files: Vec<PathBuf> = files
        .map(PathBuf::from)
        .filter(|file| file.exists())
        .collect();
    if files.is_empty() {
        files.push(std::env::current_exe()?);
    }
    let (binary, supplementary) = files.split_first().ok_or("no binary")?;
    let inputs = Inputs {
        binary,
        supplementary,
    };
    let directory = tempfile::tempdir()?;
    let compiled = directory.path().join("compiled");
    let summary = compiling(&inputs, &compiled, runs.min(3))?;
    let file = SymbolFile::open(&compiled)?;
    let mut addresses = known(&file, summary.code);
    for order in ["any order", "ascending"] {
        looking_up(&file, &addresses, order, runs)?;
        addresses.sort_unstable();
    }
    let Some(id) = summary.build_id else {
        println!("name     not measured: the binary has no build id");
        return Ok(());
    };
    let step = addresses.len().div_ceil(LOCATIONS).max(1);
    let scattered: Vec<u64> = addresses.iter().copied().step_by(step).collect();
    let dense = addresses.get(..LOCATIONS).unwrap_or(&addresses).to_vec();
    let cache = Cache::open(&directory.path().join("cache"), u64::MAX)?;
    let scratch = cache.scratch()?;
    std::fs::copy(&compiled, scratch.path())?;
    cache.store(&id, scratch)?;
    for (of, addresses) in [("everywhere", scattered), ("nearby", dense)] {
        naming(&id, &addresses, directory.path(), of, 10 * runs)?;
    }
    Ok(())
}

fn compiling(
    inputs: &Inputs<'_>,
    path: &Path,
    runs: usize,
) -> Result<CompileSummary, Box<dyn Error>> {
    let mut size = std::fs::metadata(inputs.binary)?.len();
    for file in inputs.supplementary {
        size += std::fs::metadata(file)?.len();
    }
    let mut summary = CompileSummary::default();
    let time = best(runs, || {
        let mut output = BufWriter::new(File::create(path)?);
        summary = compile(inputs, &CompileLimits::default(), &mut output)?;
        Ok(())
    })?;
    let share = summary.bytes as f64 * 100.0 / size as f64;
    println!(
        "compile  {size} bytes in {time:?}: {} bytes, {share:.1} %",
        summary.bytes
    );
    let opening = best(runs, || {
        SymbolFile::open(path).map(drop).map_err(Into::into)
    })?;
    println!("open     {opening:?}");
    Ok(summary)
}

/// Looks up the frames of addresses, and the names of their functions: each function once, as for a dictionary.
fn looking_up(
    file: &SymbolFile,
    addresses: &[u64],
    order: &str,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    let (mut frames, mut functions) = (0, 0);
    let time = best(runs, || {
        let (mut cursor, mut names) = (file.cursor(), file.names());
        let mut known = HashSet::with_hasher(RandomState::default());
        let mut letters = 0;
        frames = 0;
        for address in addresses {
            for frame in cursor.frames(*address) {
                frames += 1;
                if known.insert(frame.function)
                    && let Some(function) = names.of(frame.function)
                {
                    letters += function.name.len() + function.system_name.len();
                }
            }
        }
        functions = known.len();
        std::hint::black_box(letters);
        Ok(())
    })?;
    println!(
        "look up  {:.2} million addresses a second, {order}, {:.2} frames each, {functions} functions",
        addresses.len() as f64 / time.as_secs_f64() / 1e6,
        frames as f64 / addresses.len().max(1) as f64,
    );
    Ok(())
}

/// The processor, with a profile of these addresses.
fn naming(
    id: &BuildId,
    addresses: &[u64],
    directory: &Path,
    of: &str,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    let cx = BuildContext {
        id: "symbolication".parse()?,
        budget: Budget::new(1 << 30),
        listeners: Listeners::default(),
        health: Arc::<Health>::default(),
        extensions: Extensions::default(),
        stored_queues: Default::default(),
        profile_stores: Default::default(),
        introspection: Default::default(),
        pipeline: String::new(),
    };
    let mut config = Config {
        directories: vec![directory.join("empty")],
        ..Config::default()
    };
    config.cache.directory = directory.join("cache");
    let Ok(Stage::Buffering(connect)) = config.build(&cx, Signal::Profiles) else {
        return Err("the processor has another shape".into());
    };
    let taker = Arc::new(Sink::default());
    let next = Next {
        consumer: taker.clone(),
        account: Account::of_pipeline("bench"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let _inside = runtime.enter();
    let (processor, _life) = connect(next);
    let request = Bytes::from(profile(id, addresses));
    let name = |runs| {
        let before = page_faults();
        let time = best(runs, || {
            let batch = Batch::new(Signal::Profiles, 1, request.clone());
            Ok(runtime.block_on(processor.consume(batch))?)
        })?;
        Ok::<_, Box<dyn Error>>((time, page_faults() - before))
    };
    // The first use opens the symbols and verifies their checksums.
    let (first, first_faults) = name(1)?;
    let (again, faults) = name(runs)?;
    println!(
        "name     {} locations from {of}, first in {first:?} with {first_faults} page faults, then in {again:?} with {}: \
         {} bytes become {}",
        addresses.len(),
        faults / runs as u64,
        request.len(),
        taker.bytes.load(std::sync::atomic::Ordering::Relaxed),
    );
    Ok(())
}

/// Page faults of this process without disk access (proc_pid_stat(5)); 0 if unknown.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let faults = behind_name.split_whitespace().nth(7);
    faults.and_then(|faults| faults.parse().ok()).unwrap_or(0)
}

/// Accepts everything, and records the size of the last request.
#[derive(Default)]
struct Sink {
    bytes: std::sync::atomic::AtomicUsize,
}

impl Consumer for Sink {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        let bytes = batch.into_wire().to_bytes().len();
        self.bytes
            .store(bytes, std::sync::atomic::Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// Samples, one per location.
fn profile(id: &BuildId, addresses: &[u64]) -> Vec<u8> {
    let attribute = proto::KeyValueAndUnit {
        key_strindex: 1,
        value: Some(AnyValue {
            value: Some(Value::StringValue(id.to_string())),
        }),
        unit_strindex: 0,
    };
    let location = |address: &u64| proto::Location {
        mapping_index: 1,
        address: *address,
        ..proto::Location::default()
    };
    let numbers = (1..).take(addresses.len());
    let dictionary = proto::ProfilesDictionary {
        string_table: vec![String::new(), BUILD_ID_GNU.to_owned()],
        attribute_table: vec![proto::KeyValueAndUnit::default(), attribute],
        mapping_table: vec![
            proto::Mapping::default(),
            proto::Mapping {
                attribute_indices: vec![1],
                ..proto::Mapping::default()
            },
        ],
        location_table: [proto::Location::default()]
            .into_iter()
            .chain(addresses.iter().map(location))
            .collect(),
        function_table: vec![proto::Function::default()],
        link_table: vec![proto::Link::default()],
        stack_table: [proto::Stack::default()]
            .into_iter()
            .chain(numbers.clone().map(|location| proto::Stack {
                location_indices: vec![location],
            }))
            .collect(),
    };
    let samples = numbers.map(|stack_index| proto::Sample {
        stack_index,
        values: vec![1],
        ..proto::Sample::default()
    });
    let profile = proto::Profile {
        samples: samples.collect(),
        ..proto::Profile::default()
    };
    let scope = proto::ScopeProfiles {
        profiles: vec![profile],
        ..proto::ScopeProfiles::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![scope],
            ..proto::ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec()
}

/// Random addresses that have names.
fn known(file: &SymbolFile, code: u64) -> Vec<u64> {
    let mut cursor = file.cursor();
    let mut random = 1_u64;
    let mut addresses = Vec::new();
    for _ in 0..64 * ADDRESSES {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Binaries are linked for addresses from 0 or 4 MiB on.
        let address = (random >> 20) % (2 * code + (8 << 20));
        if cursor.frames(address).next().is_some() {
            addresses.push(address);
        }
        if addresses.len() == ADDRESSES {
            break;
        }
    }
    addresses
}

fn best(
    runs: usize,
    mut step: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        step()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
