//! Log calls of a kernel's code as the contract describes them.

use elinvar_driver::{LogLevel, LogSite, LogValue, Scalar};
use elinvar_ir::Module;
use elinvar_spmd::{LogCall, LoggedValue};

/// The log calls of a kernel's code. Their formats are not checked.
///
/// # Errors
/// As [`elinvar_spmd::log_calls`].
pub fn log_sites(module: &Module) -> Result<Vec<LogSite>, elinvar_spmd::Error> {
    Ok(elinvar_spmd::log_calls(module)?.iter().map(site).collect())
}

/// The description of a log call.
pub(crate) fn site(call: &LogCall) -> LogSite {
    let LogCall { format, subsystem, category, level, location, .. } = call.clone();
    let (file, line) = location.map_or((String::new(), 0), |location| (location.file, location.line));
    LogSite {
        level: LogLevel::ALL.get(usize::from(level)).copied().unwrap_or_default(),
        subsystem,
        category,
        format,
        values: call.values.iter().map(value).collect(),
        file,
        line,
    }
}

fn value(value: &LoggedValue) -> LogValue {
    let LoggedValue { element, lanes, text } = value;
    if let Some(text) = text {
        return LogValue::Text(text.clone());
    }
    let scalar = match element {
        'b' => Scalar::Bool,
        'c' => Scalar::I8,
        'C' => Scalar::U8,
        's' => Scalar::I16,
        'S' => Scalar::U16,
        'i' => Scalar::I32,
        'I' => Scalar::U32,
        'l' => Scalar::I64,
        'L' => Scalar::U64,
        'h' => Scalar::F16,
        'B' => Scalar::BF16,
        'f' => Scalar::F32,
        _ => return LogValue::Pointer,
    };
    LogValue::Number { scalar, lanes: *lanes }
}

/// The column of a call in its line, from 1: that of the format, if it is written there; else that of the call. 0 if neither is found.
/// The code has no columns.
pub(crate) fn column(line: &str, format: &str) -> u32 {
    let escaped: String = format.chars().flat_map(char::escape_default).collect();
    let literal = [format!("\"{escaped}\""), format!("\"{format}\"")];
    let found = literal.iter().find_map(|literal| line.find(literal));
    let found = found.or_else(|| [".log", "printf"].iter().find_map(|call| line.find(call)));
    found.map_or(0, |at| line[..at].chars().count() as u32 + 1)
}
