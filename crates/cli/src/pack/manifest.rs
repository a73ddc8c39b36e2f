//! `pack --manifest FILE`: which kernels to pack, with which values of function constants, threadgroup sizes and options.
//!
//! ```toml
//! [[kernel]]
//! name = "gemm_*"                             # a name or a pattern
//! file = "gemm.metal"                         # only of this source
//! constants = { use_bias = true, 3 = 0.5 }    # by name or index; arrays for vectors
//! groups = [256, [16, 16]]                    # as --group
//! math = "safe"                               # as --math
//! checked = true                              # as --checked
//! large-buffers = true                        # as --large-buffers
//! ```
//!
//! Each table is a set of kernels in one specialization; a kernel may be in several. What a table does not say is as on the command
//! line. Errors have the line of the table, or of the value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use elinvar::{Dim3, MathMode, Scalar};
use elinvar_driver::{Constant, ConstantKey, ElementType, FunctionConstant, similar_names};
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::array::parse_number;
use crate::failure::{Failure, Result};
use crate::selection::KernelPattern;
use crate::source::Math;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    kernel: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Spanned<String>,
    file: Option<PathBuf>,
    #[serde(default)]
    constants: BTreeMap<String, Spanned<Value>>,
    groups: Option<Spanned<Vec<Spanned<Value>>>>,
    math: Option<Spanned<String>>,
    checked: Option<bool>,
    large_buffers: Option<bool>,
}

/// Kernels that are packed in one specialization.
pub struct Entry {
    /// `manifest.toml:3`, for messages.
    pub place: String,
    pub kernels: KernelPattern,
    pub file: Option<PathBuf>,
    constants: Vec<Given>,
    pub groups: Option<Vec<Dim3>>,
    pub math: Option<MathMode>,
    pub checked: Option<bool>,
    pub large_buffers: Option<bool>,
}

/// A value of a function constant, whose type the source declares.
struct Given {
    place: String,
    key: ConstantKey,
    value: Value,
}

/// Reads a manifest.
///
/// # Errors
/// `Input` with file, line and column.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::input(format!("{name}: {error}")))?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Entry>> {
    let line =
        |offset: usize| 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count();
    let place = |offset: usize| format!("{name}:{}", line(offset));
    let document: Document = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or_else(|| name.to_owned(), |span| place(span.start));
        Failure::input(format!("{at}: {}", error.message()))
    })?;
    if document.kernel.is_empty() {
        return Err(Failure::input(format!("{name}: no `[[kernel]]`")));
    }
    document.kernel.into_iter().map(|table| entry(table, &place)).collect()
}

fn entry(table: Table, place: &impl Fn(usize) -> String) -> Result<Entry> {
    let Table { name, file, constants, groups, math, checked, large_buffers } = table;
    let at = place(name.span().start);
    let wrong = |at: &str, what: String| Failure::input(format!("{at}: {what}"));
    let kernels = name.get_ref().parse().map_err(|error| wrong(&at, error))?;
    let given = |(key, value): (String, Spanned<Value>)| Given {
        place: place(value.span().start),
        key: key.parse().map_or_else(|_| ConstantKey::Name(key), ConstantKey::Index),
        value: value.into_inner(),
    };
    let groups = groups.map(|groups| {
        let at = place(groups.span().start);
        let groups = groups.into_inner().into_iter();
        let groups: Vec<Dim3> = groups
            .map(|size| {
                let at = place(size.span().start);
                group(size.get_ref()).map_err(|what| wrong(&at, what))
            })
            .collect::<Result<_>>()?;
        if groups.is_empty() { Err(wrong(&at, "`groups` is empty".to_owned())) } else { Ok(groups) }
    });
    let math = math.map(|math| {
        <Math as clap::ValueEnum>::from_str(math.get_ref(), false).map(MathMode::from).map_err(|_| {
            let what = format!("`{}` is not a math mode: fast, relaxed or safe", math.get_ref());
            wrong(&place(math.span().start), what)
        })
    });
    Ok(Entry {
        place: at,
        kernels,
        file,
        constants: constants.into_iter().map(given).collect(),
        groups: groups.transpose()?,
        math: math.transpose()?,
        checked,
        large_buffers,
    })
}

/// A threadgroup size: `256` or `[16, 16]`.
fn group(value: &Value) -> Result<Dim3, String> {
    let size = |value: &Value| value.as_integer().and_then(|size| u32::try_from(size).ok());
    let sizes = match value {
        Value::Array(sizes) => sizes.iter().map(size).collect(),
        other => size(other).map(|size| vec![size]),
    };
    match sizes.as_deref() {
        Some([x]) => Ok(Dim3::new(*x, 1, 1)),
        Some([x, y]) => Ok(Dim3::new(*x, *y, 1)),
        Some([x, y, z]) => Ok(Dim3::new(*x, *y, *z)),
        _ => Err(format!("`{value}` is not a threadgroup size such as 256 or [16, 16]")),
    }
}

