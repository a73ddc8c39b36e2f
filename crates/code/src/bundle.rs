//! Bundles: kernels compiled ahead of time, for machines without a compiler.
//!
//! A bundle is a table of records by key. A source's record has what it declares, or the error it was rejected with; a kernel's record has
//! its code for a target, or the error. A key is a hash of the source's text and everything else that determines the outcome, so a
//! program looks up exactly what it would have compiled.
//!
//! File format: magic (16 bytes), version (u32), length of the body (u64), BLAKE3 hash of the body (32 bytes), body
//! ([`elinvar_cache::encode`]). Integers are little-endian. Length and hash detect damage, not tampering: code from a bundle runs
//! unverified, so trust a bundle as you would a program.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use elinvar_cache::{Key, decode, encode};
use elinvar_driver::{
    Constant, ConstantKey, Diagnostic, Error, FunctionConstant, MathMode, PipelineOptions, Result, Source,
    Tier, similar_names,
};
use elinvar_msl::Declared;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

const MAGIC: &[u8; 16] = b"elinvar bundle\r\n";
const VERSION: u32 = 7;
/// Bytes of the header: magic, version, length, hash.
const HEAD: usize = 16 + 4 + 8 + 32;

/// Kernels compiled ahead of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Keys by name and math mode, as its number in [`MODES`].
    sources: BTreeMap<(String, u8), [u8; 32]>,
    records: BTreeMap<[u8; 32], ByteBuf>,
}

/// The math modes by number in a bundle.
const MODES: [MathMode; 3] = [MathMode::Fast, MathMode::Relaxed, MathMode::Safe];

/// The content of a record.
#[derive(Serialize, Deserialize)]
enum Outcome<T> {
    Value(T),
    Compile(Vec<Diagnostic>),
    InvalidArgument(String),
    Unsupported(String),
}

impl Bundle {
    /// Read a bundle.
    ///
    /// # Errors
    /// `InvalidArgument` when the magic, the version, the length, the checksum or the encoding is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |why: String| Error::invalid(format!("damaged bundle: {why}"));
        if !bytes.starts_with(MAGIC) {
            return Err(Error::invalid("not an Elinvar bundle (bad magic)"));
        }
        let head = bytes
            .get(MAGIC.len()..HEAD)
            .ok_or_else(|| damaged(format!("{} bytes, the header has {HEAD}", bytes.len())))?;
        let (version, rest) = head.split_at(4);
        let (length, hash) = rest.split_at(8);
        let version = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if version != VERSION {
            return Err(Error::invalid(format!(
                "unsupported bundle version {version} (this build reads {VERSION}); pack it again"
            )));
        }
        let (length, body) = (u64::from_le_bytes(length.try_into().unwrap_or_default()), &bytes[HEAD..]);
        if length != body.len() as u64 {
            return Err(damaged(format!("the body has {} bytes, the header says {length}", body.len())));
        }
        if Key::of(body).as_bytes() != hash {
            return Err(damaged("checksum mismatch".into()));
        }
        decode(body).ok_or_else(|| damaged("malformed body".into()))
    }

    /// Whether the file exists and starts with a bundle's magic.
    pub fn is_at(path: &Path) -> bool {
        let mut start = [0; MAGIC.len()];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start == *MAGIC
    }

    /// Read a bundle's file.
    ///
    /// # Errors
    /// `Environment` when it cannot be read, and as [`Bundle::from_bytes`].
    pub fn open(path: &Path) -> Result<Self> {
        let cannot =
            |error| Error::Environment(format!("cannot read the bundle {}: {error}", path.display()));
        Self::from_bytes(&std::fs::read(path).map_err(cannot)?).map_err(|error| match error {
            Error::InvalidArgument(why) => Error::invalid(format!("{}: {why}", path.display())),
            other => other,
        })
    }

    /// The content of the bundle's file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = encode(self);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(Key::of(&body).as_bytes());
        bytes.extend(body);
        bytes
    }

    /// Names, math modes and keys of the sources, sorted by name; of one name, the default math mode is first.
    pub fn sources(&self) -> impl Iterator<Item = (&str, MathMode, [u8; 32])> {
        let mode = |number: u8| MODES.get(usize::from(number)).copied().unwrap_or_default();
        self.sources.iter().map(move |((name, number), key)| (name.as_str(), mode(*number), *key))
    }

    /// Insert all sources and records of another bundle; its records replace those with the same key.
    pub fn extend(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.records.extend(other.records);
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Insert or replace a record. Errors of the machine that packs, such as a missing compiler, are not recorded.
    pub fn insert<T: Serialize>(&mut self, key: &Key, outcome: &Result<T>) {
        let outcome = match outcome {
            Ok(value) => Outcome::Value(value),
            Err(Error::Compile(diagnostics)) => Outcome::Compile(diagnostics.clone()),
            Err(Error::InvalidArgument(why)) => Outcome::InvalidArgument(why.clone()),
            Err(Error::Unsupported(why)) => Outcome::Unsupported(why.clone()),
            Err(_) => return,
        };
        self.records.insert(*key.as_bytes(), ByteBuf::from(encode(&outcome)));
    }

    /// The recorded outcome, or `None` if there is no record with this key or it is not a `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &Key) -> Option<Result<T>> {
        Some(match decode(self.records.get(key.as_bytes())?)? {
            Outcome::Value(value) => Ok(value),
            Outcome::Compile(diagnostics) => Err(Error::Compile(diagnostics)),
            Outcome::InvalidArgument(why) => Err(Error::InvalidArgument(why)),
            Outcome::Unsupported(why) => Err(Error::Unsupported(why)),
        })
    }

    /// Insert what a source declares, or the error it was rejected with. Unsupported kernels are not recorded.
    pub fn insert_source(&mut self, source: &Source, outcome: &Result<Declared>) {
        if let Some(file) = source.files.first() {
            let number = MODES.iter().position(|mode| *mode == source.math).unwrap_or_default();
            self.sources.insert((file.name.clone(), number as u8), source.identity());
        }
        let declared = |declared: &Declared| Declared { unsupported: Vec::new(), ..declared.clone() };
        self.insert(&source_key(source), &outcome.as_ref().map(declared).map_err(Clone::clone));
    }

    /// What a source declares, or the error it was rejected with.
    pub fn source(&self, source: &Source) -> Option<Result<Declared>> {
        self.get(&source_key(source))
    }
}

