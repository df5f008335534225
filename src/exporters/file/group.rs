//! `group_by`: one file for each value of a resource attribute.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::config::Config;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue::SendError;
use tributary_otlp::partition::{PartitionLevel, partition};
use tributary_otlp::reader::{Field, Fields};
use tributary_otlp::view::{AnyValue, Message, ResourceEntry, View as _, string_table};
use tributary_otlp::{Requests, Signal, count};

/// Number of the field of resources in requests of all signals.
const RESOURCE: u32 = 1;

/// Mapping of resources to files.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    /// `path` before the `*`, cleaned.
    prefix: String,
    /// `path` after the `*`.
    suffix: String,
    attribute: String,
}

/// The part of a request that goes to one file.
#[derive(Debug)]
pub(super) struct Group {
    /// `None`: the resources do not name a file, so their items are dropped.
    pub(super) path: Option<PathBuf>,
    pub(super) items: usize,
    pub(super) requests: Requests,
}

impl Groups {
    /// Returns the mapping of a configuration, if `group_by` is set.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let (prefix, suffix) = config.path.split_once('*')?;
        config.group_by.enabled.then(|| Groups {
            prefix: match (clean(prefix), prefix.ends_with('/')) {
                (cleaned, true) if !cleaned.ends_with('/') => cleaned + "/",
                (cleaned, _) => cleaned,
            },
            suffix: suffix.to_owned(),
            attribute: config.group_by.resource_attribute.clone(),
        })
    }

    /// Returns the directory that contains all files.
    pub(super) fn directory(&self) -> &Path {
        let end = self.prefix.rfind('/').map_or(0, |at| at + 1);
        match &self.prefix[..end] {
            "" => Path::new("."),
            directory => Path::new(directory),
        }
    }

    /// Returns the file of a value, by the Collector's rules. A value that would leave the directories that begin with
    /// the prefix becomes a path below the prefix.
    fn path(&self, value: &str) -> PathBuf {
        let value = match value {
            value if value.starts_with("./") => &value[1..],
            value if value.starts_with("../") => &value[2..],
            value => value,
        };
        let full = clean(&format!("{}{value}{}", self.prefix, self.suffix));
        if full.starts_with(&self.prefix) {
            return PathBuf::from(full);
        }
        let below = clean(&format!("/{value}{}", self.suffix));
        PathBuf::from(clean(&format!("{}/{below}", self.prefix)))
    }

    /// Splits requests by file, in the order of first occurrence. Only requests of profiles that go to several files
    /// are copied.
    ///
    /// # Errors
    /// There is no memory to split a request of profiles.
    pub(super) fn split(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Group>, SendError> {
        let mut found = Found::default();
        for request in requests.parts() {
            if signal == Signal::Profiles {
                self.split_profiles(request, memory, &mut found)?;
                continue;
            }
            let shares = partition(signal, request, PartitionLevel::Resource, |place| {
                found.index(self.file(&place.resource, &[]))
            });
            for share in shares {
                found.add(share.destination, share.items, share.requests);
            }
        }
        found.groups.retain(|group| !group.requests.is_empty());
        Ok(found.groups)
    }

    /// Returns the file that a resource names.
    fn file(&self, entry: &ResourceEntry<'_>, strings: &[&str]) -> Option<PathBuf> {
        let string = |at: i32| {
            let at = usize::try_from(at).ok()?;
            strings.get(at).copied()
        };
        let mut attributes = entry.resource()?.attributes();
        let found = attributes.find(|attribute| {
            let key = match attribute.key() {
                "" => string(attribute.key_strindex()).unwrap_or_default(),
                key => key,
            };
            key == self.attribute
        })?;
        match found.value()? {
            AnyValue::String(value) => Some(self.path(value)),
            AnyValue::StringIndex(at) => string(at).map(|value| self.path(value)),
            _ => None,
        }
    }

    fn split_profiles(
        &self,
        request: &Bytes,
        memory: &OutputMemory,
        found: &mut Found,
    ) -> Result<(), SendError> {
        let strings = string_table(request);
        let mut resources: Vec<(usize, Field<'_>)> = Vec::new();
        let mut shared = Vec::new();
        for field in Fields::new(request).map_while(Result::ok) {
            match (field.number, field.value.bytes()) {
                (RESOURCE, Some(entry)) => {
                    let entry = ResourceEntry::view(Message::new(entry));
                    resources.push((found.index(self.file(&entry, &strings)), field));
                }
                _ => shared.push(field.raw),
            }
        }
        let mut destinations: Vec<usize> = resources.iter().map(|(to, _)| *to).collect();
        destinations.sort_unstable();
        destinations.dedup();
        if let [] | [_] = destinations.as_slice() {
            let to = destinations.first().copied();
            let to = to.unwrap_or_else(|| found.index(None));
            let items = count(Signal::Profiles, request);
            found.add(to, items, request.clone().into());
            return Ok(());
        }
        for to in destinations {
            let own = resources.iter().filter(|(other, _)| *other == to);
            let fields = own.map(|(_, field)| field.raw).chain(shared.clone());
            let len = fields.clone().map(<[u8]>::len).sum();
            // Memory for the copy, and for the decoded copy while its dictionary is compacted.
            let take = |bytes| memory.take(bytes);
            take(len).map_err(|_| SendError::no_memory(memory))?;
            let mut part = Vec::with_capacity(len);
            fields.for_each(|field| part.extend_from_slice(field));
            let part = Bytes::from(part);
            let decoded = tributary_profiles::decoded_bytes(&part);
            take(decoded).map_err(|_| SendError::no_memory(memory))?;
            let part = tributary_profiles::compacted(&part).unwrap_or(part);
            let items = count(Signal::Profiles, &part);
            found.add(to, items, part.into());
        }
        Ok(())
    }
}

/// The groups found so far.
#[derive(Default)]
struct Found {
    groups: Vec<Group>,
    by_path: HashMap<Option<PathBuf>, usize>,
}

impl Found {
    fn index(&mut self, path: Option<PathBuf>) -> usize {
        let next = self.groups.len();
        let index = *self.by_path.entry(path.clone()).or_insert(next);
        if index == next {
            self.groups.push(Group {
                path,
                items: 0,
                requests: Requests::default(),
            });
        }
        index
    }

    fn add(&mut self, index: usize, items: usize, requests: Requests) {
        if let Some(group) = self.groups.get_mut(index) {
            group.items += items;
            group.requests.append(requests);
        }
    }
}

/// Creates a record for one file, as the two chunks of an encoded batch: the number of items with the path, and the
/// bytes.
pub(super) fn to_chunks(items: usize, path: Option<&Path>, record: Vec<u8>) -> [Bytes; 2] {
    let mut head = (items as u64).to_le_bytes().to_vec();
    if let Some(path) = path {
        head.extend_from_slice(path.as_os_str().as_bytes());
    }
    [head.into(), record.into()]
}

/// Reverses [`to_chunks`].
pub(super) fn of_chunks(pair: &[Bytes]) -> Option<(usize, Option<PathBuf>, &[u8])> {
    let [head, record] = pair else { return None };
    let (items, path) = head.split_first_chunk()?;
    let items = usize::try_from(u64::from_le_bytes(*items)).ok()?;
    let path = (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)));
    Some((items, path, record))
}