impl Entry {
    /// Whether it is about kernels of this source.
    pub fn is_of(&self, source: &Path) -> bool {
        self.file.as_deref().is_none_or(|file| source.ends_with(file))
    }

    /// Checks that it is about a source.
    ///
    /// # Errors
    /// `Input` with the file that is none of the sources.
    pub fn expect_file(&self, sources: &[PathBuf]) -> Result<()> {
        match &self.file {
            Some(file) if !sources.iter().any(|source| self.is_of(source)) => {
                let (place, file) = (&self.place, file.display());
                Err(Failure::input(format!("{place}: `{file}` is none of the files to pack")))
            }
            _ => Ok(()),
        }
    }

    /// The values of function constants, of the types that a source declares.
    ///
    /// # Errors
    /// `Input` with the line of a value that has another type or range, or whose constant is not declared.
    pub fn constants(&self, declared: &[FunctionConstant]) -> Result<Vec<Constant>> {
        self.constants.iter().map(|given| given.typed(declared)).collect()
    }
}

impl Given {
    fn typed(&self, declared: &[FunctionConstant]) -> Result<Constant> {
        let Self { place, key, value } = self;
        let known = declared.iter().find(|known| match key {
            ConstantKey::Index(index) => known.index == *index,
            ConstantKey::Name(name) => known.name == *name,
        });
        let known = known.ok_or_else(|| {
            let names = declared.iter().map(|known| known.name.as_str());
            Failure::input(match key {
                ConstantKey::Index(index) => format!("{place}: no function constant has index {index}"),
                ConstantKey::Name(name) => format!(
                    "{place}: no function constant `{name}` in the source; {}",
                    similar_names("function constants", name, names)
                ),
            })
        })?;
        let FunctionConstant { name, index, ty } = known;
        let wrong = || {
            Failure::input(format!(
                "{place}: function constant `{name}` (index {index}) is `{ty}`; given `{value}`"
            ))
        };
        let (scalar, lanes) = match ty {
            ElementType::Vector { scalar, lanes, .. } => (*scalar, *lanes as usize),
            other => (other.scalar().ok_or_else(wrong)?, 1),
        };
        let parts = match value {
            Value::Array(parts) if lanes > 1 => &parts[..],
            other => std::slice::from_ref(other),
        };
        let bytes: Option<Vec<Vec<u8>>> = parts.iter().map(|part| component(scalar, part)).collect();
        let bytes = bytes.filter(|parts| parts.len() == lanes).ok_or_else(wrong)?.concat();
        Ok(Constant { key: ConstantKey::Index(*index), scalar, bytes })
    }
}

