//! Gather and scatter functions for processors without such instructions: loops over the active lanes, out of line, since the
//! inlined code would dominate a kernel's size.

use elinvar_ir::{Function, Module, Type};

use crate::support::vector_intrinsics::mangled;

const LOAD: &str = "elinvar.gather.";
const STORE: &str = "elinvar.scatter.";

/// `vector of element (vector of ptr addresses, i32 mask)`: loads the lanes in the mask.
pub(crate) fn gather_name(element: &Type, lanes: u32) -> String {
    format!("{LOAD}{}", mangled(element, lanes))
}

/// `void (vector of element, vector of ptr addresses, i32 mask)`: stores the lanes in the mask, in order.
pub(crate) fn scatter_name(element: &Type, lanes: u32) -> String {
    format!("{STORE}{}", mangled(element, lanes))
}

/// The function with this name, for vectors of type `vector`.
pub(crate) fn definition(name: &str, vector: &Type) -> Option<Function> {
    let Type::Vector(lanes, element) = vector else { return None };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_whole() {
        for element in [Type::Float, Type::I64, Type::PTR, Type::Half] {
            let vector = Type::vector(32, element.clone());
            for name in [gather_name(&element, 32), scatter_name(&element, 32)] {
                let function = definition(&name, &vector).expect("parses");
                let text = format!("{function}\ndeclare i32 @llvm.cttz.i32(i32, i1 immarg)\n");
                let module = Module::parse(&text).unwrap();
                elinvar_ir::verify(&module).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
            }
        }
        assert!(definition("llvm.masked.gather.v4f32.v4p0", &Type::vector(4, Type::Float)).is_none());
    }
}
