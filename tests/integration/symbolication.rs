//! Addresses become names: with real binaries, the worker process, uploads, and files that were made to do harm.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use http::Method;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;
use tempfile::TempDir;

use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to, raw};

pub(crate) const SOURCE: &str = "static inline __attribute__((always_inline)) int twice(int x) {
    return x * 2 + __builtin_ffs(x);
}
int work(int x) {
    return twice(x) + 1;
}
int main(int count, char **arguments) {
    return work(count);
}
";

/// A program with debug information, and the output of nm and readelf for it.
pub(crate) struct Program {
    pub(crate) directory: TempDir,
    pub(crate) file: PathBuf,
    pub(crate) build_id: String,
}

/// Returns the address of the function whose linkage name matches, as an address in the file, which profilers send.
pub(crate) fn address(file: &Path, is_it: impl Fn(&str) -> bool) -> u64 {
    let symbols = Command::new("nm").arg(file).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let mut lines = symbols
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|line| line.last().is_some_and(|name| is_it(name)));
    u64::from_str_radix(line.unwrap()[0], 16).unwrap()
}

impl Program {
    pub(crate) fn compile() -> Self {
        Self::of(SOURCE, &["-g"])
    }

    /// Compiled from this source with these flags: `program.o`, then `program`.
    pub(crate) fn of(source: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("program");
        fs::write(directory.path().join("program.c"), source).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&compiler);
            command.args(arguments).args(flags);
            let done = command.current_dir(directory.path()).status().unwrap();
            assert!(done.success());
        };
        let quiet = ["-O1", "-fno-ipa-icf", "-fno-inline-functions"];
        run(&[&quiet[..], &["-c", "program.c", "-o", "program.o"]].concat());
        run(&["program.o", "-o", "program", "-Wl,--build-id=sha1"]);
        let bytes = fs::read(&file).unwrap();
        // The note: length of its name, length of the id, its type, its name.
        let head = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        let at = bytes.windows(head.len()).position(|window| window == head);
        let id = &bytes[at.unwrap() + head.len()..][..20];
        Program {
            build_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            directory,
            file,
        }
    }

    pub(crate) fn address(&self, function: &str) -> u64 {
        address(&self.file, |name| name == function)
    }

    /// Returns the file's path in the layout of distributions.
    pub(crate) fn place_in(&self, root: &Path) -> PathBuf {
        in_layout(root, &self.build_id)
    }
}

/// Returns the path of the debug file of a build id.
pub(crate) fn in_layout(root: &Path, build_id: &str) -> PathBuf {
    let (first, rest) = build_id.split_at(2);
    root.join(".build-id")
        .join(first)
        .join(format!("{rest}.debug"))
}

/// A profile with a sample at each of these addresses of each of these binaries.
pub(crate) fn profile(build_ids: &[&str], addresses: &[u64]) -> Vec<u8> {
    let attribute = |build_id: &&str| {
        let value = any_value::Value::StringValue((*build_id).to_owned());
        proto::KeyValueAndUnit {
            key_strindex: 1,
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex: 0,
        }
    };
    let binaries = 1..=i32::try_from(build_ids.len()).unwrap();
    let mapping = |binary| proto::Mapping {
        attribute_indices: vec![binary],
        ..proto::Mapping::default()
    };
    let locations = binaries.clone().flat_map(|mapping_index| {
        addresses.iter().map(move |address| proto::Location {
            mapping_index,
            address: *address,
            ..proto::Location::default()
        })
    });
    let numbers = 1..=i32::try_from(build_ids.len() * addresses.len()).unwrap();
    let stack = |location| proto::Stack {
        location_indices: vec![location],
    };
    let sample = |stack_index| proto::Sample {
        stack_index,
        values: vec![1],
        ..proto::Sample::default()
    };
    let dictionary = proto::ProfilesDictionary {
        mapping_table: [proto::Mapping::default()]
            .into_iter()
            .chain(binaries.map(mapping))
            .collect(),
        location_table: [proto::Location::default()]
            .into_iter()
            .chain(locations)
            .collect(),
        function_table: vec![proto::Function::default()],
        link_table: vec![proto::Link::default()],
        string_table: ["", "process.executable.build_id.gnu"]
            .map(str::to_owned)
            .to_vec(),
        attribute_table: [proto::KeyValueAndUnit::default()]
            .into_iter()
            .chain(build_ids.iter().map(attribute))
            .collect(),
        stack_table: [proto::Stack::default()]
            .into_iter()
            .chain(numbers.clone().map(stack))
            .collect(),
    };
    let profile = proto::Profile {
        samples: numbers.map(sample).collect(),
        ..proto::Profile::default()
    };
    let scope = proto::ScopeProfiles {
        profiles: vec![profile],
        ..proto::ScopeProfiles::default()
    };
    let resource = proto::ResourceProfiles {
        scope_profiles: vec![scope],
        ..proto::ResourceProfiles::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![resource],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec()
}

/// The frames at each location, as `function file:line`, innermost first.
pub(crate) fn frames(request: &ExportProfilesServiceRequest) -> Vec<Vec<String>> {
    let tables = request.dictionary.as_ref().unwrap();
    let text = |index: i32| tables.string_table[usize::try_from(index).unwrap()].as_str();
    let frame = |line: &proto::Line| {
        let function = &tables.function_table[usize::try_from(line.function_index).unwrap()];
        let file = Path::new(text(function.filename_strindex)).file_name();
        let file = file.unwrap_or_default().to_string_lossy();
        format!("{} {file}:{}", text(function.name_strindex), line.line)
    };
    let locations = tables.location_table.iter().skip(1);
    locations
        .map(|location| location.lines.iter().map(frame).collect())
        .collect()
}

pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) backend: Backend,
    pub(crate) collector: Collector,
}

