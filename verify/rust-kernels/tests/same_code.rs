//! The kernels of `twins.rs` compile to the PTX of their twins in hand-written MSL, without checks and with the same math mode: speed is that
//! of the same instructions.

use std::collections::BTreeMap;

use elinvar_code::user_cache;
use elinvar_driver::{MathMode, PipelineOptions, Source};
use elinvar_ptx::{Compiler, Constants, Target};
use elinvar_rust_kernels::twins;

/// How the instructions of a kernel in Rust and of its twin are related.
enum Relation {
    /// The same in the same order, but for names of registers and labels.
    Identical,
    /// As many of each operation in another order, or with a comparison the other way around.
    Reordered,
    /// As `Reordered` in fast math, which contracts to what `mul_add` says; otherwise in safe math.
    Contracted,
    /// Numbers of those operations that differ, in Rust and in MSL.
    Counts(&'static [(&'static str, usize, usize)]),
}
use Relation::{Contracted, Counts, Identical, Reordered};

macro_rules! pairs {
    ($($name:ident $file:literal $relation:expr;)*) => {
        [$((
            stringify!($name),
            twins::$name::MSL,
            include_str!(concat!("../../../crates/cli/src/bench/kernels/", $file, ".metal")),
            $relation,
        )),*]
    };
}

/// Instructions, with registers and labels numbered in the order in which they occur; `setp.gt` and others are `setp`.
fn instructions(ptx: &str) -> Vec<String> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for line in ptx.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if line.starts_with(".section") {
            break;
        }
        let is_instruction = line.ends_with(';') && !line.starts_with('.');
        if !is_instruction {
            continue;
        }
        let mut text = String::new();
        let mut word = String::new();
        for c in line.chars() {
            if c.is_ascii_alphanumeric() || "_$%".contains(c) {
                word.push(c);
                continue;
            }
            text += &numbered(&mut names, &std::mem::take(&mut word));
            text.push(c);
        }
        found.push(text);
    }
    found
}

fn numbered(names: &mut BTreeMap<String, usize>, word: &str) -> String {
    if !word.starts_with(['%', '$']) || !word.ends_with(|c: char| c.is_ascii_digit()) {
        return word.to_owned();
    }
    let next = names.len();
    let number = *names.entry(word.to_owned()).or_insert(next);
    format!("{}{number}", word.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// How often each operation occurs.
fn histogram(instructions: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for instruction in instructions {
        let operation =
            instruction.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
        let mut parts: Vec<&str> = operation.trim_end_matches(';').split('.').collect();
        if parts[0] == "setp" && parts.len() == 3 {
            parts.remove(1);
        }
        *counts.entry(parts.join(".")).or_insert(0) += 1;
    }
    counts
}

fn compiled(name: &str, text: String, math: MathMode) -> Vec<String> {
    let source = Source::named("twin.metal", text).math(math);
    let target = Target::of(9, 0).unwrap_or_else(|error| panic!("{error}"));
    let compiler =
        Compiler::new(user_cache(), &source, target).unwrap_or_else(|error| panic!("{name}: {error}"));
    let ptx = compiler.kernel(name, &PipelineOptions::default(), Constants::Values);
    instructions(&ptx.unwrap_or_else(|error| panic!("{name}: {error}")).text)
}

#[test]
fn twins_have_the_same_instructions() {
    let pairs = pairs! {
        vector_add "vector_add" Identical;
        saxpy "saxpy" Identical;
        gather "gather" Identical;
        matmul_naive "matmul" Identical;
        // `n` is loaded where it is made a `usize`.
        matmul_tiled "matmul" Reordered;
        transpose "transpose" Reordered;
        // `while` in place of `for`.
        reduce_tree "reduce" Reordered;
        reduce_simd "reduce" Identical;
        // The twin has pointers to the row, which Rust kernels have not.
        softmax "softmax" Counts(&[("add.s32", 14, 11), ("add.s64", 6, 8), ("mul.wide.u32", 5, 6)]);
        histogram_device "histogram" Identical;
        histogram_threadgroup "histogram" Identical;
        // `mul_add` is where fast math contracts; MSL's safe mode contracts within expressions.
        mandelbrot "mandelbrot" Counts(&[("add.rn.f32", 3, 4), ("fma.rn.f32", 4, 3)]);
        // The twin compares vectors.
        stencil3d "stencil3d" Counts(&[
            ("max.u32", 4, 2), ("or.b32", 0, 4), ("or.pred", 4, 2), ("selp.b32", 4, 8), ("selp.u32", 0, 2),
            ("setp.s32", 7, 9), ("setp.u32", 6, 8),
        ]);
        nbody "nbody" Contracted;
    };
    let mut wrong = Vec::new();
    for (name, rust, twin, relation) in pairs {
        let math = if matches!(relation, Contracted) { MathMode::Fast } else { MathMode::Safe };
        let (ours, theirs) = (compiled(name, rust.to_owned(), math), compiled(name, twin.to_owned(), math));
        assert!(ours.len() > 10, "{name} has instructions");
        let (found, expected) = (histogram(&ours), histogram(&theirs));
        let operations = found.keys().chain(expected.keys());
        let count = |of: &BTreeMap<String, usize>, operation: &str| of.get(operation).copied().unwrap_or(0);
        let mut counts: Vec<(&str, usize, usize)> =
            operations.map(|one| (one.as_str(), count(&found, one), count(&expected, one))).collect();
        counts.retain(|(_, a, b)| a != b);
        counts.sort_unstable();
        counts.dedup();
        let holds = match relation {
            Identical => ours == theirs,
            Reordered | Contracted => ours != theirs && counts.is_empty(),
            Counts(listed) => !counts.is_empty() && counts == listed,
        };
        if !holds {
            let first = ours.iter().zip(&theirs).find(|(a, b)| a != b);
            wrong.push(format!(
                "{name}: of {} and {} instructions differ {counts:?}; first {first:?}",
                ours.len(),
                theirs.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
