//! [`scaled`]: a larger launch of a case, which is shown to repeat it.
//!
//! The last dimension of the grid that has more than one thread becomes longer by a factor, buffers become that many copies of themselves, and so do the values
//! that are the length of the grid or of a buffer. The kernel with bounds checks then runs once: no access may be out of bounds, and each part of what it writes has
//! to be what the case writes. Otherwise there is no larger launch: such as of kernels whose strides or shapes are passed.

use elinvar::{Device, Error, Kernel, KernelOptions, Library, Result};
use elinvar_sizes::{Given, Launch, Size};

use super::kernels::{Argument, Case, GUARD};

/// Threads of an enlarged launch, and bytes of its buffers, at most; and its duration.
const THREADS: usize = 1 << 20;
const BYTES: usize = 1 << 28;
const NS: u64 = 10_000_000;

/// A launch's grid and arguments.
pub(super) struct Parts {
    pub threads: Size,
    pub given: Vec<Given>,
}

impl Parts {
    /// As the case has them.
    pub(super) fn of(case: &Case) -> Self {
        enlarged(case, 1)
    }
}

/// Elements of a buffer, and bytes of those, without the guard.
fn extent(argument: &Argument) -> Option<(usize, usize)> {
    let Argument::Buffer { scalar, before, after } = argument else { return None };
    let size = scalar.map_or(1, |scalar| scalar.size() as usize).max(1);
    let guard = if after.is_some() { GUARD } else { 0 };
    let elements = (before.len() / size).saturating_sub(guard);
    Some((elements, elements * size))
}

/// The last dimension with more than one thread.
fn dimension(threads: [u32; 3]) -> usize {
    threads.iter().rposition(|side| *side > 1).unwrap_or(0)
}

/// A launch over a grid that is longer by `factor`.
fn enlarged(case: &Case, factor: usize) -> Parts {
    let along = dimension(case.threads);
    let mut threads = case.threads.map(|side| side as usize);
    let most = threads[along];
    let least = most.saturating_sub(case.group[along] as usize) + 1;
    let counts: Vec<usize> = case.arguments.iter().filter_map(extent).map(|(elements, _)| elements).collect();
    let whole: usize = threads.iter().product();
    // Tables of few elements, such as shapes, are no lengths of data.
    let is_length = |value: usize| {
        value > 1
            && ((least..=most).contains(&value) || value == whole || value > 4 && counts.contains(&value))
    };
    threads[along] *= factor;
    let value = |bytes: &[u8]| -> Vec<u8> {
        let words =
            bytes.chunks(4).flat_map(|word| match <[u8; 4]>::try_from(word).map(u32::from_le_bytes) {
                Ok(value) if factor > 1 && is_length(value as usize) => {
                    (value * factor as u32).to_le_bytes().to_vec()
                }
                _ => word.to_vec(),
            });
        words.collect()
    };
    let given = case.arguments.iter().map(|argument| match argument {
        Argument::Bytes(bytes) => Given::Value(value(bytes)),
        Argument::Threadgroup(bytes) => Given::Value(vec![0; *bytes]),
        Argument::Buffer { before, after, .. } => {
            let (elements, bytes) = extent(argument).unwrap_or_default();
            let is_value = after.is_none() && elements <= 4;
            let copies = if elements <= 4 { 1 } else { factor };
            let data = if is_value { value(&before[..bytes]) } else { before[..bytes].repeat(copies) };
            Given::Memory([&data, &before[bytes..]].concat())
        }
    });
    Parts { threads, given: given.collect() }
}

