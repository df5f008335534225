//! Cost of merging profiles per sample.
//!
//! `cargo bench --bench profiles [-- FILE...]` reads files of OTLP profiles (protobuf), or
//! generates profiles of a service. `--write=FILE` writes the merged profile.
//!
//! `--pprof` reads or generates pprof files instead, and measures the CPU time of reading and
//! merging a thousand of them, decompression included. The same files can be given to `go tool
//! pprof`; `--write=DIRECTORY` writes the generated files. `--services=N` generates files of N
//! services, each with functions of its own.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tributary_compression::Codec;
use tributary_compression::compress::Compressor;
use tributary_memory::Budget;
use tributary_profiles::entries::Entries;
use tributary_profiles::identity::Identities;
use tributary_profiles::merge::MergeOptions;
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::{Compactor, Dictionary, Merger, check, join, pprof};

type Request = ExportProfilesServiceRequest;

/// Number of merged profiles.
const PROFILES: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let files = arguments.iter().filter(|word| !word.starts_with('-'));
    if arguments.iter().any(|word| word == "--pprof") {
        let files: Vec<&String> = files.collect();
        return pprof_files(&files, &arguments);
    }
    let mut requests: Vec<Request> = files.map(|file| read(file)).collect();
    if requests.is_empty() {
        requests = (0..10).map(made_up).collect();
    }
    if let Some(file) = arguments
        .iter()
        .find_map(|word| word.strip_prefix("--write="))
    {
        if let Err(error) = std::fs::write(file, merge(&requests).finish().encode()) {
            eprintln!("cannot write {file}: {error}");
        }
        return;
    }
    let count = requests.len();
    let requests: Vec<Request> = requests
        .into_iter()
        .cycle()
        .take(count.max(PROFILES))
        .collect();
    let encoded: Vec<Vec<u8>> = requests.iter().map(Request::encode_to_vec).collect();
    let samples: usize = requests.iter().map(samples).sum();
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    println!(
        "{} requests, {samples} samples, {bytes} bytes",
        requests.len()
    );
    let rounds = if arguments.iter().any(|word| word == "--bench") {
        15
    } else {
        1
    };
    let merged = merge(&requests).finish();
    println!(
        "merged: {} samples, {} bytes",
        merged.samples(),
        merged.encode().len()
    );
    let step = |name: &str, run: &dyn Fn()| {
        let mut times: Vec<f64> = (0..rounds)
            .map(|_| {
                let start = Instant::now();
                run();
                start.elapsed().as_nanos() as f64 / samples as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let best = times.first().copied().unwrap_or_default();
        println!("{name:<40} {best:>9.1} {median:>9.1} ns per sample");
    };
    step("decode with prost", &|| {
        for bytes in &encoded {
            drop(black_box(Request::decode(bytes.as_slice())));
        }
    });
    let merge_encoded = || {
        let mut merger = Merger::new(MergeOptions::default());
        for request in &encoded {
            let _ = black_box(merger.add_encoded(request));
        }
        merger
    };
    step("merge", &|| drop(black_box(merge_encoded())));
    step("merge, encode", &|| {
        drop(black_box(merge_encoded().finish().encode()));
    });
    let compact = |requests: &[Vec<u8>]| {
        let mut compactor = Compactor::new();
        for request in requests {
            let _ = black_box(compactor.add_encoded(request));
        }
        compactor.finish().encode()
    };
    step("compact, encode", &|| drop(black_box(compact(&encoded))));
    let parts: Vec<Bytes> = encoded.iter().map(|part| part.clone().into()).collect();
    step("join", &|| drop(black_box(join(&parts, usize::MAX))));
    let mut compactor = Compactor::new();
    for request in &requests {
        let _ = compactor.add(request);
    }
    let whole = compactor.finish().encode();
    step("identities of all profiles", &|| {
        let mut memory = Vec::new();
        let Ok((entries, resources)) = Entries::of_request(&whole) else {
            return;
        };
        let mut identities = Identities::new(&entries, &mut memory);
        let Ok(profiles) = identities.profiles(&resources, &[]) else {
            return;
        };
        for profile in &profiles {
            let _ = black_box(identities.delivery(profile));
        }
    });
    step("check", &|| {
        for request in &requests {
            drop(black_box(check::check(request)));
        }
    });
}

/// Number of merged pprof files.
const FILES: usize = 1000;

fn pprof_files(names: &[&String], arguments: &[String]) {
    let mut files: Vec<Vec<u8>> = names
        .iter()
        .map(|name| std::fs::read(name).unwrap_or_default())
        .collect();
    let services = arguments
        .iter()
        .find_map(|word| word.strip_prefix("--services=")?.parse().ok())
        .unwrap_or(1);
    if files.is_empty() {
        let each = (0..20).flat_map(|seed| (0..services).map(move |service| (seed, service)));
        files = each
            .filter_map(|(seed, service)| made_up_pprof(seed, service))
            .collect();
    }
    let directory = arguments
        .iter()
        .find_map(|word| word.strip_prefix("--write="));
    if let Some(directory) = directory {
        for (file, number) in files.iter().zip(0..) {
            let name = format!("{directory}/{number}.pb.gz");
            if let Err(error) = std::fs::write(&name, file) {
                eprintln!("cannot write {name}: {error}");
            }
        }
        return;
    }
    let measured = arguments.iter().any(|word| word == "--bench");
    let count = if measured { FILES } else { files.len() };
    let budget = Budget::new(1 << 30);
    let options = pprof::ReadOptions::default();
    let mut samples = 0;
    let mut read = |merge: bool| {
        let mut reader = pprof::PprofReader::new();
        let mut merger = Merger::new(MergeOptions::default());
        samples = 0;
        let start = cpu();
        for file in files.iter().cycle().take(count) {
            let mut alone = Dictionary::new();
            let (into, relocations) = match merge {
                true => {
                    let (dictionary, relocations) = merger.dictionary();
                    (dictionary, Some(relocations))
                }
                false => (&mut alone, None),
            };
            let Ok(mut permit) = budget.acquire(0) else {
                continue;
            };
            match reader.read(file, &options, &mut permit, into, relocations) {
                Err(error) => eprintln!("left out: {error}"),
                Ok(converted) => {
                    let profiles = converted.profiles.profiles.iter();
                    samples += profiles.map(|profile| profile.samples.len()).sum::<usize>();
                    let resources = [ResourceProfiles {
                        scopes: vec![converted.profiles],
                        ..ResourceProfiles::default()
                    }];
                    if merge {
                        merger.add_profiles(&resources);
                    } else {
                        black_box(&resources);
                    }
                }
            }
        }
        black_box(merger.bytes());
        cpu() - start
    };
    for (name, merge) in [("read and convert", false), ("read and merge", true)] {
        let mut times: Vec<f64> = (0..if measured { 5 } else { 1 })
            .map(|_| read(merge))
            .collect();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        println!("{name} {count} pprof files: {median:.4} s of CPU time (median)");
    }
    println!("{samples} values");
}

/// The CPU time this process has used, in seconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

fn made_up_pprof(seed: usize, service: usize) -> Option<Vec<u8>> {
    let mut compactor = Compactor::new();
    let mut request = made_up(seed);
    let strings = request.dictionary.iter_mut();
    for name in strings.flat_map(|tables| &mut tables.string_table).skip(3) {
        *name = name.replace("service", &format!("service{service}"));
    }
    compactor.add(&request).ok()?;
    let profiles = compactor.finish();
    let resource = profiles.resources.first()?;
    let links = pprof::LinkLabels::default();
    let scope = resource.scopes.first()?;
    let files = pprof::write::write(&profiles.dictionary, resource, scope, &links);
    let file = files.into_iter().next()?;
    let gzip = Compressor::new(Codec::Gzip, None);
    Some(gzip.compress(&[file.into()]).ok()?.to_vec())
}

fn merge(requests: &[Request]) -> Merger {
    let mut merger = Merger::new(MergeOptions::default());
    for request in requests {
        if let Err(error) = merger.add(request) {
            eprintln!("left out: {error}");
        }
    }
    merger
}

fn samples(request: &Request) -> usize {
    let resources = request.resource_profiles.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_profiles);
    let profiles = scopes.flat_map(|scope| &scope.profiles);
    profiles.map(|profile| profile.samples.len()).sum()
}

