//! Published shaders with arguments, and their results computed in Rust from what the shaders are documented to do.

mod algorithms;
#[path = "../random.rs"]
mod random;
mod tensors;
mod vello;

use random::words;

/// A launch of a kernel.
#[derive(Default)]
pub struct Step {
    pub file: &'static str,
    pub kernel: &'static str,
    pub groups: [usize; 3],
    /// The buffers that end in an array without a length, in the order of their declarations.
    pub arrays: Vec<&'static str>,
    /// Uniform buffers of this step in place of those of the case.
    pub values: Vec<(&'static str, Vec<u8>)>,
    /// Buffers that are exchanged before.
    pub exchange: Option<(&'static str, &'static str)>,
}

/// Launches one after the other on the same memory.
pub struct Case {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// Bytes of buffers, by the names that the shader gives them.
    pub memory: Vec<(&'static str, Vec<u8>)>,
    pub expected: Vec<(&'static str, Expected)>,
}

/// The contents of a buffer.
pub enum Expected {
    Bytes(Vec<u8>),
    /// Within an error: a part of the number, and what is added to it.
    Floats(Vec<f32>, [f32; 2]),
    Halves(Vec<f32>, [f32; 2]),
}

impl Expected {
    pub fn is_equal(&self, bytes: &[u8]) -> bool {
        self.compare(bytes).is_ok()
    }

    pub fn compare(&self, found: &[u8]) -> Result<(), String> {
        let (values, expected, [part, more]): (Vec<f32>, _, _) = match self {
            Self::Bytes(bytes) => {
                let different = found.chunks(4).zip(bytes.chunks(4)).position(|(a, b)| a != b);
                return match different {
                    _ if found.len() != bytes.len() => {
                        Err(format!("{} bytes, not {}", found.len(), bytes.len()))
                    }
                    Some(word) => {
                        let show = |bytes: &[u8]| format!("{:?}", &bytes[4 * word..4 * word + 4]);
                        Err(format!("word {word} is {} instead of {}", show(found), show(bytes)))
                    }
                    None => Ok(()),
                };
            }
            Self::Floats(values, error) => {
                (found.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect(), values, *error)
            }
            Self::Halves(values, error) => {
                let half = |x: &[u8; 2]| half::f16::from_le_bytes(*x).to_f32();
                (found.as_chunks::<2>().0.iter().map(half).collect(), values, *error)
            }
        };
        if values.len() != expected.len() {
            return Err(format!("{} elements, not {}", values.len(), expected.len()));
        }
        for (index, (a, b)) in values.iter().zip(expected).enumerate() {
            let near = (a - b).abs() <= part * b.abs() + more;
            if !(near || a.is_nan() && b.is_nan()) {
                return Err(format!("element {index} is {a} instead of {b}"));
            }
        }
        Ok(())
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = algorithms::cases();
    cases.extend(tensors::cases());
    cases.extend(vello::cases());
    cases
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

fn exactly<T: bytemuck::NoUninit>(values: &[T]) -> Expected {
    Expected::Bytes(bytes(values))
}

/// Numbers between -4 and 4 without a pattern.
fn floats(count: usize, seed: u32) -> Vec<f32> {
    words(count, seed).into_iter().map(|x| (x >> 8) as f32 / 2_097_152.0 - 4.0).collect()
}

/// The same as halves, and what they are.
fn halves(count: usize, seed: u32) -> (Vec<u8>, Vec<f32>) {
    let all: Vec<half::f16> = floats(count, seed).into_iter().map(half::f16::from_f32).collect();
    (all.iter().flat_map(|x| x.to_le_bytes()).collect(), all.iter().map(|x| x.to_f32()).collect())
}
