//! A disk in memory that stops at a chosen step, and profiles for tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use tributary_profiles::folded;

use crate::disk::{Disk, Input, Output};

pub(crate) const NANOS: u64 = 1_000_000_000;

type Content = Arc<Mutex<File>>;

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
}

/// A directory in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk {
    inner: Arc<Mutex<Inner>>,
    /// Locked during every read.
    reads: Arc<Mutex<()>>,
    /// Locked during every write.
    writes: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, Content>,
    /// The directory after a power failure.
    durable: BTreeMap<String, Content>,
    steps: usize,
    syncs: usize,
    /// Step from which everything fails.
    stop: Option<usize>,
    /// Size of all files at which the disk is full, in bytes.
    capacity: Option<usize>,
}

impl MemoryDisk {
    /// Creates a disk on which every change from a step on fails. The first failing write is torn.
    pub(crate) fn stopping_at(step: usize) -> Self {
        let disk = MemoryDisk::default();
        disk.lock().stop = Some(step);
        disk
    }

    /// Makes every change fail, or ends the failures.
    pub(crate) fn stop(&self, is_stopped: bool) {
        let mut inner = self.lock();
        inner.stop = is_stopped.then_some(inner.steps);
    }

    /// Makes the disk full at a size in bytes.
    pub(crate) fn limit(&self, capacity: usize) {
        self.lock().capacity = Some(capacity);
    }

    fn is_full(&self, more: usize) -> bool {
        let inner = self.lock();
        let size = |content: &Content| content.lock().unwrap().bytes.len();
        let used: usize = inner.files.values().map(size).sum();
        inner
            .capacity
            .is_some_and(|capacity| used + more > capacity)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        let inner = self.lock();
        inner.stop.is_some_and(|stop| inner.steps > stop)
    }

    pub(crate) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    /// Blocks all reads while the guard lives.
    pub(crate) fn hold_reads(&self) -> MutexGuard<'_, ()> {
        self.reads.lock().unwrap()
    }

    /// Blocks all writes to files while the guard lives.
    pub(crate) fn hold_writes(&self) -> MutexGuard<'_, ()> {
        self.writes.lock().unwrap()
    }

    /// The disk after the process was killed: the system has all that was written.
    pub(crate) fn after_kill(&self) -> Self {
        Self::with(&self.lock().files, |file| file.bytes.len())
    }

    /// The disk after a power failure: only synced content under synced names is left.
    pub(crate) fn after_power_failure(&self) -> Self {
        Self::with(&self.lock().durable, |file| file.synced)
    }

    fn with(files: &BTreeMap<String, Content>, len: impl Fn(&File) -> usize) -> Self {
        let files = files.iter().map(|(name, content)| {
            let content = content.lock().unwrap();
            let bytes = content.bytes[..len(&content)].to_vec();
            let synced = bytes.len();
            (name.clone(), Arc::new(Mutex::new(File { bytes, synced })))
        });
        let disk = MemoryDisk::default();
        let files: BTreeMap<_, _> = files.collect();
        disk.lock().durable = files.clone();
        disk.lock().files = files;
        disk
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let content = self.lock().files[name].clone();
        change(&mut content.lock().unwrap().bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn step(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.lock();
        inner.steps += 1;
        match inner.stop {
            Some(stop) if inner.steps > stop => Err(io::Error::other("the disk has stopped")),
            _ => Ok(inner),
        }
    }
}

#[derive(Debug)]
struct Open {
    disk: MemoryDisk,
    content: Content,
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let mut inner = self.step()?;
        if inner.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        inner.files.insert(name.to_owned(), content.clone());
        Ok(Box::new(Open {
            disk: self.clone(),
            content,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Input>> {
        let content = self.lock().files.get(name).cloned();
        Ok(Box::new(Open {
            disk: self.clone(),
            content: content.ok_or(io::ErrorKind::NotFound)?,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        let content = inner.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        let removed = inner.files.remove(name);
        removed.map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let inner = self.lock();
        let files = inner.files.iter();
        let size = |content: &Content| content.lock().unwrap().bytes.len() as u64;
        Ok(files
            .map(|(name, content)| (name.clone(), size(content)))
            .collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut inner = self.step()?;
        inner.durable = inner.files.clone();
        Ok(())
    }
}

impl Output for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let _held = self.disk.hold_writes();
        let stepped = match self.disk.is_full(bytes.len()) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.disk.step().map(|_| ()),
        };
        let written = match stepped {
            Ok(()) => bytes,
            Err(_) => &bytes[..bytes.len() / 2],
        };
        self.content
            .lock()
            .unwrap()
            .bytes
            .extend_from_slice(written);
        stepped
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.step()?.syncs += 1;
        let mut content = self.content.lock().unwrap();
        content.synced = content.bytes.len();
        Ok(())
    }
}

impl Input for Open {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let _held = self.disk.hold_reads();
        let content = self.content.lock().unwrap();
        let at = usize::try_from(at).unwrap();
        let bytes = content.bytes.get(at..at + len);
        bytes
            .map(<[u8]>::to_vec)
            .ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

pub(crate) fn attributes(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue((*value).to_owned())),
        }),
        ..KeyValue::default()
    };
    pairs.iter().map(attribute).collect()
}

/// A request with a profile of folded stacks, of a service and a version, at a time in seconds.
pub(crate) fn profile(service: &str, version: &str, seconds: u64, stacks: &str) -> Bytes {
    let mut profiles = folded::read(stacks).unwrap();
    let resource = &mut profiles.resources[0];
    let pairs = [("service.name", service), ("service.version", version)];
    resource.resource.as_mut().unwrap().attributes = attributes(&pairs);
    resource.scopes[0].profiles[0].header.time = seconds * NANOS;
    profiles.encode()
}
