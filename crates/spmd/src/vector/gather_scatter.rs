//! Gathers and scatters that the processor has no instruction for: shared functions, out of line, since LLVM would expand each access to
//! a branch per lane, which would dominate a kernel's code size and its compilation time.
//!
//! - A loop over the active lanes loads or stores elements of any type.
//! - AVX-512 gathers elements of 4 and 8 bytes. Smaller elements are gathered as the aligned 4-byte words that contain them. An aligned
//!   word does not cross a page, so that reading all of it cannot fault if its element is readable.

use elinvar_ir::{Function, Module, Type};

use crate::support::vector_intrinsics::mangled;

const LOAD: &str = "elinvar.gather.";
const LOAD_WORDS: &str = "elinvar.gather.words.";
const STORE: &str = "elinvar.scatter.";

/// Maximum number of lanes for which gathers and scatters without an instruction are left to LLVM.
const UNROLLED_ACCESSES: u32 = 8;

/// How the target gathers and scatters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathers {
    /// Whether it has instructions for elements of 4 and 8 bytes.
    pub has_instruction: bool,
    pub lanes: u32,
}

impl Gathers {
    /// Whether an access to elements of `size` bytes is left to LLVM.
    pub fn is_native(self, size: i64) -> bool {
        self.lanes <= UNROLLED_ACCESSES || self.has_instruction && size >= 4
    }

    /// Whether masked accesses to consecutive elements of `size` bytes are left to LLVM. AVX-512 has them for all sizes, AVX2 for 4 and
    /// 8 bytes.
    pub fn has_masked_rows(self, size: i64) -> bool {
        self.lanes <= UNROLLED_ACCESSES || self.has_instruction || size >= 4
    }

    /// The function `vector of element (vector of ptr addresses, i32 mask)`, which loads the lanes in the mask.
    pub fn gather_name(self, element: &Type, size: i64, align: u64) -> String {
        let is_within_word = size < 4 && align >= size as u64;
        let start = if self.has_instruction && is_within_word { LOAD_WORDS } else { LOAD };
        format!("{start}{}", mangled(element, self.lanes))
    }

    /// The function `void (vector of element, vector of ptr addresses, i32 mask)`, which stores the lanes in the mask, in order.
    pub fn scatter_name(self, element: &Type) -> String {
        format!("{STORE}{}", mangled(element, self.lanes))
    }
}

/// The type as which elements are accessed: an integer for `half` and `bfloat`, whose masked accesses LLVM expands unless the processor
/// has arithmetic of the type.
pub(crate) fn memory_type(element: &Type) -> &Type {
    match element {
        Type::Half | Type::BFloat => &Type::I16,
        other => other,
    }
}

/// The function with this name, for vectors of type `vector`.
pub(crate) fn definition(name: &str, vector: &Type) -> Option<Function> {
    let Type::Vector(lanes, element) = vector else { return None };
    if name.starts_with(LOAD_WORDS) {
        return words_definition(name, *lanes, element);
    }
    let loads = name.starts_with(LOAD);
    if !loads && !name.starts_with(STORE) {
        return None;
    }
    let (result, parameters, end) = match loads {
        true => (
            vector.to_string(),
            String::new(),
            format!("%all = load {vector}, ptr %values\n ret {vector} %all"),
        ),
        false => ("void".to_owned(), format!("{vector} %v, "), "ret void".to_owned()),
    };
    let (begin, from, to) = match loads {
        true => (String::new(), "%address", "%own"),
        false => (format!("store {vector} %v, ptr %values"), "%own", "%address"),
    };
    let text = format!(
        "define internal {result} @{name}({parameters}<{lanes} x ptr> %a, i32 %mask) noinline nounwind {{
        entry:
          %values = alloca {vector}, align 64
          %addresses = alloca <{lanes} x ptr>, align 64
          store <{lanes} x ptr> %a, ptr %addresses
          {begin}
          %none = icmp eq i32 %mask, 0
          br i1 %none, label %end, label %lane
        lane:
          %left = phi i32 [ %mask, %entry ], [ %rest, %lane ]
          %index = call i32 @llvm.cttz.i32(i32 %left, i1 true)
          %at = getelementptr ptr, ptr %addresses, i32 %index
          %address = load ptr, ptr %at
          %own = getelementptr {element}, ptr %values, i32 %index
          %value = load {element}, ptr {from}, align 1
          store {element} %value, ptr {to}, align 1
          %less = add i32 %left, -1
          %rest = and i32 %left, %less
          %last = icmp eq i32 %rest, 0
          br i1 %last, label %end, label %lane
        end:
          {end}
        }}
        declare i32 @llvm.cttz.i32(i32, i1 immarg)"
    );
    Module::parse(&text).ok()?.functions.into_iter().find(|f| f.name == name)
}

