//! The files that a source has included, and whether they are still the same.
//!
//! A source's own text does not say what it means: that is decided by the files that it includes, and by
//! those that are not there where clang would have looked first. Both are listed when a source has been
//! compiled, and looked at again before the result is used for the same text.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use elinvar_cache::{Key, KeyBuilder, Reader, Writer};
use elinvar_driver::Source;

use crate::headers::MARK;

/// A file changed this shortly before the compilation may have changed in it: the clock of file systems is
/// coarse.
const TOO_LATE: Duration = Duration::from_millis(20);

/// Words whose meaning depends on more than the text and the included files.
const UNCERTAIN: [&str; 5] = ["__DATE__", "__TIME__", "__TIMESTAMP__", "__has_include", "__has_embed"];

fn uncertain(text: &str) -> bool {
    let embeds = |line: &str| {
        line.trim_start().strip_prefix('#').is_some_and(|rest| rest.trim_start().starts_with("embed"))
    };
    UNCERTAIN.iter().any(|word| text.contains(word)) || text.lines().any(embeds)
}

/// Files with their contents' hashes, and places where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Included {
    present: Vec<(String, Key)>,
    absent: Vec<String>,
}

impl Included {
    /// What a compilation that began at `begin` has included; `names` are all file names in its text. `None`
    /// when its result may depend on something else.
    pub(crate) fn of(source: &Source, names: &[String], begin: SystemTime) -> Option<Self> {
        if source.pieces.iter().any(|piece| uncertain(&piece.text)) {
            return None;
        }
        let mut included = Self::default();
        let of_text = |name: &str| source.pieces.iter().any(|piece| piece.name == name);
        // What `#line` names is among them. Whether there is such a file counts.
        let plain = |name: &&String| !of_text(name) && !name.is_empty() && !name.starts_with('<');
        let (ours, others): (Vec<&String>, _) =
            names.iter().filter(plain).partition(|name| name.contains(MARK));
        for name in others {
            let Some(bytes) = contents(name) else {
                included.absent.push(name.clone());
                continue;
            };
            let changed = std::fs::metadata(name).ok()?.modified().ok()?;
            if changed + TOO_LATE > begin || uncertain(&String::from_utf8_lossy(&bytes)) {
                return None;
            }
            included.present.push((name.clone(), Key::of(&bytes)));
        }
        included.absent.extend(included.shadows(source, &ours));
        Some(included)
    }

    /// The same files with the contents that they have now. `None` when one has gone or come.
    pub(crate) fn now(&self) -> Option<Self> {
        let present = self.present.iter().map(|(name, _)| Some((name.clone(), Key::of(&contents(name)?))));
        let present = present.collect::<Option<_>>()?;
        let none_came = self.absent.iter().all(|name| !Path::new(name).is_file());
        none_came.then(|| Self { present, absent: self.absent.clone() })
    }

    /// The key of what is compiled from a source of this key with these files.
    pub(crate) fn identity(&self, source: KeyBuilder) -> Key {
        let key = source.text("present").number(self.present.len() as u64);
        let key = self.present.iter().fold(key, |key, (name, hash)| key.text(name).key(hash));
        self.absent.iter().fold(key.text("absent"), |key, name| key.text(name)).finish()
    }

    /// Places where a file would be taken instead of one that was included, if it were there.
    fn shadows(&self, source: &Source, ours: &[&String]) -> BTreeSet<String> {
        let beside = self.present.iter().filter_map(|(name, _)| Path::new(name).parent().map(Path::to_owned));
        let folders: BTreeSet<PathBuf> = source.include_dirs.iter().cloned().chain(beside).collect();
        let mut spelled: BTreeSet<&Path> =
            ours.iter().filter_map(|name| Some(Path::new(name.rsplit_once("/include/")?.1))).collect();
        for (name, _) in &self.present {
            spelled.extend(folders.iter().filter_map(|folder| Path::new(name).strip_prefix(folder).ok()));
        }
        let places = folders.iter().flat_map(|folder| spelled.iter().map(|name| folder.join(name)));
        let free = places.filter(|place| !place.is_file());
        free.filter_map(|place| place.into_os_string().into_string().ok()).collect()
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.list(&self.present, |w, (name, key)| {
            w.text(name);
            w.bytes(key.as_bytes());
        });
        w.list(&self.absent, |w, name| w.text(name));
    }

    pub(crate) fn read(r: &mut Reader) -> Option<Self> {
        let present = r.list(|r| Some((r.text()?, Key::from_bytes(r.bytes()?)?)))?;
        Some(Self { present, absent: r.list(Reader::text)? })
    }
}

fn contents(name: &str) -> Option<Vec<u8>> {
    Path::new(name).is_file().then(|| std::fs::read(name).ok())?
}
