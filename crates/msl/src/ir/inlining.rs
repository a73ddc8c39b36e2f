//! Functions that have to be inlined: those with thread positions, barriers, simdgroup functions or threadgroup variables. The back ends
//! support these in the kernel itself only, as they compile it for many threads at a time.
//!
//! LLVM inlines functions up to a size. What it has left is then marked `alwaysinline`.
//!
//! And large functions with one call, which LLVM inlines too, but only when it has simplified them: the same code is then simplified once
//! for each function around it. Their calls are marked before, which takes a fifth off the optimization of ggml's kernels.

use std::collections::{BTreeSet, HashMap, HashSet};

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

/// Lines of a function whose simplification costs more than a look at its calls.
const LARGE: usize = 100;

/// Marks the calls of large functions that each entry that reaches them calls at one place, as `alwaysinline`. Returns the entries for
/// which a call is not marked because others call the function more than once: optimized separately, their code may differ.
pub(crate) fn inline_single_calls(ir: &str) -> (String, BTreeSet<&str>) {
    let functions: HashMap<&str, &str> = items(ir)
        .into_iter()
        .filter(|item| item.starts_with("define "))
        .filter_map(|f| Some((symbol(f)?, f)))
        .collect();
    let offset = |name: &str| name.as_ptr().addr() - ir.as_ptr().addr();
    // For each mention of a large function: whether it is the only one in an entry, and the entries.
    let mut mentions: HashMap<usize, (BTreeSet<bool>, BTreeSet<&str>)> = HashMap::new();
    for (&entry, _) in functions.iter().filter(|(name, _)| name[1..].starts_with(ENTRY)) {
        let (mut reached, mut open) = (HashSet::from([entry]), vec![entry]);
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        while let Some(function) = open.pop() {
            let mentioned = names(functions[function]).skip(1).filter(|name| functions.contains_key(name));
            for name in mentioned {
                places.entry(name).or_default().push(offset(name));
                if reached.insert(name) {
                    open.push(name);
                }
            }
        }
        for (_, places) in places.iter().filter(|(name, _)| functions[*name].lines().count() > LARGE) {
            for place in places {
                let (single, entries) = mentions.entry(*place).or_default();
                single.insert(places.len() == 1);
                entries.insert(&entry[1..]);
            }
        }
    }
    let different = mentions.values().filter(|(single, _)| single.len() > 1);
    let different = different.flat_map(|(_, entries)| entries.iter().copied()).collect();
    let single = mentions.iter().filter(|(_, (single, _))| !single.contains(&false));
    let mut ends: Vec<usize> = single.filter_map(|(place, _)| end_of_call(ir, *place)).collect();
    ends.sort_unstable();
    let mut out = String::with_capacity(ir.len() + ends.len() * 16);
    let mut from = 0;
    for end in ends {
        out.push_str(&ir[from..end]);
        out.push_str(" alwaysinline");
        from = end;
    }
    out.push_str(&ir[from..]);
    (out, different)
}

/// Where the arguments of a call end whose callee is named at `at`; `None` if the name is not that of a callee.
fn end_of_call(ir: &str, at: usize) -> Option<usize> {
    let line = ir[..at].rfind('\n').map_or(0, |end| end + 1);
    let before = ir[line..at].trim_start();
    let call = before.split_once(" = ").map_or(before, |(_, instruction)| instruction);
    if !call.starts_with("call ") {
        return None;
    }
    let rest = ir[at..].lines().next()?;
    let open = names(rest).next()?.len();
    // An argument may be a name too.
    if !rest[open..].starts_with('(') {
        return None;
    }
    let (mut depth, mut quoted) = (0usize, false);
    for (i, c) in rest[open..].char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + open + i + 1);
        }
    }
    None
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

    /// Two entries, of which both call `f`, and the second calls `g` twice; all but the entries are large.
    fn calls(second: &str) -> String {
        let mut ir = String::new();
        let mut function = |head: &str, calls: &str, lines: usize| {
            ir.push_str(&format!(
                "define {head} {{\n{calls}{}  ret void\n}}\n",
                "  store i32 1, ptr @t\n".repeat(lines)
            ));
        };
        function(
            "void @__elinvar_entry_0(ptr %0) #0 !dbg !4",
            "  call void @f(ptr nonnull align(4) %0, ptr @h) #1, !dbg !5\n",
            0,
        );
        function("void @__elinvar_entry_1(ptr %0) #0", second, 0);
        function(
            "internal void @f(ptr %0, ptr %1) #1",
            "  %3 = call noundef dereferenceable(4) ptr @\"g(\"(ptr %0)\n",
            LARGE,
        );
        function("internal ptr @\"g(\"(ptr %0)", "", LARGE);
        function("internal void @h()", "", LARGE);
        function("internal void @small()", "", LARGE - 3);
        ir
    }

    #[test]
    fn single_calls_of_large_functions_are_marked() {
        let ir = calls("  call void @f(ptr %0, ptr null)\n  call void @small()\n  call void @h()\n");
        let (marked, different) = inline_single_calls(&ir);
        assert!(different.is_empty());
        let lines = [
            "call void @f(ptr nonnull align(4) %0, ptr @h) alwaysinline #1, !dbg !5\n",
            "%3 = call noundef dereferenceable(4) ptr @\"g(\"(ptr %0) alwaysinline\n",
            "call void @f(ptr %0, ptr null) alwaysinline\n",
            "call void @small()\n",
        ];
        lines.iter().for_each(|line| assert!(marked.contains(line), "{line}: {marked}"));
        // `h` is called once in the second entry, where `f` does not mention it.
        assert_eq!(marked.matches("alwaysinline").count(), 4);
        assert_eq!(marked.replace(" alwaysinline", ""), ir);
    }

    #[test]
    fn a_function_that_one_entry_calls_twice_is_marked_for_none() {
        let ir = calls("  call void @f(ptr %0, ptr null)\n  call ptr @\"g(\"(ptr %0)\n");
        let (marked, different) = inline_single_calls(&ir);
        assert_eq!(different.into_iter().collect::<Vec<_>>(), ["__elinvar_entry_0", "__elinvar_entry_1"]);
        assert_eq!(marked.matches("alwaysinline").count(), 2);
    }

    #[test]
    fn recursion_is_not_inlined() {
        let ir = calls("  call void @f(ptr %0, ptr null)\n").replace("@h()", "@h() #1").replacen(
            "define internal void @h() #1 {\n",
            "define internal void @h() #1 {\n  call void @h() #2\n",
            1,
        );
        assert!(!inline_single_calls(&ir).0.contains("@h() alwaysinline"));
    }
}
