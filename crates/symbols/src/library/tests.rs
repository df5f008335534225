//! Tests with scripted sources that count their queries, on paused time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tempfile::TempDir;
use tokio::time::{advance, sleep};

use super::testing::{InProcess, tools};
use super::*;
use crate::describe::Description;
use crate::failure::Failure;
use crate::find::BinaryFiles;
use crate::testing::{compiled_with_lines, elf, id};
use crate::worker::{Compiler, WorkerLimits};
use futures_util::future::BoxFuture;

const HOUR: Duration = Duration::from_secs(3600);

/// Source with scripted responses, each after a second.
#[derive(Default)]
struct Answers {
    remote: bool,
    file: Mutex<Option<PathBuf>>,
    failure: Mutex<Option<Failure>>,
    /// Additional delay of a response.
    takes: Mutex<Duration>,
    asked: AtomicUsize,
}

struct Told(Arc<Answers>);

impl BinarySource for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn is_remote(&self) -> bool {
        self.0.remote
    }

    fn find<'a>(
        &'a self,
        _: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>> {
        Box::pin(async move {
            self.0.asked.fetch_add(1, SeqCst);
            let takes = *self.0.takes.lock().unwrap();
            sleep(Duration::from_secs(1) + takes).await;
            if let Some(failure) = self.0.failure.lock().unwrap().clone() {
                return Err(failure);
            }
            let file = self.0.file.lock().unwrap().clone();
            let file = file.ok_or(Failure::NotFound)?;
            if !self.0.remote {
                return Ok(BinaryFiles::file(file));
            }
            let scratch = tools.cache.scratch().unwrap();
            fs::copy(file, scratch.path()).unwrap();
            Ok(BinaryFiles::download(scratch))
        })
    }
}

struct World {
    directory: TempDir,
    _cache: TempDir,
    tools: Tools,
    local: Arc<Answers>,
    remote: Arc<Answers>,
    library: Arc<Library>,
}

impl World {
    fn new() -> Self {
        let (cache, tools) = tools();
        let local = Arc::new(Answers::default());
        let remote = Arc::new(Answers {
            remote: true,
            ..Answers::default()
        });
        let library = started(&tools, &[&local, &remote]);
        World {
            directory: tempfile::tempdir().unwrap(),
            _cache: cache,
            tools,
            local,
            remote,
            library,
        }
    }

    fn binary(&self, id: &BuildId) -> PathBuf {
        let path = self.directory.path().join(id.to_string());
        fs::write(&path, elf(id, &["main"])).unwrap();
        path
    }

    fn asked(&self) -> (usize, usize) {
        (
            self.local.asked.load(SeqCst),
            self.remote.asked.load(SeqCst),
        )
    }
}

fn started(tools: &Tools, sources: &[&Arc<Answers>]) -> Arc<Library> {
    let sources = sources
        .iter()
        .map(|source| Box::new(Told((*source).clone())) as Box<dyn BinarySource>);
    let id = "symbolication".parse().unwrap();
    Library::new(&id, tools.clone(), sources.collect(), HOUR)
}

async fn one(library: &Arc<Library>, id: &BuildId) -> Lookup {
    library
        .look_up(std::slice::from_ref(id), LookupAttempt::First)
        .await
        .pop()
        .unwrap()
}

