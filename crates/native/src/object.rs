//! [`Object`]: a kernel's machine code and its metadata.

use elinvar_spmd::RowSizes;
use elinvar_spmd::bounds::Checks;
use serde::{Deserialize, Serialize};

/// A kernel's machine code for one [`Form`](crate::Form), with the metadata that a launch requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The shared object, which defines [`Object::SYMBOL`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Whether clang has optimized it.
    pub optimized: bool,
    /// Size in bytes of the scratch memory before the dynamic threadgroup memory.
    pub scratch_bytes: u64,
    /// Whether threadgroups must start in ascending order, because the kernel could observe another order.
    pub ascending: bool,
    /// Whether each call combines private counters with a buffer at its end.
    pub private_counters: bool,
    /// Whether the kernel has grid barriers, so that each call runs one threadgroup up to the next one ([`elinvar_spmd::SUSPENDED`]).
    pub cooperative: bool,
    /// Fault codes: code `n` has its message and, if known, its location as `file:line` at index `n - 1`.
    pub faults: Vec<(String, Option<String>)>,
    /// With bounds checks: the accesses and memory objects that a fault record refers to. [`elinvar_code::Bounds`] formats fault records.
    pub checks: Option<Checks>,
    /// The sizes that the kernel's general code serves, if there is such code.
    pub row_sizes: Option<RowSizes>,
}

impl Object {
    /// Name of the function that runs threadgroups.
    pub const SYMBOL: &str = elinvar_spmd::SYMBOL;
}

#[cfg(test)]
mod tests {
    use elinvar_cache::{decode, encode};
    use elinvar_spmd::Location;
    use elinvar_spmd::bounds::{Root, RootKind, Site};

    use super::*;

    #[test]
    fn an_object_is_a_record() {
        let location = Location { file: "a.metal".into(), line: 3, column: 0 };
        let kinds = [
            RootKind::Argument(2),
            RootKind::Threadgroup("tile".into()),
            RootKind::Private,
            RootKind::Constant("table".into()),
            RootKind::Null,
        ];
        let checks = Checks {
            sites: vec![
                Site { writes: true, bytes: 4, location: Some(location) },
                Site { writes: false, bytes: 0, location: None },
            ],
            roots: kinds.map(|kind| Root { kind, bytes: 77, align: 4 }).into(),
        };
        let plain = Object {
            bytes: vec![1, 2, 255],
            optimized: true,
            scratch_bytes: 64,
            ascending: true,
            private_counters: false,
            cooperative: true,
            faults: Vec::new(),
            checks: None,
            row_sizes: None,
        };
        let faults = vec![("first".into(), None), ("second".into(), Some("a.metal:7".into()))];
        for object in [Object { faults, checks: Some(checks), ..plain.clone() }, plain] {
            let record = encode(&object);
            assert_eq!(decode(&record).as_ref(), Some(&object));
            assert!((0..record.len()).all(|end| decode::<Object>(&record[..end]).is_none()));
        }
    }
}