/// Checks that a packed source declares a kernel.
///
/// # Errors
/// `InvalidArgument` with the names of similar kernels.
pub fn expect_kernel(declared: &Declared, name: &str) -> Result<()> {
    if declared.kernels.iter().any(|kernel| kernel.name == name) {
        return Ok(());
    }
    let known = declared.kernels.iter().map(|kernel| kernel.name.as_str());
    Err(Error::invalid(format!(
        "no kernel `{name}` in the packed source; {}",
        similar_names("kernels", name, known)
    )))
}

fn source_key(source: &Source) -> Key {
    Key::from(source.identity())
}

/// Options as they are part of keys: function constants by index, in ascending order.
pub fn canonical(declared: &[FunctionConstant], options: &PipelineOptions) -> PipelineOptions {
    let by_index = |given: &Constant| {
        let known = declared
            .iter()
            .find(|known| matches!(&given.key, ConstantKey::Name(name) if *name == known.name));
        let key = known.map_or_else(|| given.key.clone(), |known| ConstantKey::Index(known.index));
        Constant { key, ..given.clone() }
    };
    let mut constants: Vec<Constant> = options.constants.iter().map(by_index).collect();
    constants.sort_by_key(|constant| match constant.key {
        ConstantKey::Index(index) => (0, index),
        ConstantKey::Name(_) => (1, 0),
    });
    PipelineOptions { constants, ..options.clone() }
}

