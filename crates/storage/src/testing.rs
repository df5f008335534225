//! A disk with scripted failures, which loses unsynced data in a power failure.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{Disk, Local, Output};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// The disk is full after this many bytes.
    Write(usize),
    /// Written data is not forced to disk.
    Sync,
    Truncate,
    Create,
    Reuse,
    Rename,
    Remove,
    Replace,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Faulty {
    faults: Arc<Mutex<Faults>>,
    /// Locked during every write.
    gate: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Scripted failures, with the number of times that each happens.
    faults: Vec<(Fault, usize)>,
    /// Size of each file after a power failure.
    durable: HashMap<PathBuf, u64>,
    /// Current names of files that were reused.
    names: HashMap<PathBuf, PathBuf>,
    syncs: usize,
}

impl Faulty {
    pub(super) fn fail(&self, fault: Fault, times: usize) {
        self.faults.lock().unwrap().faults.push((fault, times));
    }

    pub(super) fn recover(&self) {
        self.faults.lock().unwrap().faults.clear();
    }

    /// Blocks all writes while the returned guard lives.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }

    pub(super) fn syncs(&self) -> usize {
        self.faults.lock().unwrap().syncs
    }

    /// Truncates every file to its synced size.
    pub(super) fn power_fails(&self) {
        let mut inner = self.faults.lock().unwrap();
        for (path, len) in std::mem::take(&mut inner.durable) {
            let unfinished = path.with_added_extension("new");
            let path = if path.exists() { path } else { unfinished };
            if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                file.set_len(len).unwrap();
            }
        }
    }

    fn hit(&self, wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut inner = self.faults.lock().unwrap();
        let (fault, times) = inner
            .faults
            .iter_mut()
            .find(|(fault, times)| *times > 0 && wanted(*fault))?;
        *times -= 1;
        Some(*fault)
    }

    fn unless(&self, fault: Fault, code: i32) -> io::Result<()> {
        match self.hit(|other| other == fault) {
            Some(_) => Err(io::Error::from_raw_os_error(code)),
            None => Ok(()),
        }
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const LOCAL: Local = Local { mode: 0o600 };

impl Disk for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let _held = self.hold();
        self.unless(Fault::Create, ENOSPC)?;
        let inner = LOCAL.create(path)?;
        let mut faults = self.faults.lock().unwrap();
        faults.durable.insert(named(path), 0);
        // Another file of the same name was renamed before.
        faults.names.remove(&named(path));
        drop(faults);
        Ok(Box::new(FaultyOutput {
            inner,
            path: named(path),
            disk: self.clone(),
            len: 0,
        }))
    }

    fn reuse(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let _held = self.hold();
        self.unless(Fault::Reuse, EIO)?;
        self.faults.lock().unwrap().names.remove(path);
        Ok(Box::new(FaultyOutput {
            inner: LOCAL.reuse(path)?,
            path: path.to_owned(),
            disk: self.clone(),
            len: 0,
        }))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let _held = self.hold();
        LOCAL.sync_directory(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _held = self.hold();
        self.unless(Fault::Remove, EROFS)?;
        self.faults.lock().unwrap().durable.remove(path);
        LOCAL.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _held = self.hold();
        self.unless(Fault::Rename, EIO)?;
        LOCAL.rename(from, to)?;
        let mut inner = self.faults.lock().unwrap();
        if let Some(len) = inner.durable.remove(from) {
            inner.durable.insert(to.to_owned(), len);
        }
        inner.names.insert(from.to_owned(), to.to_owned());
        Ok(())
    }

    fn cut(&self, path: &Path, len: u64) -> io::Result<()> {
        let _held = self.hold();
        self.unless(Fault::Truncate, EIO)?;
        LOCAL.cut(path, len)?;
        self.faults
            .lock()
            .unwrap()
            .durable
            .insert(path.to_owned(), len);
        Ok(())
    }

    fn replace(&self, path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
        let _held = self.hold();
        self.unless(Fault::Replace, ENOSPC)?;
        LOCAL.replace(path, content, durable)
    }
}

fn named(path: &Path) -> PathBuf {
    match path.extension() {
        Some(extension) if extension == "new" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

#[derive(Debug)]
struct FaultyOutput {
    inner: Box<dyn Output>,
    path: PathBuf,
    disk: Faulty,
    len: u64,
}

impl Output for FaultyOutput {
    fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let disk = self.disk.clone();
        let _held = disk.hold();
        if let Some(Fault::Write(some)) = self.disk.hit(|fault| matches!(fault, Fault::Write(_))) {
            let some = some.min(bytes.len());
            self.inner.write(&mut [IoSlice::new(&bytes[..some])])?;
            self.len += some as u64;
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.inner.write(slices)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let disk = self.disk.clone();
        let _held = disk.hold();
        self.disk.unless(Fault::Sync, EIO)?;
        let mut inner = self.disk.faults.lock().unwrap();
        inner.syncs += 1;
        let name = inner.names.get(&self.path).unwrap_or(&self.path).clone();
        inner.durable.insert(name, self.len);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let disk = self.disk.clone();
        let _held = disk.hold();
        self.disk.unless(Fault::Truncate, EIO)?;
        self.inner.truncate(len)?;
        self.len = len;
        Ok(())
    }

    fn has_name(&self) -> io::Result<bool> {
        self.inner.has_name()
    }
}
