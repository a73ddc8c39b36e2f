//! [`Entries`]: takes a module with the entries of several kernels apart.

use std::collections::HashMap;

use crate::ir::items::{items, names, symbol};
use crate::rewrite::glue::{ENTRY, PRESENT};

/// LLVM IR text in which several kernels have entries, named [`ENTRY`], `_` and a number.
pub struct Entries<'a> {
    /// Functions with their bodies, and other lines.
    items: Vec<&'a str>,
    /// Index of a function, variable or metadata node.
    places: HashMap<&'a str, usize>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let items = items(text);
        let named = items.iter().enumerate().filter_map(|(at, item)| Some((symbol(item)?, at)));
        Entries { places: named.collect(), items }
    }

    /// Whether each of this many entries refers to a function that another one refers to.
    pub(crate) fn share_functions(&self, count: usize) -> Vec<bool> {
        let functions = |wanted: Vec<bool>| -> Vec<usize> {
            let all = wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(at, _)| at);
            all.filter(|at| self.items[*at].starts_with("define")).collect()
        };
        let called: Vec<Vec<usize>> = (0..count).map(|number| functions(self.wanted(number))).collect();
        let mut callers = HashMap::new();
        called.iter().flatten().for_each(|at| *callers.entry(at).or_insert(0) += 1);
        called.iter().map(|functions| functions.iter().any(|at| callers[at] > 1)).collect()
    }

    /// The module of one entry, which is named [`ENTRY`] there, with everything that it refers to.
    pub fn alone(&self, number: usize) -> String {
        let kept = self.items.iter().zip(self.wanted(number)).filter(|(_, wanted)| *wanted);
        let usual = [ENTRY, PRESENT].map(|name| (numbered(name, number), name));
        let mut text = String::new();
        for (item, _) in kept {
            match usual.iter().find(|(name, _)| symbol(item) == Some(name)) {
                Some((name, usual)) => text.push_str(&item.replacen(name, &format!("@{usual}"), 1)),
                None => text.push_str(item),
            }
        }
        text
    }

    /// The items to which an entry refers, and those that are not named.
    fn wanted(&self, number: usize) -> Vec<bool> {
        let mut wanted: Vec<bool> = self.items.iter().map(|item| symbol(item).is_none()).collect();
        let mut todo: Vec<usize> = (0..wanted.len()).filter(|at| wanted[*at]).collect();
        let roots = [ENTRY, PRESENT].map(|name| self.places.get(numbered(name, number).as_str()));
        todo.extend(roots.into_iter().flatten());
        while let Some(at) = todo.pop() {
            wanted[at] = true;
            let mentioned = names(self.items[at]).filter_map(|name| self.places.get(name));
            todo.extend(mentioned.filter(|place| !wanted[**place]));
        }
        wanted
    }
}

fn numbered(name: &str, number: usize) -> String {
    format!("@{name}_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "target triple = \"t\"\n\
        @__elinvar_present_0 = constant [1 x i64] [i64 1]\n@__elinvar_present_1 = constant [1 x i64] [i64 2]\n\
        @a = global i32 1\n@b = global ptr @c\n@c = global i32 1\n\
        define void @__elinvar_entry_0() !dbg !1 {\n  call void @f()\n  ret void\n}\n\
        define void @__elinvar_entry_1() {\n  %p = load ptr, ptr @b\n  ret void\n}\n\
        define void @f() {\n  call void @g()\n  store i32 0, ptr @a\n  ret void\n}\n\
        declare !dbg !3 void @g()\ndeclare !dbg !3 void @h()\n!named = !{!2}\n!1 = !{!3}\n!2 = !{}\n!3 = !{}\n!4 = !{}\n";

    #[test]
    fn one_entry_keeps_what_it_mentions() {
        let first = Entries::new(TWO).alone(0);
        assert!(first.contains("define void @__elinvar_entry() !dbg !1 {\n  call void @f()\n"));
        assert!(first.contains("@__elinvar_present = constant [1 x i64] [i64 1]\n"));
        for (kept, gone) in
            [("@a =", "@b ="), ("@f()", "@c ="), ("!3 =", "!4 ="), ("!2 =", "_1"), ("@g()\n!", "@h()")]
        {
            assert!(first.contains(kept) && !first.contains(gone), "{kept} {gone} {first}");
        }
        let second = Entries::new(TWO).alone(1);
        assert!(second.contains("@c = global") && !second.contains("@f") && !second.contains("!1 ="));
    }

    #[test]
    fn entries_share_a_function_that_both_call() {
        assert_eq!(Entries::new(TWO).share_functions(2), [false, false]);
        let both = TWO.replace("  %p = load", "  call void @f()\n  %p = load");
        assert_eq!(Entries::new(&both).share_functions(2), [true, true]);
    }
}
