//! Log calls: the interpreter reads their strings from memory, as a thread passes them.

use crate::fault::{Problem, Result};
use crate::machine::Machine;
use crate::value::Value;

/// Arguments before the values.
const FIXED: usize = 8;

/// A log call that a thread has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The format.
    pub format: String,
    /// Types of the values: two characters each, as the headers describe them.
    pub types: String,
    /// Subsystem.
    pub subsystem: String,
    /// Category.
    pub category: String,
    /// Level, from 0 (debug) to 4 (fault).
    pub level: u8,
    /// The thread's position in the grid.
    pub thread: [u32; 3],
    /// The components of the values.
    pub words: Vec<u64>,
    /// The strings that are passed as values, in order.
    pub texts: Vec<String>,
    /// Index of the call among those of the module, for code lowered for NVPTX, whose calls have no strings.
    pub site: Option<u16>,
}

impl Machine<'_> {
    /// Executes `__elinvar_log`.
    pub(crate) fn log_call(&mut self, args: &[Value]) -> Result<()> {
        let malformed = || Problem::Malformed("a log call with too few arguments".into());
        let known = known_words(args)?;
        let [format, types, subsystem, category, level, x, y, z] =
            *known.first_chunk::<FIXED>().ok_or_else(malformed)?;
        let types = self.c_string(types)?;
        let words = known[FIXED..].to_vec();
        let mut texts = Vec::new();
        let mut at = 0;
        for pair in types.as_bytes().chunks_exact(2) {
            if pair[0] == b't' {
                texts.push(self.c_string(*words.get(at).ok_or_else(malformed)?)?);
            }
            at += usize::from(pair[1].wrapping_sub(b'0'));
        }
        if at != words.len() {
            return Err(malformed());
        }
        let record = LogRecord {
            format: self.c_string(format)?,
            types,
            subsystem: self.c_string(subsystem)?,
            category: self.c_string(category)?,
            level: level as u8,
            thread: [x, y, z].map(|position| position as u32),
            words,
            texts,
            site: None,
        };
        self.log.push(record);
        Ok(())
    }

    /// Executes a call of a function that lowered code has for log calls, in a launch without a log ring. `false` for other functions.
    pub(crate) fn lowered_log_call(&mut self, name: &str, args: &[Value]) -> Result<bool> {
        if !name.starts_with("elinvar_log_") {
            return Ok(false);
        }
        let known = known_words(args)?;
        let [0, _, tag, x, y, z, words @ ..] = &known[..] else { return Ok(false) };
        self.log.push(LogRecord {
            format: String::new(),
            types: String::new(),
            subsystem: String::new(),
            category: String::new(),
            level: 0,
            thread: [*x, *y, *z].map(|position| position as u32),
            words: words.to_vec(),
            texts: Vec::new(),
            site: Some((tag >> 32) as u16),
        });
        Ok(true)
    }

    fn c_string(&self, address: u64) -> Result<String> {
        let mut bytes = Vec::new();
        loop {
            let (byte, _) = self.memory.read(address + bytes.len() as u64, 1, 1)?;
            match byte[0] {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                byte => bytes.push(byte),
            }
        }
    }
}

/// The arguments of a log call.
fn known_words(args: &[Value]) -> Result<Vec<u64>> {
    args.iter().map(|arg| arg.known("an argument of a log call").map(|bits| bits as u64)).collect()
}
