//! Log calls of a kernel: `os_log` and `printf`, as the front end's headers declare them.
//!
//! `__elinvar_log(format, types, subsystem, category, level, x, y, z, …)`: four C strings, the level from 0 (debug) to 4 (fault), the
//! thread's position in the grid, and an i64 for each component of the values. `types` has two characters for each value: the element
//! type and the number of components, counted from `'0'`.

use elinvar_ir::{Call, Const, Location, Module, Op, Operand};

use crate::Error;
use crate::intrinsic::Intrinsic;
use crate::support::ir::callee_name;

/// Number of arguments before the values.
pub(crate) const FIXED: usize = 8;

/// A log call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCall {
    /// The format.
    pub format: String,
    /// The values.
    pub values: Vec<LoggedValue>,
    /// Subsystem.
    pub subsystem: String,
    /// Category.
    pub category: String,
    /// Level, from 0 (debug) to 4 (fault).
    pub level: u8,
    /// Location in the user's source.
    pub location: Option<Location>,
}

/// A value of a log call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedValue {
    /// Element type: a character of the headers' `element`.
    pub element: char,
    /// Number of components.
    pub lanes: u8,
    /// The string, for a string literal.
    pub text: Option<String>,
}

/// The log calls of a module's functions, each once, in the order of the code.
///
/// # Errors
/// `Unsupported` with the location for a call whose format is not a string literal; `Malformed` for one that the headers do not make.
pub fn log_calls(module: &Module) -> Result<Vec<LogCall>, Error> {
    let mut found = Vec::new();
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        if let Op::Call(call) = &inst.op
            && is_log(call)
        {
            let call = LogCall::of(module, call, module.location(&inst.metadata))?;
            // A call may have been duplicated, as by unrolling.
            if !found.contains(&call) {
                found.push(call);
            }
        }
    }
    Ok(found)
}

/// Whether a call is a log call.
pub(crate) fn is_log(call: &Call) -> bool {
    callee_name(call).and_then(Intrinsic::parse) == Some(Intrinsic::Log)
}

impl LogCall {
    pub(crate) fn of(module: &Module, call: &Call, location: Option<Location>) -> Result<Self, Error> {
        let malformed = || Error::Malformed("a log call in another form than the headers make".into());
        let [format, types, subsystem, category, level, _, _, _] =
            call.args.first_chunk::<FIXED>().ok_or_else(malformed)?;
        let string = |arg: &Operand, what: &str| {
            let text = constant(arg).and_then(|constant| string(module, constant));
            text.ok_or_else(|| {
                Error::unsupported(
                    format!("a log call whose {what} is not a string literal"),
                    location.clone(),
                )
            })
        };
        let types = string(&types.op, "list of types")?;
        let types: Vec<char> = types.chars().collect();
        let mut words = call.args[FIXED..].iter();
        let mut values = Vec::new();
        for pair in types.chunks_exact(2) {
            let (element, lanes) = (pair[0], (pair[1] as u32).wrapping_sub(u32::from(b'0')));
            let lanes =
                u8::try_from(lanes).ok().filter(|lanes| (1..=64).contains(lanes)).ok_or_else(malformed)?;
            let mut text = None;
            for _ in 0..lanes {
                let word = words.next().ok_or_else(malformed)?;
                if element == 't' {
                    text = Some(string(&word.op, "argument of type `const char*`")?);
                }
            }
            values.push(LoggedValue { element, lanes, text });
        }
        let level = constant(&level.op).and_then(|level| level.as_unsigned(32));
        Ok(Self {
            format: string(&format.op, "format")?,
            values,
            subsystem: string(&subsystem.op, "subsystem")?,
            category: string(&category.op, "category")?,
            level: level.and_then(|level| u8::try_from(level).ok()).ok_or_else(malformed)?,
            location,
        })
    }
}

fn constant(operand: &Operand) -> Option<&Const> {
    match operand {
        Operand::Const(constant) => Some(constant),
        Operand::Value(_) => None,
    }
}

/// The C string at a constant address.
fn string(module: &Module, address: &Const) -> Option<String> {
    let (name, offset) = match address {
        Const::Cast { from, .. } => return string(module, &from.1),
        Const::Global(name) => (name, 0),
        Const::Gep { source, base, indices, .. } => {
            let Const::Global(name) = &base.1 else { return None };
            let zero = |index: &(_, Const)| matches!(index.1, Const::Zero | Const::Int(0));
            match indices.split_last() {
                Some((last, rest)) if **source == elinvar_ir::Type::I8 || !rest.is_empty() => {
                    rest.iter().all(zero).then_some(())?;
                    let at = if zero(last) { 0 } else { last.1.as_unsigned(64)? };
                    (name, usize::try_from(at).ok()?)
                }
                _ if indices.iter().all(zero) => (name, 0),
                _ => return None,
            }
        }
        _ => return None,
    };
    let global = module.global(name).filter(|global| global.constant)?;
    let bytes = bytes(global.init.as_ref()?)?;
    let bytes = bytes.get(offset..)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The bytes of an array of characters, or of a struct of one.
fn bytes(value: &Const) -> Option<Vec<u8>> {
    match value {
        Const::String(bytes) => Some(bytes.clone()),
        Const::Zero => Some(Vec::new()),
        Const::Struct { fields, .. } => bytes(&fields.first()?.1),
        Const::Array(elements) => {
            elements.iter().map(|(_, byte)| byte.as_unsigned(8).map(|byte| byte as u8)).collect()
        }
        _ => None,
    }
}