/// Returns the shortest equivalent path, without access to the file system, like Go's `path.Clean`.
fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&"..") | None if !is_absolute => parts.push(part),
                _ => {
                    parts.pop();
                }
            },
            part => parts.push(part),
        }
    }
    match (is_absolute, parts.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(path: &str) -> Groups {
        let yaml = format!("{{path: '{path}', group_by: {{enabled: true}}}}");
        Groups::of(&serde_yaml::from_str(&yaml).unwrap()).unwrap()
    }

    #[test]
    fn values_replace_star_below_the_prefix() {
        for (path, value, expected) in [
            ("/data/*.json", "a", "/data/a.json"),
            ("/data/*.json", "a/b", "/data/a/b.json"),
            ("/data/*.json", "./a", "/data/a.json"),
            ("/data/*.json", "../a", "/data/a.json"),
            ("/data/*.json", "../../etc/passwd", "/data/etc/passwd.json"),
            ("/data/*.json", "a/../../../etc/b", "/data/etc/b.json"),
            ("/data/*.json", "/etc/a", "/data/etc/a.json"),
            ("/data/app-*/x.json", "a", "/data/app-a/x.json"),
            ("/data/app-*/x.json", "../b", "/data/app-/b/x.json"),
            ("/data/app-*/x.json", "/../../b", "/data/app-/b/x.json"),
            ("./data/*", "a", "data/a"),
            ("./data/*", "../../../a", "data/a"),
            ("../x/*", "a", "../x/a"),
            ("/data//./*", "a", "/data/a"),
            ("/data/*", "", "/data"),
            ("/data/*", "..", "/data"),
        ] {
            assert_eq!(
                groups(path).path(value),
                Path::new(expected),
                "{path} {value}"
            );
        }
    }

    #[test]
    fn directory_is_common_prefix_of_files() {
        for (path, directory) in [
            ("/data/*.json", "/data/"),
            ("/data/app-*/x.json", "/data/"),
            ("app-*.json", "."),
            ("/*", "/"),
        ] {
            assert_eq!(groups(path).directory(), Path::new(directory), "{path}");
        }
    }

    #[test]
    fn chunks_are_read_back() {
        let path = PathBuf::from("/a");
        let chunks = to_chunks(7, Some(&path), b"record".to_vec());
        let (items, read, record) = of_chunks(&chunks).unwrap();
        assert_eq!((items, read, record), (7, Some(path), &b"record"[..]));
        let chunks = to_chunks(7, None, Vec::new());
        assert_eq!(of_chunks(&chunks), Some((7, None, &b""[..])));
    }
}
