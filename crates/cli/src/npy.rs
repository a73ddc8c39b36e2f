//! Reads and writes `.npy` files as [`Array`]s.
//!
//! bf16 has no NumPy type and is written as `uint16`. Fortran order and big-endian data are rejected with the call that converts
//! them. Reads header versions 1 to 3, writes version 1.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use elinvar::Scalar;
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, WriterBuilder};

use crate::array::{Array, Element};
use crate::failure::{Failure, Result};
use crate::output;

/// Read the array in a file.
pub fn read(path: &Path) -> Result<Array> {
    let shown = path.display();
    let wrong = |error: std::io::Error| Failure::input(format!("{shown}: {error}"));
    let file = File::open(path).map_err(wrong)?;
    let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
    parse(&mut BufReader::new(file), size, &shown.to_string())
}

/// Read an array. `size` is the input's length, if known: allocation is bounded by it, not by the header.
pub fn parse(file: &mut impl Read, size: Option<u64>, shown: &str) -> Result<Array> {
    let wrong = |error: std::io::Error| Failure::input(format!("{shown}: {error}"));
    let no_array = |why: &dyn std::fmt::Display| Failure::input(format!("{shown} is not a .npy file: {why}"));
    let head = head(file).map_err(|why| no_array(&why))?;
    let header = NpyHeader::from_reader(&mut head.as_slice()).map_err(|error| no_array(&error))?;
    let dtype = header.dtype();
    if dtype.uses_pickled_array() {
        return Err(Failure::input(format!("{shown} holds Python objects, not numbers")));
    }
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        return Err(Failure::input(format!(
            "{shown} is in Fortran order; save it with `np.save(…, np.ascontiguousarray(a))`"
        )));
    }
    if has_big_endian(&dtype) {
        return Err(Failure::input(format!(
            "{shown} is big-endian ({}); convert it with `a.astype(a.dtype.newbyteorder('<'))`",
            dtype.descr()
        )));
    }
    let element = dtype.num_bytes().unwrap_or(0) as u64;
    let len = header.shape().iter().try_fold(element, |all, count| all.checked_mul(*count));
    let len = len.ok_or_else(|| Failure::input(format!("{shown}: the shape exceeds 64 bits")))?;
    if let Some(there) = size.map(|size| size.saturating_sub(head.len() as u64)).filter(|there| *there < len)
    {
        return Err(Failure::input(format!(
            "{shown} is truncated: {there} bytes of data, {len} expected from its header"
        )));
    }
    let mut bytes = Vec::new();
    let read = file.take(len).read_to_end(&mut bytes).map_err(wrong)?;
    if read as u64 != len {
        return Err(Failure::input(format!(
            "{shown} is truncated: {read} bytes of data, {len} expected from its header"
        )));
    }
    Ok(Array { element: element_of(dtype), shape: header.shape().to_vec(), bytes })
}

/// Longest header in bytes; NumPy itself rejects those above 10,000.
const LONGEST_HEAD: usize = 1 << 16;

/// Deepest nesting of lists and tuples in a header: structs of three levels. The parser takes exponential time in it.
const DEEPEST: usize = 8;

/// Read up to the data.
fn head(file: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut head = vec![0; 8];
    file.read_exact(&mut head).map_err(|_| "truncated in its first bytes".to_owned())?;
    if !head.starts_with(b"\x93NUMPY") {
        return Err("it does not begin as one".into());
    }
    let wide = if head[6] == 1 { 2 } else { 4 };
    let mut length = [0; 4];
    file.read_exact(&mut length[..wide]).map_err(|_| "truncated in its first bytes".to_owned())?;
    head.extend(&length[..wide]);
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_HEAD {
        return Err(format!("its header has {length} bytes, and at most {LONGEST_HEAD} are read"));
    }
    let begin = head.len();
    head.resize(begin + length, 0);
    file.read_exact(&mut head[begin..]).map_err(|_| "truncated in its header".to_owned())?;
    // A header is one dictionary, and holds none. The parser takes three times as long for each more.
    if head[begin..].iter().filter(|byte| **byte == b'{').count() > 1 {
        return Err("its header has more than one `{`".into());
    }
    let mut depth = 0_usize;
    for byte in &head[begin..] {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(format!("its header is more than {DEEPEST} levels deep"));
        }
    }
    Ok(head)
}

