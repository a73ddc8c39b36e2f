//! Functions that have to be inlined: those with thread positions, barriers, simdgroup functions or threadgroup variables. The back ends
//! support these in the kernel itself only, as they compile it for many threads at a time.
//!
//! LLVM inlines functions up to a size. What it has left is then marked `alwaysinline`.

use std::collections::{BTreeSet, HashSet};

use crate::ir::items::{items, names, symbol};
use crate::ir::recursion::symbol_name;
use crate::rewrite::glue::ENTRY;

/// What the names of the headers' intrinsics begin with.
const INTRINSIC: &str = "@__elinvar_";

/// The section of threadgroup variables.
const THREADGROUP: &str = "section \"elinvar.threadgroup\"";

/// Functions of optimized IR other than entries that have to be inlined.
pub(crate) fn required(ir: &str) -> BTreeSet<String> {
    let items = items(ir);
    let is_special = |item: &&&str| {
        item.starts_with("declare ") && item.contains(INTRINSIC)
            || item.starts_with('@') && item.contains(THREADGROUP)
    };
    let special: HashSet<&str> = items.iter().filter(is_special).filter_map(|item| symbol(item)).collect();
    let functions = items.iter().filter(|item| item.starts_with("define "));
    let others = functions.filter(|item| symbol_name(item).is_some_and(|name| !name.starts_with(ENTRY)));
    let found = others.filter(|item| names(item).any(|name| special.contains(name)));
    found.filter_map(|item| symbol_name(item).map(str::to_owned)).collect()
}

/// Marks functions of unoptimized IR as `alwaysinline`.
pub(crate) fn inline(ir: &str, functions: &BTreeSet<String>) -> String {
    // LLVM names the copy of a function for constant arguments after it.
    let wanted = |name: &str| {
        functions.iter().any(|f| f == name || f.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
    };
    let mut out = String::with_capacity(ir.len());
    for line in ir.split_inclusive('\n') {
        let definition = line.starts_with("define ") && symbol_name(line).is_some_and(wanted);
        // Attributes precede the reference to an attribute group.
        match line.rfind(" #").filter(|_| definition) {
            Some(at) => {
                let (head, rest) = line.split_at(at);
                out.push_str(&format!("{head} alwaysinline{rest}"));
            }
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "@s = internal global i32 0, section \"elinvar.threadgroup\", align 4\n\
        @t = internal global i32 0, align 4\n\
        define void @__elinvar_entry(ptr %0) #0 !dbg !4 {\n  call void @a()\n  ret void\n}\n\
        define internal void @a() unnamed_addr #1 !dbg !5 {\n  call void @__elinvar_barrier(i32 1)\n  ret void\n}\n\
        define internal void @b.specialized.1(ptr %0) #1 {\n  store i32 1, ptr @s\n  ret void\n}\n\
        define internal void @c() #1 comdat($c) align 2 {\n  store i32 1, ptr @t\n  call void @__elinvar_udiv()\n  ret void\n}\n\
        define internal void @__elinvar_udiv() #1 {\n  ret void\n}\n\
        declare void @__elinvar_barrier(i32) #2\n";

    #[test]
    fn functions_with_intrinsics_or_threadgroup_variables_are_required() {
        assert_eq!(required(IR).into_iter().collect::<Vec<_>>(), ["a", "b.specialized.1"]);
    }

    #[test]
    fn required_functions_are_marked() {
        let written = IR.replace("@b.specialized.1", "@b");
        let marked = inline(&written, &required(IR));
        assert!(marked.contains("@a() unnamed_addr alwaysinline #1 !dbg !5 {"), "{marked}");
        assert!(marked.contains("@b(ptr %0) alwaysinline #1 {"), "{marked}");
        assert_eq!(marked.matches("alwaysinline").count(), 2);
    }
}