fn read(file: &str) -> Request {
    let bytes = std::fs::read(file).unwrap_or_default();
    Request::decode(bytes.as_slice()).unwrap_or_default()
}

/// A CPU profile of a service: 1,000 samples over 900 stacks of 25 frames, most of them shared with other profiles.
fn made_up(seed: usize) -> Request {
    const STACKS: usize = 900;
    const FUNCTIONS: usize = 600;
    let index = |number: usize| i32::try_from(number).unwrap_or_default();
    let mut tables = proto::ProfilesDictionary {
        mapping_table: vec![Default::default(); 2],
        location_table: vec![Default::default()],
        function_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: vec!["", "cpu", "nanoseconds", "/app/service"]
            .into_iter()
            .map(str::to_owned)
            .collect(),
        attribute_table: vec![Default::default()],
        stack_table: vec![Default::default()],
    };
    if let Some(mapping) = tables.mapping_table.last_mut() {
        *mapping = proto::Mapping {
            memory_start: 0x40_0000 + 0x1000 * seed as u64,
            memory_limit: 0x80_0000 + 0x1000 * seed as u64,
            filename_strindex: 3,
            ..Default::default()
        };
    }
    for function in 0..FUNCTIONS {
        let name = format!(
            "example.com/service/package{}.Function{function}",
            function % 40
        );
        tables.function_table.push(proto::Function {
            name_strindex: index(tables.string_table.len()),
            ..Default::default()
        });
        tables.string_table.push(name);
        tables.location_table.push(proto::Location {
            mapping_index: 1,
            address: 0x40_0000 + 0x1000 * seed as u64 + 64 * function as u64,
            lines: vec![proto::Line {
                function_index: index(function + 1),
                line: index(function % 100).into(),
                column: 0,
            }],
            ..Default::default()
        });
    }
    for stack in 0..STACKS {
        let stack = stack + seed * 20;
        let frame = |depth: usize| index(1 + (stack * (depth + 1) + depth * depth) % FUNCTIONS);
        tables.stack_table.push(proto::Stack {
            location_indices: (0..25).map(frame).collect(),
        });
    }
    let samples = (0..1000).map(|at| proto::Sample {
        stack_index: index(1 + at * 7 % STACKS),
        values: vec![10_000_000],
        ..Default::default()
    });
    let kind = Some(proto::ValueType {
        type_strindex: 1,
        unit_strindex: 2,
    });
    let profile = proto::Profile {
        sample_type: kind,
        samples: samples.collect(),
        time_unix_nano: 1 + seed as u64,
        duration_nano: 10,
        period_type: kind,
        period: 10_000_000,
        ..Default::default()
    };
    let service = KeyValue {
        key: "service.name".to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue("service".to_owned())),
        }),
        key_strindex: 0,
    };
    Request {
        dictionary: Some(tables),
        resource_profiles: vec![proto::ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![service],
                ..Default::default()
            }),
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile],
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
}