/// Returns the final result of a lookup.
async fn settled(library: &Arc<Library>, id: &BuildId) -> Result<Arc<SymbolFile>, FailureKind> {
    loop {
        match one(library, id).await {
            Lookup::Ready(file) => return Ok(file),
            Lookup::Absent(kind) => return Err(kind),
            Lookup::Pending(pending) => pending.finished().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_lookups_share_one_fetch() {
    let world = World::new();
    let id = id(1);
    *world.remote.file.lock().unwrap() = Some(world.binary(&id));
    let Lookup::Pending(first) = one(&world.library, &id).await else {
        panic!("it cannot be there");
    };
    drop(first);
    let Lookup::Pending(second) = one(&world.library, &id).await else {
        panic!("it takes two seconds");
    };
    second.finished().await;
    assert!(matches!(one(&world.library, &id).await, Lookup::Ready(_)));
    assert_eq!(world.asked(), (1, 1));
    let other = started(&world.tools, &[&world.remote]);
    let ready = one(&other, &id).await;
    assert!(matches!(ready, Lookup::Ready(_)), "from the cache, at once");
    assert_eq!(world.asked(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn libraries_with_same_cache_share_one_fetch() {
    let world = World::new();
    let (present, missing) = (id(1), id(2));
    *world.remote.file.lock().unwrap() = Some(world.binary(&present));
    let libraries: [_; 2] = std::array::from_fn(|_| started(&world.tools, &[&world.remote]));
    for library in &libraries {
        let pending = one(library, &present).await;
        assert!(matches!(pending, Lookup::Pending(_)));
    }
    for library in &libraries {
        assert!(settled(library, &present).await.is_ok());
    }
    assert_eq!(world.asked(), (0, 1));
    *world.remote.file.lock().unwrap() = None;
    let (one, two) = tokio::join!(
        settled(&libraries[0], &missing),
        settled(&libraries[1], &missing)
    );
    assert_eq!(
        (one.err(), two.err()),
        (Some(FailureKind::NotFound), Some(FailureKind::NotFound))
    );
    assert_eq!(world.asked(), (0, 2));
}

/// Compiler that follows the content of a file: `lines`, no lines, or an error.
struct Contents(Arc<AtomicUsize>);

impl Compiler for Contents {
    fn limits(&self) -> WorkerLimits {
        InProcess.limits()
    }

    fn describe<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async { Ok(Description::default()) })
    }

    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            self.0.fetch_add(1, SeqCst);
            let files = [binary]
                .into_iter()
                .chain(supplementary.iter().map(PathBuf::as_path));
            let words = files.map(|file| fs::read_to_string(file).unwrap());
            let words: Vec<String> = words.collect();
            if words.iter().any(|word| word == "harm") {
                return Err(Failure::Unusable("it is another binary's".to_owned()));
            }
            compiled_with_lines(
                &id(1),
                output,
                words.iter().any(|word| word.ends_with("lines")),
            );
            Ok(())
        })
    }
}

/// Creates a world with that compiler and a local file of this content; and the number of compilations.
fn by_contents(content: &str) -> (World, Arc<AtomicUsize>, PathBuf) {
    let mut world = World::new();
    let compiled = Arc::new(AtomicUsize::new(0));
    world.tools.compiler = Arc::new(Contents(compiled.clone()));
    world.library = started(&world.tools, &[&world.local, &world.remote]);
    let file = world.directory.path().join("binary");
    fs::write(&file, content).unwrap();
    *world.local.file.lock().unwrap() = Some(file.clone());
    (world, compiled, file)
}

#[tokio::test(start_paused = true)]
async fn symbols_without_lines_are_used_until_better_ones_arrive() {
    let (world, compiled, file) = by_contents("names");
    let id = id(1);
    let partial = settled(&world.library, &id).await.unwrap();
    assert!(!partial.has_lines());
    assert_eq!(
        world.asked(),
        (1, 1),
        "the other source may have better ones"
    );
    for _ in 0..3 {
        advance(DIRECTORY_INTERVAL).await;
        assert!(settled(&world.library, &id).await.is_ok());
        sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(
        world.asked(),
        (4, 1),
        "directories every minute, servers not again"
    );
    assert_eq!(compiled.load(SeqCst), 1, "it is still the same file");
    fs::write(&file, "with lines").unwrap();
    advance(DIRECTORY_INTERVAL).await;
    let still = settled(&world.library, &id).await.unwrap();
    assert!(!still.has_lines(), "nobody waits for it");
    sleep(Duration::from_secs(2)).await;
    assert!(settled(&world.library, &id).await.unwrap().has_lines());
    let asked = world.asked();
    advance(HOUR).await;
    assert!(settled(&world.library, &id).await.unwrap().has_lines());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.asked(), asked, "there is nothing better");
    let restarted = started(&world.tools, &[&world.local]);
    let Lookup::Ready(kept) = one(&restarted, &id).await else {
        panic!("it is in the cache");
    };
    assert!(kept.has_lines());
}

#[tokio::test(start_paused = true)]
async fn source_without_lines_does_not_hide_better_source() {
    let (world, _, _) = by_contents("names");
    let better = world.directory.path().join("better");
    fs::write(&better, "lines").unwrap();
    *world.remote.file.lock().unwrap() = Some(better);
    let id = id(1);
    let Lookup::Pending(pending) = one(&world.library, &id).await else {
        panic!("it cannot be there");
    };
    sleep(Duration::from_millis(1500)).await;
    assert!(
        !settled(&world.library, &id).await.unwrap().has_lines(),
        "what is there is used"
    );
    pending.finished().await;
    assert!(settled(&world.library, &id).await.unwrap().has_lines());
}

#[tokio::test(start_paused = true)]
async fn useless_debug_file_compiles_binary_alone() {
    let (world, compiled, binary) = by_contents("names");
    let debug = world.directory.path().join("debug");
    fs::write(&debug, "harm").unwrap();
    let mut found = BinaryFiles::file(binary);
    found.add(BinaryFiles::file(debug));
    let compiled_alone = world.library.compile(&id(1), found, false).await;
    let file = compiled_alone.map(|compiled| compiled.file).ok().unwrap();
    assert_eq!(file.build_id(), Some(&id(1)));
    assert_eq!(compiled.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn absent_id_searches_directories_only_every_minute() {
    let world = World::new();
    let id = id(1);
    for round in 1..=5 {
        assert_eq!(
            settled(&world.library, &id).await.err(),
            Some(FailureKind::NotFound)
        );
        assert_eq!(
            settled(&world.library, &id).await.err(),
            Some(FailureKind::NotFound)
        );
        assert_eq!(world.asked(), (round, 1));
        advance(DIRECTORY_INTERVAL).await;
    }
    let restarted = started(&world.tools, &[&world.remote]);
    assert_eq!(
        settled(&restarted, &id).await.err(),
        Some(FailureKind::NotFound)
    );
    assert_eq!(world.asked().1, 1, "the cache knows, over a restart");
    *world.local.file.lock().unwrap() = Some(world.binary(&id));
    assert!(settled(&world.library, &id).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_retried_soon() {
    let world = World::new();
    let (library, id) = (started(&world.tools, &[&world.remote]), id(1));
    *world.remote.failure.lock().unwrap() = Some(Failure::Unreachable("away".to_owned()));
    assert_eq!(
        settled(&library, &id).await.err(),
        Some(FailureKind::Unreachable)
    );
    *world.remote.failure.lock().unwrap() = None;
    *world.remote.file.lock().unwrap() = Some(world.binary(&id));
    assert_eq!(
        settled(&library, &id).await.err(),
        Some(FailureKind::Unreachable)
    );
    // Memory uses the tests' clock, but a note on disk uses the wall clock, which a test cannot change.
    let note = Absence {
        kind: FailureKind::Unreachable,
        until: SystemTime::now(),
        limits: InProcess.limits(),
        rejected: Vec::new(),
    };
    let stored = world.tools.cache.store_absence(&id, SymbolKind::Any, &note);
    stored.unwrap();
    advance(Duration::from_secs(150)).await;
    assert!(settled(&library, &id).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn useless_file_is_compiled_again_only_after_a_change() {
    let world = World::new();
    let id = id(1);
    let file = world.binary(&id);
    fs::write(&file, b"\x7fELF and nothing else").unwrap();
    *world.local.file.lock().unwrap() = Some(file.clone());
    assert_eq!(
        settled(&world.library, &id).await.err(),
        Some(FailureKind::Unusable)
    );
    for _ in 0..3 {
        advance(DIRECTORY_INTERVAL).await;
        assert_eq!(
            settled(&world.library, &id).await.err(),
            Some(FailureKind::Unusable)
        );
    }
    assert_eq!(world.asked(), (4, 1));
    world.binary(&id);
    advance(DIRECTORY_INTERVAL).await;
    assert!(settled(&world.library, &id).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn wrong_build_id_falls_through_to_next_source() {
    let world = World::new();
    let (wanted, other) = (id(1), id(2));
    *world.local.file.lock().unwrap() = Some(world.binary(&other));
    *world.remote.file.lock().unwrap() = Some(world.binary(&wanted));
    let file = settled(&world.library, &wanted).await.unwrap();
    assert_eq!(file.build_id(), Some(&wanted));
    *world.remote.file.lock().unwrap() = Some(world.binary(&other));
    let failed = settled(&world.library, &id(3)).await.err();
    assert_eq!(failed, Some(FailureKind::WrongBuildId));
}

#[tokio::test(start_paused = true)]
async fn absent_build_ids_are_bounded_in_memory() {
    let world = World::new();
    let library = started(&world.tools, &[&world.remote]);
    let ids: Vec<BuildId> = (0..QUEUE_LENGTH as u32 + 10)
        .map(|number| BuildId::from_bytes(&number.to_be_bytes()).unwrap())
        .collect();
    let busy = |found: &&Lookup| matches!(found, Lookup::Absent(FailureKind::Busy));
    let found = library.look_up(&ids, LookupAttempt::First).await;
    let left = found.iter().filter(busy).count();
    assert_eq!(left, ids.len() - MAX_NEW_IDS, "one sender does not fill it");
    for some in ids.chunks(MAX_NEW_IDS) {
        library.look_up(some, LookupAttempt::First).await;
    }
    let found = library.look_up(&ids, LookupAttempt::First).await;
    assert_eq!(found.iter().filter(busy).count(), 10);
    assert_eq!(library.state().known.len(), QUEUE_LENGTH);
    let mut state = library.state();
    for number in 0..MAX_ABSENT as u64 + 1 {
        let id = BuildId::from_bytes(&number.to_be_bytes()).unwrap();
        state.absent(id, FailureKind::NotFound, Instant::now() + HOUR);
    }
    assert!(state.known.len() <= QUEUE_LENGTH + MAX_ABSENT);
    let file = {
        let path = world.directory.path().join("compiled");
        fs::File::create(&path).unwrap();
        crate::testing::compiled(&id(1), &path);
        Arc::new(SymbolFile::open(&path).unwrap())
    };
    for number in 0..2 * OPEN as u64 {
        let id = BuildId::from_bytes(&[&number.to_be_bytes()[..], b"open"].concat()).unwrap();
        state.open(id, file.clone(), Instant::now());
    }
    assert_eq!(state.open, OPEN);
}

/// Returns a binary with this number, and its compiled form.
fn numbered(number: u8) -> (BuildId, Vec<u8>) {
    let (id, file) = (id(number), tempfile::NamedTempFile::new().unwrap());
    compiled_with_lines(&id, file.path(), true);
    (id, fs::read(file.path()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn open_files_are_bounded_and_one_lookup_gets_all_of_its_files() {
    let world = World::new();
    let files: Vec<_> = (1..=9).map(numbered).collect();
    for (id, bytes) in &files {
        let scratch = world.tools.cache.scratch().unwrap();
        fs::write(scratch.path(), bytes).unwrap();
        world.tools.cache.store(id, scratch).unwrap();
    }
    let bytes = 4 * files[0].1.len() as u64 + 1;
    *world.library.state() = State::new(bytes);
    let ids: Vec<BuildId> = files.iter().map(|(id, _)| id.clone()).collect();
    for _ in 0..2 {
        let found = world.library.look_up(&ids, LookupAttempt::First).await;
        let ready = |found: &Lookup| matches!(found, Lookup::Ready(_));
        assert!(found.iter().all(ready));
        let state = world.library.state();
        assert_eq!((state.open, state.known.len()), (4, 4));
        assert!(state.open_bytes <= bytes);
    }
    let mut state = world.library.state();
    let (last, used) = state.in_use().pop().unwrap();
    assert!(used.elapsed().unwrap() < HOUR);
    state.close(&last);
    assert_eq!((state.open, state.known.len()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn file_deleted_by_cache_is_closed() {
    let (directory, mut tools) = tools();
    let small = crate::cache::Cache::open(&directory.path().join("small"), 1);
    tools.cache = Arc::new(small.unwrap());
    let world = World::new();
    let library = started(&tools, &[&world.local]);
    *library.state() = State::new(1 << 30);
    for number in 1..=3 {
        let id = id(number);
        *world.local.file.lock().unwrap() = Some(world.binary(&id));
        assert!(settled(&library, &id).await.is_ok());
    }
    let open: Vec<_> = library.state().in_use();
    assert_eq!(open.len(), 1, "there is room for the last one only");
}

#[tokio::test(start_paused = true)]
async fn slow_servers_do_not_delay_local_searches() {
    let world = World::new();
    let real = id(1);
    *world.local.file.lock().unwrap() = Some(world.binary(&real));
    *world.remote.takes.lock().unwrap() = HOUR;
    let made_up: Vec<BuildId> = (2..40).map(id).collect();
    world.library.look_up(&made_up, LookupAttempt::First).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.asked().1, MAX_FETCHES);
    let pending = one(&world.library, &real).await;
    assert!(matches!(pending, Lookup::Pending(_)));
    sleep(Duration::from_secs(10)).await;
    assert!(matches!(one(&world.library, &real).await, Lookup::Ready(_)));
}

#[tokio::test(start_paused = true)]
async fn absence_in_directories_writes_no_note() {
    let world = World::new();
    let library = started(&world.tools, &[&world.local]);
    for number in 1..10 {
        let found = settled(&library, &id(number)).await.err();
        assert_eq!(found, Some(FailureKind::NotFound));
    }
    assert_eq!(
        fs::read_dir(world.tools.cache.directory()).unwrap().count(),
        0
    );
}

struct Limited {
    memory: u64,
    ends: Failure,
    compiled: Arc<AtomicUsize>,
}

impl Compiler for Limited {
    fn limits(&self) -> WorkerLimits {
        WorkerLimits {
            memory: self.memory,
            ..InProcess.limits()
        }
    }

    fn describe<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async { Ok(Description::default()) })
    }

    fn compile<'a>(
        &'a self,
        _: &'a Path,
        _: &'a [PathBuf],
        _: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        self.compiled.fetch_add(1, SeqCst);
        Box::pin(async move { Err(self.ends.clone()) })
    }
}

impl World {
    /// Creates a library whose worker has this memory and this failure, and a counter of compilations.
    fn limited(&self, memory: u64, ends: Failure) -> (Arc<Library>, Arc<AtomicUsize>) {
        let compiled = Arc::new(AtomicUsize::new(0));
        let compiler = Limited {
            memory,
            ends,
            compiled: compiled.clone(),
        };
        let tools = Tools {
            compiler: Arc::new(compiler),
            ..self.tools.clone()
        };
        (started(&tools, &[&self.local]), compiled)
    }
}

#[tokio::test(start_paused = true)]
async fn raised_limit_retries_too_large_file() {
    let world = World::new();
    let id = id(1);
    *world.local.file.lock().unwrap() = Some(world.binary(&id));
    for (memory, compiled) in [(2, 1), (2, 0), (1, 0), (3, 1), (3, 0)] {
        let ends = Failure::Worker("it needs more".to_owned());
        let (library, count) = world.limited(memory, ends);
        assert!(settled(&library, &id).await.is_err());
        assert_eq!(count.load(SeqCst), compiled, "{memory}");
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_compilation_is_retried_after_minutes() {
    let world = World::new();
    let id = id(1);
    *world.local.file.lock().unwrap() = Some(world.binary(&id));
    let ends = Failure::Interrupted("memory is short".to_owned());
    let (library, count) = world.limited(1, ends.clone());
    for _ in 0..5 {
        let failed = settled(&library, &id).await.err();
        assert_eq!(failed, Some(FailureKind::Interrupted));
        advance(DIRECTORY_INTERVAL).await;
    }
    assert_eq!(count.load(SeqCst), 1);
    let (restarted, count) = world.limited(1, ends);
    let failed = settled(&restarted, &id).await.err();
    assert_eq!(
        (failed, count.load(SeqCst)),
        (Some(FailureKind::Interrupted), 0)
    );
    // A note on disk uses the wall clock, which a test cannot change.
    let cache = &world.tools.cache;
    let mut note = cache.absence(&id, SymbolKind::Any).unwrap();
    assert!(note.rejected.is_empty());
    note.until = SystemTime::now();
    cache.store_absence(&id, SymbolKind::Any, &note).unwrap();
    advance(Duration::from_secs(15 * 60)).await;
    assert!(settled(&restarted, &id).await.is_err());
    assert_eq!(count.load(SeqCst), 1);
}

/// Compiler that takes a second and counts parallel compilations.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Compiler for Busy {
    fn limits(&self) -> WorkerLimits {
        InProcess.limits()
    }

    fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
        InProcess.describe(file)
    }

    fn compile<'a>(
        &'a self,
        binary: &'a Path,
        supplementary: &'a [PathBuf],
        output: &'a Path,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let now = self.now.fetch_add(1, SeqCst) + 1;
            self.most.fetch_max(now, SeqCst);
            sleep(Duration::from_secs(1)).await;
            self.now.fetch_sub(1, SeqCst);
            InProcess.compile(binary, supplementary, output).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn pipelines_compile_one_binary_at_a_time() {
    let world = World::new();
    let busy = Arc::new(Busy::default());
    let id = id(1);
    *world.remote.file.lock().unwrap() = Some(world.binary(&id));
    let (one, other) = (tools(), tools());
    let turns = world.tools.compiling.clone();
    let libraries = [&one, &other].map(|(_, tools)| {
        let tools = Tools {
            compiler: busy.clone(),
            compiling: turns.clone(),
            ..tools.clone()
        };
        started(&tools, &[&world.remote])
    });
    let (one, other) = tokio::join!(settled(&libraries[0], &id), settled(&libraries[1], &id));
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(busy.most.load(SeqCst), 1);
    let cache = |name: &str| {
        let directory = world.directory.path().join(name);
        crate::cache::Cache::open(&directory, 1 << 20).unwrap()
    };
    let tools = ["a", "b"].map(|name| Tools::new(cache(name), busy.clone()));
    assert!(Arc::ptr_eq(&tools[0].compiling, &tools[1].compiling));
    assert_eq!(tools[0].compiling.available_permits(), 1);
}
