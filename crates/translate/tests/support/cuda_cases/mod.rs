//! Published kernels with arguments, and their results computed in Rust from what the kernels are documented to do.

mod elementwise;
#[path = "../random.rs"]
mod random;
mod rows;

use super::nvrtc::Value;
use random::words;

/// The type of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers of this many bytes.
    Exact(usize),
    F32,
    F16,
    BF16,
}

#[derive(Clone)]
pub struct Case {
    pub file: &'static str,
    pub kernel: &'static str,
    pub groups: [u32; 3],
    pub group: [u32; 3],
    /// Bytes of shared memory that the launch gives.
    pub shared: u32,
    pub args: Vec<Value>,
    /// Index of the results among the arguments in memory.
    pub result: usize,
    pub expected: Vec<u8>,
    pub kind: Kind,
    pub ulp: u32,
}

impl Case {
    pub fn name(&self) -> String {
        let package = self.file.split('-').next().unwrap_or("");
        format!("{package}::{}", self.kernel)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match self {
            Self::Memory(bytes) => Self::Memory(bytes.clone()),
            Self::Number(bytes) => Self::Number(bytes.clone()),
        }
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = elementwise::cases();
    cases.extend(rows::cases());
    cases
}

/// Memory with these elements.
fn memory<T: bytemuck::NoUninit>(values: &[T]) -> Value {
    Value::Memory(bytes(values))
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// A number.
fn number<T: bytemuck::NoUninit>(value: T) -> Value {
    Value::Number(bytemuck::bytes_of(&value).to_vec())
}

/// Numbers between -4 and 4 without a pattern.
fn floats(count: usize, seed: u32) -> Vec<f32> {
    words(count, seed).into_iter().map(|x| (x >> 8) as f32 / 2_097_152.0 - 4.0).collect()
}