/// Write an array to a file.
pub fn write(path: &Path, array: &Array) -> Result<()> {
    let write = || -> std::io::Result<()> {
        output::replace(path, |file| {
            let options = npyz::WriteOptions::new_header_only().dtype(dtype_of(&array.element));
            let file = options.shape(&array.shape).writer(file).write_header_only()?;
            file.write_all(&array.bytes)
        })
    };
    write().map_err(|error| Failure::Machine(format!("cannot write {}: {error}", path.display())))
}

/// NumPy's name of a type, as in `np.float32`; the description of a structured type.
pub fn numpy_name(element: &Element) -> String {
    let scalar = match element {
        Element::Scalar(scalar) => *scalar,
        Element::Other(dtype) if dtype.descr() == "'<f8'" => return "float64".into(),
        Element::Other(dtype) => return dtype.descr(),
    };
    scalar_name(scalar).into()
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool_",
        Scalar::I8 => "int8",
        Scalar::U8 => "uint8",
        Scalar::I16 => "int16",
        Scalar::U16 | Scalar::BF16 => "uint16",
        Scalar::I32 => "int32",
        Scalar::U32 => "uint32",
        Scalar::I64 => "int64",
        Scalar::U64 => "uint64",
        Scalar::F16 => "float16",
        Scalar::F32 => "float32",
    }
}

fn has_big_endian(dtype: &DType) -> bool {
    match dtype {
        DType::Plain(plain) => plain.endianness() == Endianness::Big,
        DType::Array(_, inner) => has_big_endian(inner),
        DType::Record(fields) => fields.iter().any(|field| has_big_endian(&field.dtype)),
    }
}

fn element_of(dtype: DType) -> Element {
    let scalar = match &dtype {
        DType::Plain(plain) => match (plain.type_char(), plain.size_field()) {
            (TypeChar::Bool, 1) => Some(Scalar::Bool),
            (TypeChar::Int, 1) => Some(Scalar::I8),
            (TypeChar::Uint, 1) => Some(Scalar::U8),
            (TypeChar::Int, 2) => Some(Scalar::I16),
            (TypeChar::Uint, 2) => Some(Scalar::U16),
            (TypeChar::Int, 4) => Some(Scalar::I32),
            (TypeChar::Uint, 4) => Some(Scalar::U32),
            (TypeChar::Int, 8) => Some(Scalar::I64),
            (TypeChar::Uint, 8) => Some(Scalar::U64),
            (TypeChar::Float, 2) => Some(Scalar::F16),
            (TypeChar::Float, 4) => Some(Scalar::F32),
            _ => None,
        },
        _ => None,
    };
    scalar.map_or(Element::Other(dtype), Element::Scalar)
}

