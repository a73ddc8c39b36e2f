//! The product of simdgroup matrices: a shared function, out of line, on matrices in memory.
//!
//! A matrix is stored as the lanes hold it: 32 floats for the first element of each lane, 32 for the second. Lane i holds row
//! i / 16 * 4 + i / 2 % 4 and two columns from i / 8 % 2 * 4 + i % 2 * 2 on. Eight consecutive lanes are thus four rows of two columns,
//! and the eight sums of such a part have one multiply-add for each of the eight products of an element: the factor of the left matrix is
//! the same for two neighboring lanes, and the two factors of the right matrix, which are neighbors in memory, are the same for each pair
//! of lanes. So a part of the left matrix is loaded with its even or odd lanes duplicated, and two floats of the right one are
//! broadcast. No element is moved from one part to another.
//!
//! Inlined, a kernel's products would be most of its code and of its compilation time, once for each version of a region.

use std::fmt::Write as _;

use elinvar_ir::{Function, Module, Type};

use crate::intrinsic::SIMDGROUP;

/// `void (ptr sums, ptr left, ptr right)`: adds the product to the sums. The sums may be one of the factors.
pub(crate) const NAME: &str = "elinvar.matrix.product";

/// Lanes of a part.
const PART: u32 = 8;
/// Bytes of a matrix's first elements.
const ELEMENT: u32 = SIMDGROUP * 4;

/// A matrix in memory.
pub(crate) fn memory() -> Type {
    Type::Array(2, Box::new(Type::vector(SIMDGROUP, Type::Float)))
}

/// The function with this name.
pub(crate) fn definition(name: &str) -> Option<Function> {
    if name != NAME {
        return None;
    }
    let mut text = format!(
        "define internal void @{NAME}(ptr %sums, ptr %left, ptr %right) noinline nounwind {{\nentry:\n"
    );
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let parts = SIMDGROUP / PART;
    let all_parts = || (0..2).flat_map(|element| (0..parts).map(move |part| (element, part)));
    for (element, part) in all_parts() {
        let at = element * ELEMENT + part * PART * 4;
        line(format!("%to.{element}.{part} = getelementptr i8, ptr %sums, i64 {at}"));
        line(format!("%s.{element}.{part}.0 = load <8 x float>, ptr %to.{element}.{part}, align 32"));
    }
    for k in 0..8 {
        // Of the left matrix, column k is in element k % 2 of these lanes of a part.
        let (element, odd) = (k % 2, k % 4 / 2);
        for half in 0..2 {
            let at = element * ELEMENT + (2 * half + k / 4) * PART * 4;
            let lanes: Vec<String> = (0..PART).map(|lane| format!("i32 {}", lane / 2 * 2 + odd)).collect();
            line(format!("%la.{k}.{half} = getelementptr i8, ptr %left, i64 {at}"));
            line(format!("%lv.{k}.{half} = load <8 x float>, ptr %la.{k}.{half}, align 32"));
            line(format!(
                "%l.{k}.{half} = shufflevector <8 x float> %lv.{k}.{half}, <8 x float> poison, <8 x i32> <{}>",
                lanes.join(", ")
            ));
        }
        for element in 0..2 {
            for columns in 0..2 {
                // Row k of the right matrix.
                let at = element * ELEMENT + (k / 4 * 16 + columns * PART + k % 4 * 2) * 4;
                let name = format!("{k}.{element}.{columns}");
                line(format!("%ra.{name} = getelementptr i8, ptr %right, i64 {at}"));
                line(format!("%rv.{name} = load i64, ptr %ra.{name}, align 8"));
                line(format!("%ri.{name} = insertelement <4 x i64> poison, i64 %rv.{name}, i64 0"));
                line(format!(
                    "%rs.{name} = shufflevector <4 x i64> %ri.{name}, <4 x i64> poison, <4 x i32> zeroinitializer"
                ));
                line(format!("%r.{name} = bitcast <4 x i64> %rs.{name} to <8 x float>"));
                for half in 0..2 {
                    let sum = format!("%s.{element}.{}", 2 * half + columns);
                    let args =
                        format!("<8 x float> %l.{k}.{half}, <8 x float> %r.{name}, <8 x float> {sum}.{k}");
                    line(format!("{sum}.{} = call <8 x float> @llvm.fma.v8f32({args})", k + 1));
                }
            }
        }
    }
    for (element, part) in all_parts() {
        line(format!("store <8 x float> %s.{element}.{part}.8, ptr %to.{element}.{part}, align 32"));
    }
    text.push_str(
        "  ret void\n}\ndeclare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)\n",
    );
    Module::parse(&text).ok()?.functions.into_iter().find(|function| function.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_complete() {
        let function = definition(NAME).expect("parses");
        let declaration = "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)";
        let text = format!("{function}\n{declaration}\n");
        elinvar_ir::verify(&Module::parse(&text).unwrap())
            .unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        assert_eq!(text.matches("= call <8 x float> @llvm.fma.v8f32(").count(), 64);
        assert!(definition("elinvar.matrix.products").is_none());
    }
}