/// A larger launch with its factor, if there is one.
#[allow(unsafe_code)] // launches
pub(super) fn scaled(
    device: &Device,
    library: &Library,
    kernel: &Kernel,
    options: impl Fn() -> KernelOptions,
    case: &Case,
    usual: Size,
) -> Result<Option<(Parts, usize)>> {
    let Parts { threads, given } = Parts::of(case);
    let (count, bytes) = (threads.iter().product::<usize>(), bytes(&given));
    let most = (THREADS / count.max(1)).min(BYTES / bytes.max(1));
    let checked = library.checked_kernel_with(&case.kernel, options())?;
    if most < 2 {
        return Ok(None);
    }
    // SAFETY: the arguments of a case have the sizes that the kernel's definition requires.
    let mut launch = unsafe { Launch::new(device, kernel.clone(), threads, given) }?;
    let results = launch.results(usual)?;
    let ns = launch.run(usual, 1)?.min(launch.run(usual, 1)?);
    // Twice the case shows whether it can be repeated; where it cannot, the time of more would have no bound.
    if !repeats(device, kernel, &checked, case, 2, usual, &results)? {
        return Ok(None);
    }
    let factor = 1 << most.min((NS / ns.max(1)) as usize).max(2).ilog2();
    if factor > 2 && !repeats(device, kernel, &checked, case, factor, usual, &results)? {
        return Ok(None);
    }
    Ok(Some((enlarged(case, factor), factor)))
}

/// Bytes of the buffers.
fn bytes(given: &[Given]) -> usize {
    given
        .iter()
        .map(|given| match given {
            Given::Memory(bytes) => bytes.len(),
            Given::Value(_) => 0,
        })
        .sum()
}

/// Whether each part of what the larger launch writes is what the case writes.
#[allow(unsafe_code)] // launches
fn repeats(
    device: &Device,
    kernel: &Kernel,
    checked: &elinvar::CheckedKernel,
    case: &Case,
    factor: usize,
    usual: Size,
    results: &[Vec<u8>],
) -> Result<bool> {
    let Parts { threads, given } = enlarged(case, factor);
    // SAFETY: it is launched with bounds checks.
    let mut launch = unsafe { Launch::new(device, kernel.clone(), threads, given) }?;
    let written = match launch.checked_results(checked, usual) {
        Ok(written) => written,
        Err(Error::Fault(_) | Error::InvalidArgument(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    let declared = &kernel.signature().args;
    let outputs = case.arguments.iter().zip(declared).filter(|(argument, declared)| {
        matches!(argument, Argument::Buffer { .. }) && declared.access != elinvar::Access::Read
    });
    Ok(outputs.zip(results.iter().zip(&written)).all(|((argument, _), (result, written))| {
        let (elements, bytes) = extent(argument).unwrap_or_default();
        let copies = if elements <= 4 { 1 } else { factor };
        *written == [&result[..bytes].repeat(copies), &result[bytes..]].concat()
    }))
}

#[cfg(test)]
mod tests {
    use elinvar::Source;

    use super::*;

    const TEXT: &str = "kernel void twice(device const float* a, device float* b, constant uint& n, uint i [[thread_position_in_grid]]) {
            if (i < n) { b[i] = 2.0f * a[i]; }
        }
        kernel void place(device const float* a, device float* b, constant uint& n, uint i [[thread_position_in_grid]]) {
            if (i < n) { b[i] = a[0] + i; }
        }
        kernel void behind(device const float* a, device float* b, constant uint& n, uint i [[thread_position_in_grid]]) {
            if (i < n) { b[i] = a[i > 1000 ? 64 * n + i : i]; }
        }";

    fn factor(name: &str, of: impl Fn(usize) -> usize) -> Option<usize> {
        let device = Device::cpu().unwrap();
        let library = device.compile(Source::msl(TEXT)).unwrap();
        let a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let want: Vec<f32> = (0..1000).map(|i| of(i) as f32).collect();
        let case = Case::new("c", "f", name).input(&a).full_output(want).value([1000_u32]).groups(4, 256);
        let kernel = library.kernel(name).unwrap();
        let found = scaled(&device, &library, &kernel, KernelOptions::new, &case, [256, 1, 1]).unwrap();
        found.map(|(parts, factor)| {
            assert_eq!(parts.threads, [1024 * factor, 1, 1]);
            factor
        })
    }

    #[test]
    fn only_launches_that_repeat_the_case_are_enlarged() {
        assert!(factor("twice", |i| 2 * i).unwrap() >= 2);
        assert_eq!(factor("place", |i| i), None);
        assert_eq!(factor("behind", |i| i), None);
    }
}
