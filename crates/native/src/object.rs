//! A kernel's machine code with what belongs to it.

use elinvar_spmd::bounds::Checks;
use serde::{Deserialize, Serialize};

/// A kernel as machine code for one [`Form`](crate::Form), with all that a launch has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The shared object, which defines [`Object::SYMBOL`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Bytes of scratch memory before the dynamic threadgroup memory.
    pub scratch_bytes: u64,
    /// Whether threadgroups have to start in ascending order, since the kernel could observe another.
    pub ascending: bool,
    /// What fault code `n` means is at `n - 1`: message, and `file:line` when known.
    pub faults: Vec<(String, Option<String>)>,
    /// What a fault record means, of a kernel with bounds checks; [`elinvar_code::Bounds`] puts it into words.
    pub checks: Option<Checks>,
}

impl Object {
    /// The name of the function that runs threadgroups.
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
            scratch_bytes: 64,
            ascending: true,
            faults: Vec::new(),
            checks: None,
        };
        let faults = vec![("first".into(), None), ("second".into(), Some("a.metal:7".into()))];
        for object in [Object { faults, checks: Some(checks), ..plain.clone() }, plain] {
            let record = encode(&object);
            assert_eq!(decode(&record).as_ref(), Some(&object));
            assert!((0..record.len()).all(|end| decode::<Object>(&record[..end]).is_none()));
        }
    }
}
