//! Binds `--arg NAME=VALUE` to a kernel's [`Signature`].
//!
//! Arguments are found by name or position. Types are checked here, where messages can name files and NumPy types; sizes, access
//! and limits are checked by the launch.

use std::path::Path;

use elinvar::{Access, Arg, Buffer, Device, ElementType, Scalar, Signature, Threadgroup};
use elinvar_driver::{self as driver, ArgKind};

use crate::array::{Array, Element, type_name};
use crate::failure::{Failure, Result};
use crate::npy;
use crate::signature::{argument_list, declaration};
use crate::summary;
use crate::value::Value;

/// A given argument: name or position, and value.
pub type Given = (String, Value);

/// The arguments of a launch, and their buffers.
pub struct Bound {
    pub args: Vec<Arg>,
    /// One entry per argument; `None` for those without a buffer.
    buffers: Vec<Option<Held>>,
    /// Labels of the arguments without memory.
    pub unbound: Vec<String>,
}

/// A buffer, with type and shape of its `--arg`.
struct Held {
    buffer: Buffer<u8>,
    element: Element,
    shape: Vec<u64>,
}

impl Bound {
    /// Create the buffers and arguments of `signature`.
    pub fn new(device: &Device, signature: &Signature, given: Vec<Given>) -> Result<Self> {
        let mut values: Vec<Option<Value>> = signature.args.iter().map(|_| None).collect();
        for (name, value) in given {
            let position = position(signature, &name)?;
            if values[position].replace(value).is_some() {
                return Err(wrong(signature, format!("argument `{name}` is given twice")));
            }
        }
        let mut bound = Self { args: Vec::new(), buffers: Vec::new(), unbound: Vec::new() };
        for (position, (expected, value)) in signature.args.iter().zip(values).enumerate() {
            let place =
                format!("kernel `{}`, argument {position} ({})", signature.name, declaration(expected));
            let value = match (value, expected.kind) {
                (Some(value), _) => value,
                (None, ArgKind::Pointer) => Value::Unbound,
                (None, ArgKind::Reference | ArgKind::Threadgroup) => {
                    return Err(wrong(
                        signature,
                        format!("argument {} is missing", label(expected, position)),
                    ));
                }
            };
            if let Value::Unbound = value {
                bound.unbound.push(label(expected, position));
            }
            let (arg, buffer) = bind(device, expected, value).map_err(|failure| failure.at(&place))?;
            bound.args.push(arg);
            bound.buffers.push(buffer);
        }
        Ok(bound)
    }

    /// The position of an argument that is a buffer, for `--out`.
    pub fn output(&self, signature: &Signature, name: &str) -> Result<usize> {
        let position = position(signature, name)?;
        match &self.buffers[position] {
            Some(_) => Ok(position),
            None => Err(wrong(signature, format!("--out {name}: the argument is not an array"))),
        }
    }

    /// Read back the buffer at a position from [`Bound::output`].
    pub fn content(&self, position: usize) -> Result<Array> {
        let Some(Held { buffer, element, shape }) = &self.buffers[position] else {
            return Err(Failure::input(format!("argument {position} is not an array")));
        };
        Ok(Array { element: element.clone(), shape: shape.clone(), bytes: buffer.to_vec()? })
    }
}

fn wrong(signature: &Signature, what: String) -> Failure {
    Failure::input(format!("kernel `{}`: {what}; it takes {}", signature.name, argument_list(signature)))
}

/// A parameter's name in quotes, or its position if it is unnamed.
fn label(arg: &driver::Arg, position: usize) -> String {
    match arg.name.as_str() {
        "" => position.to_string(),
        name => format!("`{name}`"),
    }
}

fn position(signature: &Signature, name: &str) -> Result<usize> {
    let by_name = signature.args.iter().position(|arg| arg.name == name);
    let by_position = || name.parse().ok().filter(|position| *position < signature.args.len());
    by_name.or_else(by_position).ok_or_else(|| wrong(signature, format!("there is no argument `{name}`")))
}