/// A gather of small integers by way of the words that contain them.
fn words_definition(name: &str, lanes: u32, element: &Type) -> Option<Function> {
    let Type::Int(bits @ (8 | 16)) = *element else { return None };
    let splat = |ty: &str, value: i32| {
        let all = vec![format!("{ty} {value}"); lanes as usize];
        format!("<{}>", all.join(", "))
    };
    let (mask, words) = (splat("i64", -4), format!("<{lanes} x i32>"));
    let within = splat("i32", if bits == 8 { 3 } else { 2 });
    let three = splat("i32", 3);
    let active = match lanes {
        32 => "%active = bitcast i32 %mask to <32 x i1>".to_owned(),
        _ => {
            format!("%low = trunc i32 %mask to i{lanes}\n %active = bitcast i{lanes} %low to <{lanes} x i1>")
        }
    };
    let gather = format!("@llvm.masked.gather.v{lanes}i32.v{lanes}p0");
    let text = format!(
        "define internal <{lanes} x i{bits}> @{name}(<{lanes} x ptr> %a, i32 %mask) noinline nounwind {{
        entry:
          {active}
          %addresses = ptrtoint <{lanes} x ptr> %a to <{lanes} x i64>
          %aligned = and <{lanes} x i64> %addresses, {mask}
          %words = inttoptr <{lanes} x i64> %aligned to <{lanes} x ptr>
          %all = call {words} {gather}(<{lanes} x ptr> %words, i32 4, <{lanes} x i1> %active, {words} zeroinitializer)
          %address = trunc <{lanes} x i64> %addresses to {words}
          %byte = and {words} %address, {within}
          %shift = shl {words} %byte, {three}
          %shifted = lshr {words} %all, %shift
          %values = trunc {words} %shifted to <{lanes} x i{bits}>
          ret <{lanes} x i{bits}> %values
        }}
        declare {words} {gather}(<{lanes} x ptr>, i32 immarg, <{lanes} x i1>, {words})"
    );
    Module::parse(&text).ok()?.functions.into_iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_complete() {
        let declarations = "declare i32 @llvm.cttz.i32(i32, i1 immarg)
            declare <32 x i32> @llvm.masked.gather.v32i32.v32p0(<32 x ptr>, i32 immarg, <32 x i1>, <32 x i32>)
            declare <16 x i32> @llvm.masked.gather.v16i32.v16p0(<16 x ptr>, i32 immarg, <16 x i1>, <16 x i32>)";
        for (has_instruction, lanes) in [(false, 32), (true, 32), (true, 16)] {
            let gathers = Gathers { has_instruction, lanes };
            for (element, size) in
                [(Type::Float, 4), (Type::I64, 8), (Type::PTR, 8), (Type::I16, 2), (Type::I8, 1)]
            {
                let vector = Type::vector(lanes, element.clone());
                for name in [gathers.gather_name(&element, size, 2), gathers.scatter_name(&element)] {
                    let function = definition(&name, &vector).expect("parses");
                    let text = format!("{function}\n{declarations}\n");
                    let module = Module::parse(&text).unwrap();
                    elinvar_ir::verify(&module).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
                }
            }
        }
        assert!(definition("llvm.masked.gather.v4f32.v4p0", &Type::vector(4, Type::Float)).is_none());
    }

    #[test]
    fn words_are_gathered_for_small_aligned_elements() {
        let with = Gathers { has_instruction: true, lanes: 16 };
        let without = Gathers { has_instruction: false, lanes: 16 };
        assert_eq!(with.gather_name(&Type::I16, 2, 2), "elinvar.gather.words.v16i16");
        assert_eq!(with.gather_name(&Type::I16, 2, 1), "elinvar.gather.v16i16", "it may cross a word's end");
        assert_eq!(without.gather_name(&Type::I16, 2, 2), "elinvar.gather.v16i16");
        assert!(with.is_native(4) && !with.is_native(2) && !without.is_native(4));
        assert!(Gathers { lanes: 8, ..without }.is_native(2));
    }
}
