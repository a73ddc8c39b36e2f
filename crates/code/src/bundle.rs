//! Bundles: what was compiled ahead, for machines without a compiler.
//!
//! A bundle is a table of records by key. A source's record says what it declares, or why it is refused; a kernel's
//! is its code for a target, or why there is none. Keys are made from the source's text and what else decides, so that a
//! program asks a bundle for what it would have compiled.
//!
//! The file: 16 bytes of name, the version (u32), the body's length (u64), its BLAKE3 hash (32 bytes), the body; numbers are
//! little-endian. Hash and length are there against damage, not against people: code from a bundle is run as it is, so a bundle
//! is to be trusted as a program is.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use elinvar_cache::{Key, Reader, Writer};
use elinvar_driver::{
    Constant, ConstantKey, Diagnostic, Error, FunctionConstant, MathMode, PipelineOptions, Result, Scalar,
    Signature, Source,
};
use elinvar_msl::record;

const NAME: &[u8; 16] = b"elinvar bundle\r\n";
const VERSION: u32 = 2;
/// Bytes before the body: name, version, length, hash.
const HEAD: usize = 16 + 4 + 8 + 32;

/// What was compiled ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The sources' names and keys.
    sources: BTreeMap<String, [u8; 32]>,
    records: BTreeMap<[u8; 32], Vec<u8>>,
}

/// What a source declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// What each kernel takes.
    pub kernels: Vec<Signature>,
    /// The function constants.
    pub constants: Vec<FunctionConstant>,
    /// Warnings of the compilation.
    pub warnings: Vec<Diagnostic>,
}

impl Bundle {
    /// Read a bundle.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is wrong with it: no bundle, another version, cut short, damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |why: String| Error::invalid(format!("the bundle {why}"));
        if !bytes.starts_with(NAME) {
            return Err(wrong("is none: it does not begin as one".into()));
        }
        let head = bytes
            .get(NAME.len()..HEAD)
            .ok_or_else(|| wrong("is cut short, within its first bytes".into()))?;
        let (version, rest) = head.split_at(4);
        let (length, hash) = rest.split_at(8);
        let version = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if version != VERSION {
            return Err(wrong(format!(
                "has version {version}; this build reads version {VERSION}: pack it again"
            )));
        }
        let (length, body) = (u64::from_le_bytes(length.try_into().unwrap_or_default()), &bytes[HEAD..]);
        if length != body.len() as u64 {
            return Err(wrong(format!("has {} bytes behind its head and should have {length}", body.len())));
        }
        if Key::of(body).as_bytes() != hash {
            return Err(wrong("is damaged: its checksum is not that of its content".into()));
        }
        let mut r = Reader::new(body);
        let source = |r: &mut Reader| Some((r.text()?, r.bytes()?.try_into().ok()?));
        let record = |r: &mut Reader| Some((r.bytes()?.try_into().ok()?, r.bytes()?.to_vec()));
        let read = |r: &mut Reader| {
            let (sources, records) = (r.list(source)?, r.list(record)?);
            r.end(Self { sources: sources.into_iter().collect(), records: records.into_iter().collect() })
        };
        read(&mut r).ok_or_else(|| wrong("holds what this build does not read".into()))
    }

    /// Whether there is a file there that begins as a bundle does.
    pub fn is_at(path: &Path) -> bool {
        let mut start = [0; NAME.len()];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start == *NAME
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

    /// The bundle as a file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sources: Vec<(&String, &[u8; 32])> = self.sources.iter().collect();
        let records: Vec<(&[u8; 32], &Vec<u8>)> = self.records.iter().collect();
        let mut w = Writer::new();
        w.list(&sources, |w, (name, key)| {
            w.text(name);
            w.bytes(*key);
        });
        w.list(&records, |w, (key, record)| {
            w.bytes(*key);
            w.bytes(record);
        });
        let body = w.finish();
        let mut bytes = NAME.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(Key::of(&body).as_bytes());
        bytes.extend(body);
        bytes
    }

    /// The sources that it has something of, by name.
    pub fn sources(&self) -> impl Iterator<Item = (&str, [u8; 32])> {
        self.sources.iter().map(|(name, key)| (name.as_str(), *key))
    }

    /// Add all that another has.
    pub fn extend(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.records.extend(other.records);
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Add a record, or put it in the place of the one with its key. A failure of the machine that packs, which says nothing about
    /// the source, is left out.
    pub fn insert<T>(&mut self, key: &Key, outcome: &Result<T>, write: impl FnOnce(&mut Writer, &T)) {
        let mut w = Writer::new();
        match outcome {
            Ok(value) => {
                w.number(0);
                write(&mut w, value);
            }
            Err(Error::Compile(diagnostics)) => {
                w.number(1);
                w.list(diagnostics, record::write_diagnostic);
            }
            Err(Error::InvalidArgument(why)) => {
                w.number(2);
                w.text(why);
            }
            Err(Error::Unsupported(why)) => {
                w.number(3);
                w.text(why);
            }
            Err(_) => return,
        }
        self.records.insert(*key.as_bytes(), w.finish());
    }

    /// The outcome with this key, if the bundle has it.
    pub fn get<T>(&self, key: &Key, read: impl FnOnce(&mut Reader) -> Option<T>) -> Option<Result<T>> {
        let mut r = Reader::new(self.records.get(key.as_bytes())?);
        let outcome = match r.number()? {
            0 => Ok(read(&mut r)?),
            1 => Err(Error::Compile(r.list(record::read_diagnostic)?)),
            2 => Err(Error::InvalidArgument(r.text()?)),
            3 => Err(Error::Unsupported(r.text()?)),
            _ => return None,
        };
        r.end(outcome)
    }

    /// Add what a source declares, or why it is refused.
    pub fn insert_source(&mut self, source: &Source, outcome: &Result<Declared>) {
        if let Some(piece) = source.pieces.first() {
            self.sources.insert(piece.name.clone(), *source_key(source).as_bytes());
        }
        self.insert(&source_key(source), outcome, |w, Declared { kernels, constants, warnings }| {
            w.list(kernels, record::write_signature);
            w.list(constants, record::write_constant);
            w.list(warnings, record::write_diagnostic);
        });
    }

    /// What a source declares, or why it is refused.
    pub fn source(&self, source: &Source) -> Option<Result<Declared>> {
        self.get(&source_key(source), |r| {
            Some(Declared {
                kernels: r.list(record::read_signature)?,
                constants: r.list(record::read_constant)?,
                warnings: r.list(record::read_diagnostic)?,
            })
        })
    }
}

