//! A simulated cache: the bytes that memory moves for observed accesses.

use std::collections::{BTreeMap, HashMap};

use elinvar_analysis::{Analysis, Kind};

use super::observed::Site;

/// Bytes of the cache and of its sectors.
const CACHE: usize = 1 << 20;
const SECTOR: i64 = 32;

/// A cache with LRU replacement. Sectors are of objects, by their names. A sector is loaded at its first load, unless it is in the cache, and written
/// back once it was stored: threads store whole ones together.
#[derive(Default)]
pub struct Cache {
    /// By sector, when it was used last, and whether it was stored.
    held: HashMap<(String, i64), (u64, bool)>,
    order: BTreeMap<u64, (String, i64)>,
    time: u64,
    moved: u64,
}

/// An access of device or constant memory.
pub struct Accessed {
    object: String,
    site: Site,
    offset: i64,
    bytes: u64,
}

impl Accessed {
    pub fn of(access: &elinvar_reference::Access) -> Self {
        let site = (access.site.0, access.site.1, access.which);
        Self { object: format!("{:?}", access.object), site, offset: access.offset, bytes: access.bytes }
    }
}

impl Cache {
    /// The bytes that these accesses move, in their order.
    pub fn moved_by(analysis: &Analysis, accesses: &[Accessed]) -> u64 {
        let kinds: HashMap<Site, Kind> =
            analysis.accesses.iter().map(|access| (access.instruction(), access.kind)).collect();
        let mut cache = Self::default();
        for accessed in accesses {
            cache.access(&accessed.object, kinds[&accessed.site], accessed.offset, accessed.bytes);
        }
        cache.moved
    }

    /// Moves what an access needs.
    fn access(&mut self, object: &str, kind: Kind, offset: i64, bytes: u64) {
        for sector in offset.div_euclid(SECTOR)..=(offset + bytes as i64 - 1).div_euclid(SECTOR) {
            self.time += 1;
            let before = self.held.get(&(object.to_owned(), sector)).copied();
            let was_stored = before.is_some_and(|(_, stored)| stored);
            let is_stored = was_stored || kind != Kind::Load;
            let is_loaded = before.is_none() && kind != Kind::Store;
            self.moved += SECTOR as u64 * (u64::from(is_loaded) + u64::from(is_stored && !was_stored));
            if let Some((before, _)) = before {
                self.order.remove(&before);
            }
            self.held.insert((object.to_owned(), sector), (self.time, is_stored));
            self.order.insert(self.time, (object.to_owned(), sector));
            if self.held.len() > CACHE / SECTOR as usize
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.held.remove(&oldest);
            }
        }
    }
}