fn dtype_of(element: &Element) -> DType {
    let scalar = match element {
        Element::Scalar(scalar) => *scalar,
        Element::Other(dtype) => return dtype.clone(),
    };
    let descr = match scalar {
        Scalar::Bool => "|b1",
        Scalar::I8 => "|i1",
        Scalar::U8 => "|u1",
        Scalar::I16 => "<i2",
        Scalar::U16 | Scalar::BF16 => "<u2",
        Scalar::I32 => "<i4",
        Scalar::U32 => "<u4",
        Scalar::I64 => "<i8",
        Scalar::U64 => "<u8",
        Scalar::F16 => "<f2",
        Scalar::F32 => "<f4",
    };
    // The list above holds valid descriptions only, which the round trip of every type tests.
    DType::new_scalar(descr.parse().expect("a valid type description"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Fill, type_named};

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn refusal(dtype: &str, order: &str, bytes: &[u8]) -> String {
        let folder = folder();
        let path = folder.path().join("a.npy");
        let mut header = format!("{{'descr': {dtype}, 'fortran_order': {order}, 'shape': (2, 2), }}");
        header.push_str(&" ".repeat(127 - (10 + header.len()) % 64 - 63));
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.bytes());
        file.extend(bytes);
        std::fs::write(&path, file).expect("a written file");
        match read(&path) {
            Ok(array) => format!("taken: {array:?}"),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn every_type_and_shape_comes_back() -> Result<()> {
        let folder = folder();
        let path = folder.path().join("a.npy");
        for name in ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32"] {
            let scalar = type_named(name).expect("a type");
            for shape in [vec![6], vec![2, 3], vec![1, 2, 3], vec![0, 3]] {
                let array = Array::filled(scalar, &shape, &Fill::Random(1), 1 << 20)?;
                write(&path, &array)?;
                assert_eq!(read(&path)?, array, "{name}");
            }
        }
        let bf16 = Array::filled(Scalar::BF16, &[2], &Fill::Ramp, 1 << 20)?;
        write(&path, &bf16)?;
        let back = read(&path)?;
        assert_eq!((back.element, back.bytes), (Element::Scalar(Scalar::U16), bf16.bytes));
        Ok(())
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        assert!(refusal("'<f4'", "False", &[0; 16]).starts_with("taken"));
        assert!(refusal("'<f4'", "True", &[0; 16]).contains("Fortran order"));
        assert!(refusal("'>f4'", "False", &[0; 16]).contains("big-endian"));
        assert!(refusal("'<f4'", "False", &[0; 15]).contains("is truncated: 15 bytes of data, 16"));
        assert!(refusal("'|O'", "False", &[]).contains("Python objects"));
        assert!(refusal("'no'", "False", &[]).contains("is not a .npy file"));
        assert!(read(Path::new("/nowhere/a.npy")).is_err());
    }

    #[test]
    fn no_header_makes_us_ask_for_memory() {
        let folder = folder();
        let path = folder.path().join("a.npy");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a written file");
            read(&path).map(drop).map_err(|failure| failure.to_string()).expect_err("no array")
        };
        let begin = |version: u8| [b"\x93NUMPY".as_slice(), &[version, 0]].concat();
        for version in [2, 3, 255] {
            let long = [begin(version), vec![0xf0, 0xff, 0xff, 0xff], vec![b' '; 100]].concat();
            assert!(read(&long).contains("4294967280 bytes, and at most 65536"));
        }
        let deep = [begin(1), vec![0, 0x80], vec![b'('; 0x8000]].concat();
        assert!(read(&deep).contains("levels deep"));
        // Found by fuzzing: the parser would take days.
        let nested = [begin(1), vec![29, 0], b"(".into(), vec![b'{'; 27], b"^".into()].concat();
        assert!(read(&nested).contains("more than one `{`"));
        let lists = [begin(1), vec![30, 0], vec![b'['; 30]].concat();
        assert!(read(&lists).contains("more than 8 levels deep"));
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n";
        let large = [begin(1), vec![header.len() as u8, 0], header.into()].concat();
        assert!(read(&large).contains("is truncated: 0 bytes of data, 4398046511104"));
    }

    /// Whatever is in a file, it is read or refused.
    #[test]
    fn mangled_files_are_read_or_refused() {
        let folder = folder();
        let path = folder.path().join("a.npy");
        let array = Array::filled(Scalar::F32, &[3, 4], &Fill::Random(1), 1 << 20).expect("an array");
        write(&path, &array).expect("written");
        let right = std::fs::read(&path).expect("there");
        let mut random = 1_u64;
        let mut below = |count: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % count
        };
        for _ in 0..3000 {
            let mut bytes = right.clone();
            for _ in 0..1 + below(4) {
                let at = below(bytes.len());
                match below(4) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes[at] = b"()[]{},:'0123456789<>|fiuO"[below(26)],
                    2 => bytes.truncate(at + 1),
                    _ => bytes.insert(at, bytes[below(at + 1)]),
                }
            }
            if let Ok(array) = parse(&mut bytes.as_slice(), Some(bytes.len() as u64), "a.npy") {
                assert!(array.bytes.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn structured_types_are_kept_as_bytes() {
        let text = refusal("[('a', '<f4'), ('b', '<u4')]", "False", &[7; 32]);
        assert!(text.contains("Other(Record") && text.contains("shape: [2, 2]"), "{text}");
    }
}