/// The key of a kernel's code; `kind` names the target and the form, and the options are [`canonical`]. It is the same for all tiers: a
/// bundle has optimized code.
pub fn kernel_key(kind: &str, source: &Source, kernel: &str, options: &PipelineOptions) -> Key {
    let options = PipelineOptions { tier: Tier::default(), ..options.clone() };
    Key::of(&encode(&(kind, source.identity(), kernel, options)))
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Scalar;

    use super::*;

    fn bundle() -> Bundle {
        let mut bundle = Bundle::default();
        bundle.insert_source(&Source::msl("a"), &Ok(Declared::default()));
        bundle.insert_source(&Source::msl("b"), &Err(Error::Unsupported("this".into())));
        let wrong = Diagnostic::error("k.metal", 3, 1, "no such name");
        bundle.insert_source(&Source::msl("c"), &Err(Error::Compile(vec![wrong])));
        bundle.insert_source(&Source::msl("d"), &Err(Error::Environment("no disk".into())));
        bundle
    }

    #[test]
    fn outcomes_are_recorded_and_failures_of_the_machine_are_not() {
        let read = Bundle::from_bytes(&bundle().to_bytes()).unwrap();
        assert_eq!((read.len(), &read), (3, &bundle()));
        assert_eq!(read.source(&Source::msl("a")).unwrap().unwrap(), Declared::default());
        let error = |text| read.source(&Source::msl(text)).unwrap().unwrap_err().to_string();
        assert_eq!(error("b"), "unsupported: this");
        assert!(error("c").starts_with("k.metal:3:1: error: no such name"));
        assert!(read.source(&Source::msl("d")).is_none());
        assert!(read.source(&Source::msl("a").math(MathMode::Safe)).is_none());
    }

    #[test]
    fn truncated_and_damaged_bundles_are_rejected() {
        let bytes = bundle().to_bytes();
        for end in 0..bytes.len() {
            assert!(Bundle::from_bytes(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Bundle::from_bytes(&damaged).is_err(), "with byte {at} damaged");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Bundle::from_bytes(&longer).unwrap_err().to_string().contains("the header says"));
        let mut newer = bytes;
        newer[16] = 9;
        assert!(
            Bundle::from_bytes(&newer)
                .unwrap_err()
                .to_string()
                .contains("unsupported bundle version 9 (this build reads 7)")
        );
    }

    #[test]
    fn a_source_is_listed_once_for_each_math_mode() {
        let mut bundle = Bundle::default();
        for (name, math) in
            [("b", MathMode::Safe), ("a", MathMode::Safe), ("a", MathMode::Fast), ("a", MathMode::Fast)]
        {
            bundle.insert_source(&Source::named(name, "x").math(math), &Ok(Declared::default()));
        }
        let read = Bundle::from_bytes(&bundle.to_bytes()).unwrap();
        let listed: Vec<(&str, MathMode)> = read.sources().map(|(name, math, _)| (name, math)).collect();
        assert_eq!(listed, [("a", MathMode::Fast), ("a", MathMode::Safe), ("b", MathMode::Safe)]);
    }

    #[test]
    fn the_order_and_the_names_of_constants_do_not_matter() {
        let known = |name: &str, index| FunctionConstant {
            name: name.into(),
            index,
            ty: elinvar_driver::ElementType::Scalar(Scalar::U8),
        };
        let declared = [known("n", 7), known("m", 2)];
        let key = |constants: &[(ConstantKey, u8)]| {
            let constant = |(key, byte): &(ConstantKey, u8)| Constant {
                key: key.clone(),
                scalar: Scalar::U8,
                bytes: vec![*byte],
            };
            let constants = constants.iter().map(constant).collect();
            let options = PipelineOptions { constants, ..PipelineOptions::default() };
            kernel_key("ptx", &Source::msl("a"), "k", &canonical(&declared, &options))
        };
        let expected = key(&[(2.into(), 1), (7.into(), 3)]);
        for same in [
            [("n".into(), 3), ("m".into(), 1)],
            [(7.into(), 3), ("m".into(), 1)],
            [("m".into(), 1), (7.into(), 3)],
        ] {
            assert_eq!(key(&same), expected);
        }
        for other in [[("n".into(), 1), ("m".into(), 3)], [("n".into(), 3), ("unknown".into(), 1)]] {
            assert_ne!(key(&other), expected);
        }
    }

    #[test]
    fn constants_and_checks_make_other_keys() {
        let key = |constants: &[(ConstantKey, u8)], checked| {
            let constant = |(key, byte): &(ConstantKey, u8)| Constant {
                key: key.clone(),
                scalar: Scalar::U8,
                bytes: vec![*byte],
            };
            let options = PipelineOptions {
                constants: constants.iter().map(constant).collect(),
                checked,
                ..PipelineOptions::default()
            };
            kernel_key("ptx", &Source::msl("a"), "k", &options)
        };
        let keys = [
            key(&[], false),
            key(&[], true),
            key(&[(0.into(), 1)], false),
            key(&[(0.into(), 2)], false),
            key(&[("a".into(), 1)], false),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| b != a));
        }
    }
}
