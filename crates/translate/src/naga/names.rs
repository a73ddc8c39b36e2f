//! Names of kernels and arguments, which a translation keeps.
//!
//! naga's writer gives one name to one thing, to variables of functions first, and sets `_` behind names that end in a digit.

use std::collections::HashSet;

use ::naga::{Function, Module};

/// Renames variables of functions that have the name of a variable with a binding.
pub(super) fn make_way(module: &mut Module) {
    let bound = module.global_variables.iter().filter(|(_, variable)| variable.binding.is_some());
    let taken: HashSet<String> = bound.filter_map(|(_, variable)| variable.name.clone()).collect();
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    for function in functions.chain(module.entry_points.iter_mut().map(|entry| &mut entry.function)) {
        rename_variables(function, &taken);
    }
}

fn rename_variables(function: &mut Function, taken: &HashSet<String>) {
    let other = |name: &mut String| {
        if taken.contains(name.as_str()) {
            name.push_str("_local");
        }
    };
    function.arguments.iter_mut().filter_map(|argument| argument.name.as_mut()).for_each(other);
    function.local_variables.iter_mut().filter_map(|(_, variable)| variable.name.as_mut()).for_each(other);
    function.named_expressions.values_mut().for_each(other);
}

/// The text with `from`, a name that ends in a digit and naga's `_`, as `to`, without the `_`, if nothing else has that name.
pub(super) fn restored(text: &str, from: &str, to: &str) -> Option<String> {
    let is_digit = to.ends_with(|c: char| c.is_ascii_digit());
    if !is_digit
        || from.strip_suffix('_') != Some(to)
        || is_reserved(to)
        || words(text).any(|word| word == to)
    {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut written = 0;
    for word in words(text).filter(|word| *word == from) {
        let start = word.as_ptr().addr() - text.as_ptr().addr();
        out.push_str(&text[written..start]);
        out.push_str(to);
        written = start + word.len();
    }
    Some(out + &text[written..])
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Whether a name that ends in a digit is that of a type, function or constant of MSL.
fn is_reserved(name: &str) -> bool {
    const TAKEN: &[&str] = &[
        "atan", "bfloat", "bool", "char", "exp", "float", "half", "int", "log", "long", "short", "uchar",
        "uint", "ulong", "ushort",
    ];
    let base = name.trim_start_matches("packed_").trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
    TAKEN.contains(&base) || name.starts_with("M_") || name.starts_with("FLT_") || name.starts_with("simd_")
}