/// The key of a source: its text, its macros and its math mode. Folders of includes are none of it, since they are not
/// there where bundles are used.
pub fn source_key(source: &Source) -> Key {
    let Source {
        pieces,
        include_dirs: _,
        include_outside: _,
        defines,
        math,
        check_spaces: _,
        packed,
        metal_library: _,
    } = source;
    if let Some(key) = packed.as_ref().and_then(|packed| Key::from_bytes(&packed.key)) {
        return key;
    }
    let mut w = Writer::new();
    w.text("source");
    w.list(pieces, |w, piece| {
        w.text(&piece.name);
        w.text(&piece.text);
    });
    w.list(defines, |w, (name, value)| {
        w.text(name);
        w.option(value.as_deref(), Writer::text);
    });
    w.text(match math {
        MathMode::Safe => "safe",
        MathMode::Relaxed => "relaxed",
        MathMode::Fast => "fast",
    });
    Key::of(&w.finish())
}

/// The key of a kernel's code: `kind` says what of it and for which target.
pub fn kernel_key(kind: &str, source: &Source, kernel: &str, options: &PipelineOptions) -> Key {
    let PipelineOptions { constants, checked } = options;
    let mut w = Writer::new();
    w.text(kind);
    w.bytes(source_key(source).as_bytes());
    w.text(kernel);
    w.flag(*checked);
    w.list(constants, |w, Constant { key, scalar, bytes }| {
        match key {
            ConstantKey::Index(index) => w.number(u64::from(*index)),
            ConstantKey::Name(name) => w.text(name),
        }
        w.flag(matches!(key, ConstantKey::Name(_)));
        w.text(Scalar::msl_name(*scalar));
        w.bytes(bytes);
    });
    Key::of(&w.finish())
}

#[cfg(test)]
mod tests {
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
    fn outcomes_come_back_and_failures_of_the_machine_do_not() {
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
    fn what_is_cut_or_damaged_is_refused() {
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
        assert!(Bundle::from_bytes(&longer).unwrap_err().to_string().contains("should have"));
        let mut newer = bytes;
        newer[16] = 9;
        assert!(
            Bundle::from_bytes(&newer)
                .unwrap_err()
                .to_string()
                .contains("has version 9; this build reads version 2")
        );
    }

    #[test]
    fn constants_and_checks_make_other_keys() {
        let key = |constants: &[(ConstantKey, u8)], checked| {
            let constant = |(key, byte): &(ConstantKey, u8)| Constant {
                key: key.clone(),
                scalar: Scalar::U8,
                bytes: vec![*byte],
            };
            let options = PipelineOptions { constants: constants.iter().map(constant).collect(), checked };
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