/// The bytes of a scalar; `None` if the value does not have this type or is out of its range.
fn component(scalar: Scalar, value: &Value) -> Option<Vec<u8>> {
    let is_float = matches!(scalar, Scalar::F16 | Scalar::BF16 | Scalar::F32);
    match value {
        Value::Boolean(value) => (scalar == Scalar::Bool).then(|| vec![u8::from(*value)]),
        Value::Integer(value) if scalar != Scalar::Bool => parse_number(scalar, &value.to_string()),
        Value::Float(value) if is_float => parse_number(scalar, &value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Vec<FunctionConstant> {
        let constant = |name: &str, index, ty| FunctionConstant { name: name.into(), index, ty };
        let vector = |scalar, lanes| ElementType::Vector { scalar, lanes, packed: false };
        vec![
            constant("use_bias", 0, ElementType::Scalar(Scalar::Bool)),
            constant("n::tile", 3, ElementType::Scalar(Scalar::U16)),
            constant("scale", 4, ElementType::Scalar(Scalar::F16)),
            constant("size", 5, vector(Scalar::I32, 2)),
        ]
    }

    fn message<T>(result: Result<T>) -> String {
        match result {
            Ok(_) => "accepted".to_owned(),
            Err(failure) => {
                assert_eq!(failure.exit_code(), 1);
                failure.to_string()
            }
        }
    }

    #[test]
    fn tables_are_read() {
        let text = "# ours\n[[kernel]]\nname = \"gemm_*\"\nfile = \"a/gemm.metal\"\n\
            constants = { use_bias = true, 3 = 65535, scale = 1, size = [-1, 2] }\n\
            groups = [256, [16, 8], [1, 2, 3]]\nmath = \"safe\"\nchecked = true\nlarge-buffers = false\n\n\
            [[kernel]]\nname = \"k\"\n[kernel.constants]\n\"n::tile\" = 7\n";
        let entries = parse("m.toml", text).unwrap();
        let [gemm, k] = &entries[..] else { panic!("{}", entries.len()) };
        assert_eq!((gemm.place.as_str(), k.place.as_str()), ("m.toml:3", "m.toml:12"));
        assert!(gemm.kernels.matches("gemm_nt") && !k.kernels.matches("gemm_nt"));
        assert!(gemm.is_of(Path::new("x/a/gemm.metal")) && !gemm.is_of(Path::new("x/gemm.metal")));
        assert!(k.is_of(Path::new("any")));
        let sizes = [Dim3::new(256, 1, 1), Dim3::new(16, 8, 1), Dim3::new(1, 2, 3)];
        assert_eq!(gemm.groups.as_deref(), Some(&sizes[..]));
        assert_eq!(
            (gemm.math, gemm.checked, gemm.large_buffers),
            (Some(MathMode::Safe), Some(true), Some(false))
        );
        assert_eq!((k.math, k.checked, k.large_buffers, &k.groups), (None, None, None, &None));
        let mut constants = gemm.constants(&declared()).unwrap();
        constants.sort_by_key(|constant| match constant.key {
            ConstantKey::Index(index) => index,
            ConstantKey::Name(_) => u32::MAX,
        });
        let of =
            |index: u32, scalar, bytes: &[u8]| Constant { key: index.into(), scalar, bytes: bytes.to_vec() };
        assert_eq!(
            constants,
            [
                of(0, Scalar::Bool, &[1]),
                of(3, Scalar::U16, &[255, 255]),
                of(4, Scalar::F16, &[0, 0x3c]),
                of(5, Scalar::I32, &[255, 255, 255, 255, 2, 0, 0, 0]),
            ]
        );
        assert_eq!(k.constants(&declared()).unwrap(), [of(3, Scalar::U16, &[7, 0])]);
    }

    #[test]
    fn errors_have_their_line() {
        let head = "[[kernel]]\nname = \"k\"\n";
        for (text, expected) in [
            ("", "m.toml: no `[[kernel]]`"),
            ("[[kernel]]\nfile = \"a\"\n", "m.toml:1: missing field `name`"),
            (&format!("{head}grops = [1]\n"), "m.toml:3: unknown field `grops`"),
            (
                &format!("{head}groups = [1, [2, 3, 4, 5]]\n"),
                "m.toml:3: `[2, 3, 4, 5]` is not a threadgroup size",
            ),
            (&format!("{head}groups = [1,\n -1]\n"), "m.toml:4: `-1` is not a threadgroup size"),
            (&format!("{head}groups = []\n"), "m.toml:3: `groups` is empty"),
            (&format!("{head}\nmath = \"quick\"\n"), "m.toml:4: `quick` is not a math mode"),
            (&format!("{head}checked = 1\n"), "m.toml:3: invalid type: integer `1`, expected a boolean"),
            (&format!("{head}[[kernel]]\nname = \"k[\"\n"), "m.toml:4: invalid pattern `k[`"),
            (&format!("{head}x = \n"), "m.toml:3: "),
            ("[[kernels]]\nname = \"k\"\n", "m.toml:1: unknown field `kernels`"),
        ] {
            let found = message(parse("m.toml", text));
            assert!(found.starts_with(expected), "{text}\n{found}");
        }
    }

    #[test]
    fn values_have_the_declared_type() {
        let refused = |constant: &str| {
            let text = format!("[[kernel]]\nname = \"k\"\nconstants.{constant}\n");
            message(parse("m.toml", &text).unwrap()[0].constants(&declared()))
        };
        for (constant, expected) in [
            ("use_bias = 1", "m.toml:3: function constant `use_bias` (index 0) is `bool`; given `1`"),
            ("3 = 65536", "m.toml:3: function constant `n::tile` (index 3) is `ushort`; given `65536`"),
            ("3 = 1.5", "m.toml:3: function constant `n::tile` (index 3) is `ushort`; given `1.5`"),
            ("3 = [1]", "m.toml:3: function constant `n::tile` (index 3) is `ushort`; given `[1]`"),
            ("scale = true", "m.toml:3: function constant `scale` (index 4) is `half`; given `true`"),
            ("size = [1, 2, 3]", "m.toml:3: function constant `size` (index 5) is `int2`; given `[1, 2, 3]`"),
            ("size = 1", "m.toml:3: function constant `size` (index 5) is `int2`; given `1`"),
            ("size = \"1\"", "m.toml:3: function constant `size` (index 5) is `int2`; given `\"1\"`"),
            (
                "bias = true",
                "m.toml:3: no function constant `bias` in the source; it has `use_bias`, `n::tile`, `scale`, `size`",
            ),
            ("7 = 1", "m.toml:3: no function constant has index 7"),
        ] {
            assert_eq!(refused(constant), expected);
        }
        assert_eq!(refused("scale = 0.5"), "accepted");
    }
}