fn bind(device: &Device, expected: &driver::Arg, value: Value) -> Result<(Arg, Option<Held>)> {
    match value {
        Value::Threadgroup(bytes) => Ok((Threadgroup::bytes(bytes).into(), None)),
        Value::Unbound => Ok((Arg::unbound(), None)),
        Value::Functions(names) => Ok((Arg::functions(names), None)),
        Value::Number { scalar, components, bytes } => {
            Ok((number(expected, scalar, components, bytes)?, None))
        }
        Value::File(path) => {
            let array = npy::read(&path)?;
            check_type(expected, &array.element, Some(&path))?;
            check_rows(expected, &array)?;
            buffer(device, expected, array)
        }
        Value::Filled { scalar, shape, fill } => {
            check_type(expected, &Element::Scalar(scalar), None)?;
            let array = Array::filled(scalar, &shape, &fill, device.caps().limits.max_buffer_bytes)?;
            check_rows(expected, &array)?;
            buffer(device, expected, array)
        }
    }
}

fn buffer(device: &Device, expected: &driver::Arg, array: Array) -> Result<(Arg, Option<Held>)> {
    let Array { element, shape, bytes } = array;
    let mut buffer = device.buffer_with_data(&bytes)?;
    let arg = Arg::from(&mut buffer);
    // A struct takes bytes; else the type was checked, and the kernel's own is the right name for it.
    let arg = match expected.element.scalar() {
        Some(scalar) => arg.of(scalar),
        None => arg,
    };
    Ok((arg, Some(Held { buffer, element, shape })))
}

fn number(expected: &driver::Arg, scalar: Scalar, components: usize, mut bytes: Vec<u8>) -> Result<Arg> {
    check_type(expected, &Element::Scalar(scalar), None)?;
    if expected.access == Access::ReadWrite {
        let name = type_name(scalar);
        return Err(Failure::input(format!(
            "the kernel may write to it, so it takes an array, such as {name}:1:zeros, and no number"
        )));
    }
    if let ElementType::Vector { lanes, .. } = expected.element {
        if lanes as usize != components {
            return Err(Failure::input(format!("expected {lanes} components, given {components}")));
        }
        // A vector of three is as large as one of four.
        bytes.resize(expected.element_size as usize, 0);
        return Ok(Arg::bytes(bytes));
    }
    Ok(match expected.element.scalar() {
        Some(scalar) => Arg::bytes(bytes).of(scalar),
        None => Arg::bytes(bytes),
    })
}

/// Scalar types have to be equal, except that uint8 stands for bool and uint16 for bfloat, which NumPy does not have. A struct
/// takes any type.
fn check_type(expected: &driver::Arg, given: &Element, file: Option<&Path>) -> Result<()> {
    let Some(wanted) = expected.element.scalar() else {
        return Ok(());
    };
    let fits = match given {
        Element::Scalar(Scalar::U8) => matches!(wanted, Scalar::U8 | Scalar::Bool),
        Element::Scalar(Scalar::U16) => matches!(wanted, Scalar::U16 | Scalar::BF16),
        Element::Scalar(scalar) => *scalar == wanted,
        Element::Other(_) => false,
    };
    if fits {
        return Ok(());
    }
    let Some(file) = file else {
        let (given, wanted) = (summary::element_name(given), type_name(wanted));
        return Err(Failure::input(format!("expected {}, given {given}; write {wanted}", expected.element)));
    };
    let given = npy::numpy_name(given);
    let double = if given == "float64" { ", and MSL has no double" } else { "" };
    let advice = match wanted {
        Scalar::BF16 => "give bfloat as uint16 with its bits".into(),
        _ => format!("convert it with `.astype(np.{})`", npy::numpy_name(&Element::Scalar(wanted))),
    };
    let (file, element) = (file.display(), &expected.element);
    Err(Failure::input(format!("expected {element}, {file} holds {given}{double}; {advice}")))
}

/// Reject rows of three for a vector of three, whose stride is four elements; sizes alone would not show it.
fn check_rows(expected: &driver::Arg, array: &Array) -> Result<()> {
    let ElementType::Vector { lanes: 3, packed: false, .. } = expected.element else {
        return Ok(());
    };
    if array.shape.len() > 1 && array.shape.last() == Some(&3) {
        let (element, size) = (&expected.element, expected.element_size);
        return Err(Failure::input(format!(
            "a {element} takes {size} bytes, but the array's rows have three elements; make them four, or \
             use packed_{element} in the kernel"
        )));
    }
    Ok(())
}
