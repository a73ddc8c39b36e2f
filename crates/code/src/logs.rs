//! Log calls of a kernel's code as the contract describes them.

use elinvar_driver::{LogElement, LogLevel, LogSite, LogValue};
use elinvar_spmd::{LogCall, LoggedValue};

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
    use LogElement as E;
    let LoggedValue { element, lanes, text } = value;
    if let Some(text) = text {
        return LogValue::Text(text.clone());
    }
    let element = match element {
        'b' => E::Bool,
        'c' => E::Char,
        'C' => E::Uchar,
        's' => E::Short,
        'S' => E::Ushort,
        'i' => E::Int,
        'I' => E::Uint,
        'l' => E::Long,
        'L' => E::Ulong,
        'h' => E::Half,
        'B' => E::Bfloat,
        'f' => E::Float,
        _ => E::Pointer,
    };
    LogValue::Number { element, lanes: *lanes }
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