impl World {
    /// Starts a collector that takes symbols from `symbols` and caches them in `cache`. Profiles wait for the symbols.
    pub(crate) async fn start(more: &str, extensions: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let backend = Backend::start().await;
        let root = directory.path().display().to_string();
        let exporter = grpc_to(&backend, "");
        let extensions = extensions.replace("ROOT", &root);
        let yaml = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}}}
processors:
  symbolication: {{directories: [{root}/symbols], cache: {{directory: {root}/cache}}, hold: {{max_wait: 20s}}, {more}}}
exporters: {{otlp_grpc: {exporter}}}
{extensions}
  pipelines: {{profiles: {{receivers: [otlp], processors: [symbolication], exporters: [otlp_grpc]}}}}
"
        );
        let collector = Collector::start(&yaml).await;
        World {
            directory,
            backend,
            collector,
        }
    }

    pub(crate) fn symbols(&self) -> PathBuf {
        self.directory.path().join("symbols")
    }

    /// Sends a profile of one binary.
    pub(crate) async fn send(&self, build_id: &str, addresses: &[u64]) -> Vec<Vec<String>> {
        self.send_all(&[build_id], addresses).await
    }

    /// Sends a profile and waits until it has arrived. Returns its frames, by binary and address.
    async fn send_all(&self, build_ids: &[&str], addresses: &[u64]) -> Vec<Vec<String>> {
        frames(&self.send_request(profile(build_ids, addresses)).await)
    }

    /// Sends a request and returns it as it arrives.
    pub(crate) async fn send_request(&self, request: Vec<u8>) -> ExportProfilesServiceRequest {
        let before = self.backend.record().telemetry(Signal::Profiles).count();
        let headers = [("content-type", "application/x-protobuf")];
        let response = raw::http(
            self.collector.http(),
            Method::POST,
            "/v1development/profiles",
            &headers,
            request,
        )
        .await;
        assert_eq!(response.status, 200, "{}", response.text());
        self.backend
            .wait_for("the profile", |record| {
                record.telemetry(Signal::Profiles).count() > before
            })
            .await;
        let record = self.backend.record();
        match record.telemetry(Signal::Profiles).last() {
            Some(Telemetry::Profiles(request)) => request.clone(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) const PLAIN: &str = "service:";

#[tokio::test]
async fn addresses_of_real_program_are_symbolized() {
    let program = Program::compile();
    let world = World::start("", PLAIN).await;
    let place = program.place_in(&world.symbols());
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(&program.file, place).unwrap();
    let (work, main) = (program.address("work"), program.address("main"));
    let found = world.send(&program.build_id, &[work, main, 1]).await;
    let last = |frames: &[String]| frames.last().cloned().unwrap_or_default();
    assert!(last(&found[0]).starts_with("work program.c:"), "{found:?}");
    assert!(last(&found[1]).starts_with("main program.c:"), "{found:?}");
    assert!(found[2].is_empty(), "nothing is there: {found:?}");
    let inside: Vec<u64> = (work..main.max(work + 16)).collect();
    let found = world.send(&program.build_id, &inside).await;
    let inlined = |frames: &&Vec<String>| frames.len() == 2 && frames[0].starts_with("twice ");
    assert!(found.iter().find(inlined).is_some(), "{found:?}");
    let metrics = world.collector.metrics().await;
    let named = [("outcome", "named"), ("source", "dwarf")];
    let name = "tributary_processor_symbolication_locations";
    assert!(metrics.sum(name, &named) >= 4.0);
    assert!(metrics.sum("tributary_symbols_cache_bytes", &[]) > 0.0);
}

#[tokio::test]
async fn malicious_file_loses_only_its_own_symbols() {
    let program = Program::compile();
    // A CPU limit that no machine reaches, because these files end by themselves.
    let world = World::start("worker: {max_memory: 64MiB, max_cpu: 60s},", PLAIN).await;
    let whole = fs::read(&program.file).unwrap();
    let (first, rest) = program.build_id.split_at(2);
    let directory = world.symbols().join(".build-id").join(first);
    fs::create_dir_all(&directory).unwrap();
    // The same binary under other names: truncated, overwritten, and replaced by another file.
    let mut overwritten = whole.clone();
    for byte in overwritten.iter_mut().skip(64).step_by(7) {
        *byte = !*byte;
    }
    let harmful = [&whole[..whole.len() / 2], &overwritten, b"\x7fELF", b""];
    for (number, bytes) in harmful.iter().enumerate() {
        // The program's own id is random; the other ones differ from it.
        let own = u8::from_str_radix(&rest[..2], 16).unwrap();
        let byte = own.wrapping_add(1 + u8::try_from(number).unwrap());
        let other = format!("{byte:02x}{}", &rest[2..]);
        fs::write(directory.join(format!("{other}.debug")), bytes).unwrap();
        let id = format!("{first}{other}");
        let found = world.send(&id, &[program.address("main")]).await;
        assert_eq!(found, [Vec::<String>::new()]);
    }
    let place = program.place_in(&world.symbols());
    fs::copy(&program.file, place).unwrap();
    let found = world
        .send(&program.build_id, &[program.address("main")])
        .await;
    assert_eq!(found[0].len(), 1, "{found:?}");
    let left = fs::read_dir(world.directory.path().join("cache/tmp")).unwrap();
    assert_eq!(left.count(), 0, "nothing is left behind");
    let metrics = world.collector.metrics().await;
    assert!(metrics.sum("tributary_symbols_worker_failures", &[]) >= 4.0);
}

/// Numbers without a pattern, the same in every run (xorshift64).
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// Tests 48 mutations, or the number in `SYMBOL_MUTATIONS`.
#[tokio::test]
async fn mutated_binaries_stay_within_memory_limit() {
    let count = std::env::var("SYMBOL_MUTATIONS").map_or(48, |count| count.parse().unwrap());
    let program = Program::compile();
    let world = World::start("worker: {max_memory: 64MiB, max_cpu: 1s},", PLAIN).await;
    let whole = fs::read(&program.file).unwrap();
    let first = u32::from_str_radix(&program.build_id[..8], 16).unwrap();
    let note = whole
        .windows(4)
        .position(|window| window == first.to_be_bytes())
        .unwrap();
    let main = program.address("main");
    let mut noise = SeededRandom(0x9e37_79b9_7f4a_7c15);
    let mut named = 0;
    let numbers: Vec<u32> = (1..=count).collect();
    for numbers in numbers.chunks(16) {
        let mut build_ids = Vec::new();
        for number in numbers {
            let mut mutated = whole.clone();
            for _ in 0..1 + noise.below(64) {
                let at = noise.below(mutated.len());
                mutated[at] = noise.below(256) as u8;
            }
            // The headers, which contain all offsets.
            for _ in 0..noise.below(3) {
                mutated[noise.below(2) * 32 + 24 + noise.below(40)] ^= 1 << noise.below(8);
            }
            // A separate build id, so that the symbols of each mutation are used if there are any.
            let id = first.wrapping_add(*number);
            mutated[note..note + 4].copy_from_slice(&id.to_be_bytes());
            let build_id = format!("{id:08x}{}", &program.build_id[8..]);
            let place = in_layout(&world.symbols(), &build_id);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, mutated).unwrap();
            build_ids.push(build_id);
        }
        let ids: Vec<&str> = build_ids.iter().map(String::as_str).collect();
        let found = world.send_all(&ids, &[main, u64::MAX, 0x1234]).await;
        named += found
            .chunks(3)
            .filter(|binary| !binary[0].is_empty())
            .count();
    }
    let peak = world.collector.peak_memory();
    println!("{count} mutations, {named} still have names, at most {peak} bytes of memory");
    assert!(named > 0, "most are hardly damaged");
    assert!(peak < 256 << 20, "{peak} bytes");
    let place = program.place_in(&world.symbols());
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(&program.file, place).unwrap();
    let found = world.send(&program.build_id, &[main]).await;
    assert_eq!(found[0].len(), 1, "{found:?}");
}

struct Debuginfod {
    process: Child,
    port: u16,
}

impl Debuginfod {
    /// Starts a server for the files of a directory, and waits until it has found the build id. Without the path of the
    /// program in `DEBUGINFOD`, prints a note and returns `None`.
    fn start(files: &Path, build_id: &str) -> Option<Self> {
        let Some(program) = std::env::var_os("DEBUGINFOD") else {
            eprintln!("skipped: DEBUGINFOD is not the path of debuginfod");
            return None;
        };
        // The server needs a port number.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut process = Command::new(program)
            .args(["-vvv", "-d", ":memory:", "-F", "-p", &port.to_string()])
            .arg(files)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(process.stderr.take().unwrap()).lines();
        let recorded = format!("recorded buildid={build_id}");
        assert!(words.any(|line| line.unwrap().contains(&recorded)));
        std::thread::spawn(move || words.for_each(drop));
        Some(Debuginfod { process, port })
    }
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn real_debuginfod_serves_symbols() {
    let program = Program::compile();
    let Some(server) = Debuginfod::start(program.directory.path(), &program.build_id) else {
        return;
    };
    let more = format!(
        "debuginfod: {{servers: ['http://127.0.0.1:{}']}},",
        server.port
    );
    let world = World::start(&more, PLAIN).await;
    let main = program.address("main");
    let missing = format!("ffffffff{}", &program.build_id[8..]);
    let found = world
        .send_all(&[&program.build_id, &missing], &[main])
        .await;
    assert!(found[0][0].starts_with("main program.c:"), "{found:?}");
    assert!(found[1].is_empty(), "{found:?}");
    let metrics = world.collector.metrics().await;
    let asked = |outcome| {
        let labels = [("source", "debuginfod"), ("outcome", outcome)];
        metrics.sum("tributary_symbols_fetches", &labels)
    };
    assert_eq!([asked("found"), asked("not_found")], [1.0, 1.0]);
}

#[tokio::test]
async fn symbols_uploaded_by_command_are_found() {
    let program = Program::compile();
    let extensions = "extensions:
  bearertokenauth: {token: right}
  symbol_upload: {endpoint: '127.0.0.1:0', auth: {authenticator: bearertokenauth}, directory: ROOT/symbols}
service:
  extensions: [bearertokenauth, symbol_upload]";
    let world = World::start("", extensions).await;
    let address = world
        .collector
        .server("Starting HTTP server", "symbol_upload");
    let token = program.directory.path().join("token");
    let upload = move |word: &str, file: &Path| {
        fs::write(&token, word).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_collector"));
        command.args(["symbols", "upload", "--to"]);
        command.arg(format!("http://{address}")).arg("--token-file");
        command.arg(&token).arg(file).output().unwrap()
    };
    let file = program.file.clone();
    let (refused, text, done) = tokio::task::spawn_blocking(move || {
        let refused = upload("wrong", &file);
        let text = upload("right", Path::new("/etc/hostname"));
        (refused, text, upload("right\n", &file))
    })
    .await
    .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("401"), "{said}");
    let said = String::from_utf8_lossy(&text.stderr).into_owned();
    assert!(
        !text.status.success() && said.contains("--build-id"),
        "{said}"
    );
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.starts_with(&program.build_id));
    let found = world
        .send(&program.build_id, &[program.address("main")])
        .await;
    assert_eq!(found[0].len(), 1, "{found:?}");
}
