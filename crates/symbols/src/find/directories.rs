//! Files of this machine, under the names that GDB, elfutils and distributions use.
//!
//! A binary names its separate debug file (`.gnu_debuglink`). The file is beside the binary, in `.debug` beside it, or
//! below one of the directories under the binary's path. Supplementary files of dwz are found by build id. Split debug
//! information is a package (`.dwp`) beside the binary, or `.dwo` files. `.dwo` files are searched for only under the
//! paths of their compilation, below one of the directories.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remembered::{Remembered, stamp};
use super::{BinaryFiles, BinarySource, Tools, blocking, layout};
use crate::build_id::BuildId;
use crate::compile::SplitUnit;
use crate::describe::Description;
use crate::failure::Failure;
use crate::links::DebugLink;
use crate::worker::Compiler;
use futures_util::future::BoxFuture;
use tributary_net::files::open_regular;

/// Directories that are searched in order.
#[derive(Debug, Clone)]
pub struct Directories {
    directories: Arc<[PathBuf]>,
    /// Cached descriptions. While a file is missing, the same files are found repeatedly; each description starts a
    /// process, and checking a debug link reads whole files.
    described: Arc<Remembered<Description>>,
    sums: Arc<Remembered<u32>>,
}

/// Maximum size of the unit paths cached per file, in bytes, because thousands of files may be cached.
const MAX_UNIT_BYTES: usize = 8 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Files {
    debug: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl Directories {
    /// Creates a source that searches these directories in order.
    pub fn new(directories: &[PathBuf]) -> Self {
        Directories {
            directories: directories.into(),
            described: Arc::default(),
            sums: Arc::default(),
        }
    }

    fn files(&self, id: &BuildId) -> Files {
        let first = |names: [String; 3]| {
            let below = |directory: &PathBuf| names.each_ref().map(|name| directory.join(name));
            let mut paths = self.directories.iter().flat_map(below);
            paths.find(|path| path.is_file())
        };
        Files {
            debug: first(layout::debug_information(id)),
            binary: first(layout::binary(id)),
        }
    }

    /// Returns the file that a debug link refers to. Reads files with that name completely to compare the CRC.
    fn follow(&self, link: &DebugLink, binary: &Path) -> Option<PathBuf> {
        // In these directories, a binary is mostly a link to its installed path.
        let binary = binary.canonicalize().ok()?;
        let beside = binary.parent()?;
        let from_root = beside.strip_prefix("/").ok()?;
        let below = self
            .directories
            .iter()
            .map(|directory| directory.join(from_root));
        [beside.to_owned(), beside.join(".debug")]
            .into_iter()
            .chain(below)
            .map(|directory| directory.join(&link.name))
            .filter(|path| path.is_file() && *path != binary)
            .find(|path| self.sum(path) == Some(link.crc))
    }

    fn sum(&self, path: &Path) -> Option<u32> {
        let stamp = stamp(path)?;
        self.sums.get(stamp).or_else(|| {
            let sum = crc(path).ok()?;
            self.sums.insert(stamp, sum);
            Some(sum)
        })
    }

    /// Returns the `.dwo` files of units. Their paths are untrusted, so only files below the directories are returned,
    /// and links to other directories are ignored.
    fn units(&self, units: &[SplitUnit]) -> Vec<PathBuf> {
        let roots = self.directories.iter();
        let roots: Vec<PathBuf> = roots.filter_map(|root| root.canonicalize().ok()).collect();
        let find = |unit: &SplitUnit| {
            let candidates = roots.iter().flat_map(|root| {
                let whole = root.join(&unit.directory).join(&unit.name);
                [(root, whole), (root, root.join(&unit.name))]
            });
            let mut there = candidates.filter_map(|(root, path)| {
                let path = path.canonicalize().ok()?;
                (path.starts_with(root) && path.is_file()).then_some(path)
            });
            there.next()
        };
        let mut found: Vec<PathBuf> = units.iter().filter_map(find).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Searches the directories on a thread for blocking tasks.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let directories = self.clone();
        blocking(move || Ok(look(&directories))).await
    }

    /// Describes a file; empty if the file cannot be read, since the compilation reports that.
    async fn describe(&self, file: &Path, compiler: &dyn Compiler) -> Result<Description, Failure> {
        let path = file.to_owned();
        let stamp = self.look(move |_| stamp(&path)).await?;
        if let Some(known) = stamp.and_then(|stamp| self.described.get(stamp)) {
            return Ok(known);
        }
        let description = compiler.describe(file).await;
        if let (Ok(description), Some(stamp)) = (&description, stamp)
            && description
                .units
                .iter()
                .map(SplitUnit::bytes)
                .sum::<usize>()
                <= MAX_UNIT_BYTES
        {
            self.described.insert(stamp, description.clone());
        }
        Ok(description.unwrap_or_default())
    }

    /// Returns the files of a build id: the binary, its debug file, and the supplementary file of that. The
    /// `compiler` describes the files.
    ///
    /// # Errors
    /// Returns [`Failure::NotFound`] if no directory has the files.
    pub async fn search(
        &self,
        id: &BuildId,
        compiler: &dyn Compiler,
    ) -> Result<BinaryFiles, Failure> {
        let of = id.clone();
        let Files { debug, binary } = self.look(move |here| here.files(&of)).await?;
        let mut found = match (debug, binary) {
            (Some(debug), Some(binary)) => {
                // The segments of the binary are authoritative; segments of a debug file may be wrong.
                let mut found = BinaryFiles::file(binary);
                found.add(BinaryFiles::file(debug));
                found
            }
            (Some(file), None) | (None, Some(file)) => BinaryFiles::file(file),
            (None, None) => return Err(Failure::NotFound),
        };
        let mut supplementary_id = None;
        let mut units = Vec::new();
        let files: Vec<PathBuf> = found.files().cloned().collect();
        let alone = files.len() == 1;
        for file in files {
            let description = self.describe(&file, compiler).await?;
            supplementary_id = supplementary_id.or(description.supplementary_id);
            units.extend(description.units);
            if let Some(link) = description.debug_link.filter(|_| alone) {
                let debug = self.look(move |here| here.follow(&link, &file)).await?;
                if let Some(debug) = debug {
                    let description = self.describe(&debug, compiler).await?;
                    supplementary_id = supplementary_id.or(description.supplementary_id);
                    units.extend(description.units);
                    found.add(BinaryFiles::file(debug));
                }
            }
        }
        let files: Vec<PathBuf> = found.files().cloned().collect();
        let split = move |here: &Self| match package(&files) {
            Some(package) => vec![package],
            None => here.units(&units),
        };
        for file in self.look(split).await? {
            found.add(BinaryFiles::file(file));
        }
        if let Some(supplementary_id) = supplementary_id {
            let Files { debug, binary } =
                self.look(move |here| here.files(&supplementary_id)).await?;
            debug
                .or(binary)
                .into_iter()
                .for_each(|file| found.add(BinaryFiles::file(file)));
        }
        Ok(found)
    }
}

impl BinarySource for Directories {
    fn name(&self) -> &'static str {
        "directories"
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn find<'a>(
        &'a self,
        id: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>> {
        Box::pin(self.search(id, tools.compiler.as_ref()))
    }
}

/// Returns the package of split debug information: beside one of these files or beside the target of a link, with the
/// file's name plus `.dwp`, as in GDB. The compilation verifies that its units belong to the binary.
fn package(files: &[PathBuf]) -> Option<PathBuf> {
    let installed = files.iter().filter_map(|file| file.canonicalize().ok());
    let packages = files.iter().cloned().chain(installed).map(|file| {
        let mut name = file.into_os_string();
        name.push(".dwp");
        PathBuf::from(name)
    });
    let mut packages = packages.filter(|path| path.is_file());
    packages.next()
}

/// Computes the CRC-32 of a file.
fn crc(path: &Path) -> io::Result<u32> {
    const READ_SIZE: usize = 256 << 10;
    let mut file = open_regular(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; READ_SIZE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finalize()),
            length => hasher.update(piece.get(..length).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::library::testing::{InProcess, tools};
    use crate::testing::{elf, elf_with, id};
    use crate::worker::WorkerLimits;

    fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        directory
    }

    async fn search(directory: &tempfile::TempDir, id: &BuildId) -> Result<Vec<String>, Failure> {
        let (_cache, tools) = tools();
        let directories = Directories::new(&[directory.path().to_owned()]);
        let found = directories.find(id, &tools).await?;
        let files = [found.binary].into_iter().chain(found.supplementary);
        let root = directory.path().canonicalize().unwrap();
        let relative = |path: PathBuf| {
            let path = path.canonicalize().unwrap();
            path.strip_prefix(&root).unwrap().display().to_string()
        };
        Ok(files.map(relative).collect())
    }

    fn in_layout(id: &BuildId, before: &str, after: &str) -> String {
        let id = id.to_string();
        format!("{before}{}/{}{after}", &id[..2], &id[2..])
    }

    #[tokio::test]
    async fn every_layout_is_found_with_binary_first() {
        let (one, two, three) = (id(1), id(2), id(3));
        let names = [
            in_layout(&one, ".build-id/", ""),
            in_layout(&one, "", ".debug"),
            in_layout(&two, ".build-id/", ".debug"),
            format!("{three}/debuginfo"),
        ];
        let binary = elf(&one, &["main"]);
        let files = names
            .each_ref()
            .map(|name| (name.as_str(), binary.as_slice()));
        let directory = directory(&files);
        let [a, b, c, d] = names.clone();
        assert_eq!(search(&directory, &one).await, Ok(vec![a, b]));
        assert_eq!(search(&directory, &two).await, Ok(vec![c]));
        assert_eq!(search(&directory, &three).await, Ok(vec![d]));
        assert_eq!(search(&directory, &id(4)).await, Err(Failure::NotFound));
    }

    #[tokio::test]
    async fn debug_link_is_followed_if_crc_matches() {
        let (one, supplementary_id) = (id(1), id(2));
        let alt = [b"/made/up\0".as_slice(), supplementary_id.as_bytes()].concat();
        let debug = elf_with(&one, &["main"], &[(".gnu_debugaltlink", &alt)]);
        let mut link = b"main.debug\0\0".to_vec();
        link.extend(crc32fast::hash(&debug).to_le_bytes());
        let binary = elf_with(&one, &["main"], &[(".gnu_debuglink", &link)]);
        let name = in_layout(&one, ".build-id/", "");
        let beside = |name: &str, directory: &str| {
            let place = Path::new(name).parent().unwrap();
            place.join(directory).display().to_string()
        };
        let (wrong, right) = (
            beside(&name, "main.debug"),
            beside(&name, ".debug/main.debug"),
        );
        let shared = in_layout(&supplementary_id, ".build-id/", ".debug");
        let directory = directory(&[
            (&name, &binary),
            (&wrong, b"another file of that name"),
            (&right, &debug),
            (&shared, &elf(&supplementary_id, &["main"])),
        ]);
        let found = search(&directory, &one).await;
        assert_eq!(found, Ok(vec![name, right, shared]));
    }

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Compiler for Counting {
        fn limits(&self) -> WorkerLimits {
            InProcess.limits()
        }

        fn describe<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Description, Failure>> {
            self.0.fetch_add(1, Relaxed);
            InProcess.describe(file)
        }

        fn compile<'a>(
            &'a self,
            binary: &'a Path,
            supplementary: &'a [PathBuf],
            output: &'a Path,
        ) -> BoxFuture<'a, Result<(), Failure>> {
            InProcess.compile(binary, supplementary, output)
        }
    }

    #[tokio::test]
    async fn file_is_described_once_and_companions_are_searched_again() {
        let (one, supplementary_id) = (id(1), id(2));
        let alt = [b"x\0".as_slice(), supplementary_id.as_bytes()].concat();
        let binary = elf_with(&one, &["main"], &[(".gnu_debugaltlink", &alt)]);
        let name = in_layout(&one, ".build-id/", "");
        let shared = in_layout(&supplementary_id, ".build-id/", ".debug");
        let directory = directory(&[(&name, &binary)]);
        let compiler = Counting::default();
        let directories = Directories::new(&[directory.path().to_owned()]);
        for _ in 0..3 {
            let found = directories.search(&one, &compiler).await.unwrap();
            assert_eq!(found.supplementary, [""; 0].map(PathBuf::from));
        }
        assert_eq!(compiler.0.load(Relaxed), 1);
        let shared = directory.path().join(shared);
        fs::create_dir_all(shared.parent().unwrap()).unwrap();
        fs::write(&shared, elf(&supplementary_id, &["main"])).unwrap();
        let found = directories.search(&one, &compiler).await.unwrap();
        assert_eq!(found.supplementary, [shared]);
        let changed = elf(&one, &["main", "more"]);
        fs::write(directory.path().join(&name), changed).unwrap();
        let found = directories.search(&one, &compiler).await.unwrap();
        assert!(found.supplementary.is_empty());
        assert_eq!(compiler.0.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn dwp_is_found_beside_binary_or_its_link_target() {
        let (one, two) = (id(1), id(2));
        let binary = elf(&one, &["main"]);
        let name = in_layout(&one, ".build-id/", "");
        let beside = format!("{name}.dwp");
        let directory = directory(&[
            (&name, &binary),
            (&beside, b"units"),
            ("bin/two", &elf(&two, &["main"])),
            ("bin/two.dwp", b"units"),
        ]);
        assert_eq!(search(&directory, &one).await, Ok(vec![name, beside]));
        let link = directory.path().join(in_layout(&two, ".build-id/", ""));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(directory.path().join("bin/two"), link).unwrap();
        let expected = ["bin/two", "bin/two.dwp"].map(str::to_owned).to_vec();
        assert_eq!(search(&directory, &two).await, Ok(expected));
    }

    #[test]
    fn units_are_searched_below_directories_only() {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret.dwo");
        fs::write(&secret, b"units").unwrap();
        let directory = directory(&[
            ("src/build/a.dwo", b"units"),
            ("obj/b.dwo", b"units"),
            ("etc/shadow", b"not the system's"),
        ]);
        let root = directory.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link.dwo")).unwrap();
        let directories = Directories::new(std::slice::from_ref(&root));
        for (built_in, name, expected) in [
            ("/src/build", "a.dwo", Some("src/build/a.dwo")),
            ("/src/build/lib", "../a.dwo", Some("src/build/a.dwo")),
            ("/elsewhere", "obj/b.dwo", Some("obj/b.dwo")),
            ("/src", "../../../../../etc/shadow", Some("etc/shadow")),
            ("/src", secret.to_str().unwrap(), None),
            ("/", "link.dwo", None),
            ("/src", "build", None),
        ] {
            let unit = SplitUnit::new(built_in, name).unwrap();
            let found = directories.units(&[unit.clone(), unit]);
            let expected: Vec<PathBuf> = expected.iter().map(|path| root.join(path)).collect();
            assert_eq!(found, expected, "{built_in} {name}");
        }
    }
}
