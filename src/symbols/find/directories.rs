//! Files of this machine, by the names that GDB, elfutils and distributions have for them.
//!
//! A binary whose debug information is elsewhere says where (`.gnu_debuglink`): beside it, in `.debug` beside it, or in one
//! of the directories under its own path. What it has in common with others (`dwz`) is found by its build id.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{Found, Source, Tools, layout};
use crate::pipeline::BoxFuture;
use crate::symbols::build_id::BuildId;
use crate::symbols::describe::DebugLink;
use crate::symbols::failure::Failure;
use crate::symbols::worker::Compiler;

/// Directories that are searched one after the other.
#[derive(Debug, Clone)]
pub struct Directories(pub Vec<PathBuf>);

/// The files of a build id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Files {
    debug: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl Directories {
    fn files(&self, id: &BuildId) -> Files {
        let first = |names: [String; 3]| {
            let below = |directory: &PathBuf| names.each_ref().map(|name| directory.join(name));
            let mut paths = self.0.iter().flat_map(below);
            paths.find(|path| path.is_file())
        };
        Files {
            debug: first(layout::debug_information(id)),
            binary: first(layout::binary(id)),
        }
    }

    /// The file that a debug link is to. Reads the files of that name to their ends.
    fn follow(&self, link: &DebugLink, binary: &Path) -> Option<PathBuf> {
        // In these directories a binary is mostly a link to where it is installed.
        let binary = binary.canonicalize().ok()?;
        let beside = binary.parent()?;
        let from_root = beside.strip_prefix("/").ok()?;
        let below = self.0.iter().map(|directory| directory.join(from_root));
        [beside.to_owned(), beside.join(".debug")]
            .into_iter()
            .chain(below)
            .map(|directory| directory.join(&link.name))
            .filter(|path| path.is_file() && *path != binary)
            .find(|path| crc(path).is_ok_and(|crc| crc == link.crc))
    }

    /// The files of a build id: the binary, its debug information, and what that has in common with others. The `compiler`
    /// reads what they say of themselves.
    ///
    /// # Errors
    /// [`Failure::NotFound`] when they are in none of the directories.
    pub async fn search(&self, id: &BuildId, compiler: &dyn Compiler) -> Result<Found, Failure> {
        let Files { debug, binary } = self.files(id);
        let mut found = match (debug, binary) {
            (Some(debug), Some(binary)) => {
                // The segments of a binary are those that count; of a debug file they may be made up.
                let mut found = Found::file(binary);
                found.add(Found::file(debug));
                found
            }
            (Some(file), None) | (None, Some(file)) => Found::file(file),
            (None, None) => return Err(Failure::NotFound),
        };
        let mut common = None;
        let files = [&found.binary].into_iter().chain(&found.supplementary);
        let files: Vec<PathBuf> = files.cloned().collect();
        let alone = files.len() == 1;
        for file in files {
            // One that cannot be read is found out when it is compiled.
            let description = compiler.describe(&file).await.unwrap_or_default();
            common = common.or(description.common);
            if let Some(link) = description.debug_link.filter(|_| alone) {
                let (searched, binary) = (self.clone(), file);
                let follow = move || searched.follow(&link, &binary);
                // None when the runtime ends.
                let debug = tokio::task::spawn_blocking(follow).await.ok().flatten();
                if let Some(debug) = debug {
                    let description = compiler.describe(&debug).await.unwrap_or_default();
                    common = common.or(description.common);
                    found.add(Found::file(debug));
                }
            }
        }
        if let Some(common) = common {
            let Files { debug, binary } = self.files(&common);
            debug
                .or(binary)
                .into_iter()
                .for_each(|file| found.add(Found::file(file)));
        }
        Ok(found)
    }
}

impl Source for Directories {
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
    ) -> BoxFuture<'a, Result<Found, Failure>> {
        Box::pin(self.search(id, tools.compiler.as_ref()))
    }
}

/// The CRC-32 of a file.
fn crc(path: &Path) -> io::Result<u32> {
    const PIECE: usize = 256 << 10;
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; PIECE];
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

    use super::*;
    use crate::symbols::library::testing::tools;
    use crate::symbols::testing::{elf, elf_with, id};

    /// A directory with these files.
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
        let directories = Directories(vec![directory.path().to_owned()]);
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
    async fn every_layout_is_known_and_the_binary_comes_before_its_debug_information() {
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
    async fn a_debug_link_is_followed_if_the_file_is_the_one_it_is_to() {
        let (one, common) = (id(1), id(2));
        let alt = [b"/made/up\0".as_slice(), common.as_bytes()].concat();
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
        let shared = in_layout(&common, ".build-id/", ".debug");
        let directory = directory(&[
            (&name, &binary),
            (&wrong, b"another file of that name"),
            (&right, &debug),
            (&shared, &elf(&common, &["main"])),
        ]);
        let found = search(&directory, &one).await;
        assert_eq!(found, Ok(vec![name, right, shared]));
    }
}
